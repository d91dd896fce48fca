"""Who can change what lies in a folder: files that others may have planted are not used.

What lies in the cache folder is compiled, launched, or decides what is. So each use of it asks
first: a file, its folder and each one above must belong to the user or to root, and nobody else
may write there. Where a folder has the sticky bit, as /tmp, others may add to it and cannot move
what is the user's: what they add is theirs, and refused for that. One of root's ends the walk
upwards.

Where a folder cannot be used or written, `fault_line` says so, and one line for it is enough.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import stat
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from asmtune.base.atomic_write import make_private
from asmtune.base.json_codec import printable
from asmtune.base.text import user_stacklevel

_WRITERS: Final = {"g": stat.S_IWGRP, "o": stat.S_IWOTH}
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS: Final = 40  # as in Linux


class UntrustedError(PermissionError):
    """Others can change a file or folder; the text says which, whose it is, and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)

    def __str__(self) -> str:
        return str(self.strerror)


class CacheFolderWarning(UserWarning):
    """A folder of the cache is not used, since others may write what is run from it."""


def trusted_folder(folder: Path, *, make: bool = False) -> None:
    """Check that nobody else can change what is in a folder, or put another one in its place.

    A folder that is missing is checked as far as its path is there. It is then made on demand,
    for the user alone, and checked again: somebody else may have been faster.

    Raises:
        UntrustedError: somebody else can.
        OSError: the folder cannot be looked at or made.
    """
    _check(folder)
    if make and not folder.is_dir():
        make_private(folder)
        _check(folder)


def trusted_file(path: Path, *beside: str) -> None:
    """Check a file and its folder: that nobody else has written it, or can put another there.

    Args:
        path: the file.
        beside: suffixes of the names of files that are used with it.

    Raises:
        UntrustedError: somebody else has or can.
        OSError: it cannot be looked at; a missing file is no error.
    """
    owners = _check(path, is_file=True)
    for suffix in beside:
        place = f"{path}{suffix}"
        with contextlib.suppress(FileNotFoundError):
            _check_step(_Step(place, os.lstat(place)), owners, "file")


def _check(path: Path, *, is_file: bool = False) -> set[int]:
    """Check all that a path leads through, from its end; return who may own it."""
    steps, is_whole = _steps(path)
    root = steps[0].status.st_uid  # not 0 in a container that maps no user to root
    owners, is_over = {os.geteuid(), 0, root}, False
    of_file = [steps.pop()] if is_file and is_whole else []
    for step in reversed(steps):
        if is_over and not step.is_link:  # whoever can replace a link decides where it leads
            continue
        if is_file and step.is_link and Path(step.place).name == path.name:
            of_file.append(step)
        else:
            _check_step(step, owners, "folder")
        is_over = not step.is_link and step.is_sticky and step.status.st_uid in (0, root)
    for step in of_file:  # last: in a folder of others nothing is said of one file
        _check_step(step, owners, "file")
    return owners


class _Step(NamedTuple):
    """A folder, a link or a file that a path leads through."""

    place: str
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_sticky(self) -> bool:
        """Return whether only its owner can move what lies in it, whoever else may write."""
        return stat.S_ISDIR(self.status.st_mode) and bool(self.status.st_mode & stat.S_ISVTX)


def _check_step(step: _Step, owners: set[int], kind: str) -> None:
    owner, mode = step.status.st_uid, stat.S_IMODE(step.status.st_mode)
    what = f"{kind} {printable(step.place)}"
    if owner not in owners:
        raise UntrustedError(
            f"{what} belongs to user {owner} (mode {mode:04o}), and this is user {os.geteuid()}: "
            "change its owner"
        )
    if step.is_link or step.is_sticky or not mode & _OTHERS_WRITE:
        return
    who = "".join(name for name, bit in _WRITERS.items() if mode & bit)
    raise UntrustedError(
        f"others may write in {what} of user {owner} (mode {mode:04o}): `chmod {who}-w` it"
    )


def _steps(path: Path) -> tuple[list[_Step], bool]:
    """Return what a path leads through, and whether all of it is there.

    Raises:
        OSError: a part of it cannot be looked at, or its links lead in a circle.
    """
    steps: list[_Step] = []
    # Texts, since a check comes before each read of a small file: `Path` takes thrice as long.
    here, rest, links = "/", list(path.absolute().parts), 0
    while rest:
        here = os.path.join(here, rest.pop(0))  # noqa: PTH118
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return steps, False
        steps.append(_Step(here, status))
        if steps[-1].is_link:
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            rest = [*Path(here).readlink().parts, *rest]
            here = str(Path(here).parent)
    return steps, True


@cache
def private_folder(folder: Path, what: str, problem: str) -> Path:
    """Make a private folder in the place of one that is not safe, and warn, once a process.

    Raises:
        OSError: none can be made.
    """
    private = Path(tempfile.mkdtemp(prefix="asmtune-cache-"))
    atexit.register(remove_own, private, os.getpid())
    warnings.warn(
        f"{what} {folder}: {problem}; {private} is used until this process ends",
        CacheFolderWarning,
        stacklevel=user_stacklevel(),
    )
    return private


def remove_own(folder: Path, owner: int) -> None:
    """Delete a folder, if this is the process that made it; a forked one ends as well."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


_ADVICE: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST), "a file is where a folder should be: move it away"
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
