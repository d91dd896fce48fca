"""Faults of files and folders in the cache folder: the line on one, and whether it is news.

The store, the artifacts, the traces, the seeds and the copies of IR files lie in one folder. If
that one cannot be written, each of them fails, and one line is enough.
"""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Final

from asmtune.base.trust import UntrustedError

_ADVICE: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST), "a file stands where a folder should be: move it away"
    ),
    errno.EROFS: "make it writable",
    errno.ETIMEDOUT: "try again when that has ended",
}
_MODE: Final = "make it and its folder readable and writable"

_ELSEWHERE: Final = "or set ASMTUNE_CACHE_DIR to another place"
STORE_ELSEWHERE: Final = "set ASMTUNE_CACHE_DIR, or set ASMTUNE_STORE_URL to another place"

_unwritable: Final[set[Path]] = set()
"""Folders of which this process has told that they cannot be written."""


def fault_line(what: str, place: Path | str, error: OSError, elsewhere: str = _ELSEWHERE) -> str:
    """Write what the system says of a file or folder of the cache, and what to do."""
    if isinstance(error, UntrustedError):
        return f"{what} {place}: {error}, {elsewhere}"
    cause, advice = error.strerror or error, _ADVICE.get(error.errno or 0, _MODE)
    return f"{what} {place}: {cause}; {advice}, {elsewhere}"


def is_news(place: Path) -> bool:
    """Return whether to warn of a file or folder: not of a second one in an unwritable folder."""
    folder = place.absolute().parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        is_first = folder not in _unwritable
        _unwritable.add(folder)
        return is_first
