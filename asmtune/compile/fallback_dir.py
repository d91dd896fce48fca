"""What stands in for a folder of artifacts that cannot be written."""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from asmtune.base.errors import StoreError


class ArtifactWarning(UserWarning):
    """Compiled artifacts cannot be kept where they should be; compiling goes on."""


class StandIns:
    """Private folders of this process, by the folder that each stands in for.

    They are deleted when the process ends.
    """

    def __init__(self) -> None:
        self._made: dict[Path, Path] = {}
        self._lock = threading.Lock()

    def of(self, folder: Path) -> Path | None:
        """What stands in for a folder, if something has to."""
        return self._made.get(folder)

    def add(self, folder: Path, error: StoreError, prove: Callable[[Path], object]) -> None:
        """Makes one, and warns; does nothing where there is one.

        Args:
            folder: that cannot be written.
            error: why; its message says what to do.
            prove: raises a `StoreError` if the private folder cannot be written.

        Raises:
            StoreError: no private folder can be made either.
        """
        with self._lock:
            if folder in self._made:
                return
            with storage_errors(Path(tempfile.gettempdir())):
                made = Path(tempfile.mkdtemp(prefix="asmtune-artifacts-"))
            atexit.register(_remove, made, os.getpid())
            prove(made)
            self._made[folder] = made
        warnings.warn(
            f"{error}; artifacts are kept in {made} until this process ends",
            ArtifactWarning,
            stacklevel=4,
        )


def _remove(folder: Path, owner: int) -> None:
    # A process that forked off ends as well, and the folder is not its own.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turns the system's errors into one line that names the folder and says what to do.

    Raises:
        StoreError: in the place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "make it writable"
        raise StoreError(
            f"artifact folder {folder}: {error.strerror or error}; "
            f"{advice}, or set ASMTUNE_CACHE_DIR to another folder"
        ) from error
