"""Files that appear whole or stay as they were."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

_STREAMS: Final = ("/dev", "/proc")


def write_whole(path: Path, data: bytes) -> None:
    """Puts a file with this content in a place: whoever reads sees the old one or the new one.

    A link stays a link; the file that it names is replaced. A device or a pipe is written to:
    moved over /dev/null, as root may, a file would end there what every program writes.

    Raises:
        OSError: it cannot be written; nothing has changed then, and nothing is left over.
    """
    if _is_stream(path):
        with path.open("wb") as stream:
            stream.write(data)
        return
    place = path.resolve()
    part = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether it is no file to replace; /dev/stdout is none wherever it leads."""
    named = any(path.absolute().is_relative_to(folder) for folder in _STREAMS)
    return path.exists() and not path.is_dir() and (named or not path.is_file())
