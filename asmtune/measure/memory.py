"""Memory that tuning may take: what is left on a GPU and on the host, and giving back what it took.

A program that would have run without tuning runs with it: where memory is short, copies go to the
host, buffers are smaller, and at last nothing is timed (`MemoryShortError`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import MemoryShortError
from asmtune.base.text import amount

RESERVE_BYTES: Final = 512 << 20
"""Bytes of a device that copies leave free: the buffer that flushes L2 (256 MiB), temporaries of a
check (some 150 MB), and what kernels ask for at launch."""

CHECK_BYTES: Final = 192 << 20
"""Bytes of the reserve for a check and for kernels."""

PROCESS_BYTES: Final = 1 << 30
"""Bytes of a process that times, beside the arguments: a CUDA context (some 500 MB), and those."""

_HOST_RESERVE: Final = 1 << 30
_CGROUP: Final = Path("/sys/fs/cgroup")


def free_bytes(device: Any = None) -> int:
    """Return the bytes that PyTorch can still allocate on a CUDA device, by default the current.

    Blocks that it caches count, and the limit of `set_per_process_memory_fraction`.
    """
    import torch

    free, total = torch.cuda.mem_get_info() if device is None else torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device)
    room = free + torch.cuda.memory_reserved(device) - taken
    limit = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    if limit is not None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        room = min(room, int(limit(device) * total) - taken)
    return int(max(room, 0))


def host_bytes() -> int:
    """Return the memory that a program can take without swapping, within its container's limit.

    Cached files count as free, since the kernel drops them when memory is asked for.
    """
    text = Path("/proc/meminfo").read_text()
    match = re.search(r"^MemAvailable: *(\d+) kB$", text, re.MULTILINE)
    free = int(match.group(1)) << 10 if match else 0
    with suppress(OSError, ValueError):  # no container, or "max"
        limit = int((_CGROUP / "memory.max").read_text())
        taken = int((_CGROUP / "memory.current").read_text())
        files = re.findall(r"^(?:in)?active_file (\d+)$", _cgroup_text("memory.stat"), re.MULTILINE)
        free = min(free, limit - taken + sum(map(int, files)))
    return max(free, 0)


def _cgroup_text(name: str) -> str:
    with suppress(OSError):
        return (_CGROUP / name).read_text()
    return ""


def nameless_file(nbytes: int) -> int:
    """Create a file without a name: no other user can open it, and the last close deletes it.

    It is in memory if half of the free memory suffices, else in the folder for temporary files.
    """
    if nbytes <= host_bytes() // 2:
        file = os.memfd_create("asmtune")
    else:
        with tempfile.TemporaryFile(prefix="asmtune-") as opened:
            file = os.dup(opened.fileno())
    try:
        # Without this, a full disk would raise SIGBUS in the middle of copying.
        os.posix_fallocate(file, 0, max(nbytes, 1))
    except OSError as error:
        os.close(file)
        raise MemoryShortError(
            f"the arguments' {nbytes:,} bytes cannot be copied for a child process "
            f"({error.strerror}): free memory, set TMPDIR to a larger disk, or use isolate=False"
        ) from error
    return file


def require_host(length: int, what: str) -> None:
    """Check that the host has room for a number of bytes.

    Raises:
        MemoryShortError: it has not.
    """
    free = host_bytes()
    if length + _HOST_RESERVE > free:
        raise MemoryShortError(
            f"neither the GPU nor the host has room for {what}: {amount(length, 'B')}, and "
            f"{amount(free, 'B')} of the host are free; free memory, or tune it before the "
            "program fills it (asmtune tune)"
        )


def allocated(length: int, device: Any, leave: int = 0) -> tuple[Any, bool]:
    """Allocate bytes; return whether they lie on the host because the device has no room.

    Raises:
        MemoryShortError: the host has no room either.
    """
    import torch

    if has_room(device, length + leave):
        try:
            return torch.empty(length, dtype=torch.uint8, device=device), False
        except torch.OutOfMemoryError:
            pass  # free, but not in one piece
    if device.type == "cuda":
        require_host(length, "a copy of an argument")
    return torch.empty(length, dtype=torch.uint8, device="cpu"), True


def has_room(device: Any, length: int) -> bool:
    """Return whether a device has room for bytes beside those of kernels and comparisons."""
    return device.type != "cuda" or length + RESERVE_BYTES <= free_bytes(device)


def require_device(index: int | None, length: int, what: str) -> None:
    """Check that another process has room for a number of bytes on a CUDA device.

    Where it has not, PyTorch's cache goes back to the driver first.

    Raises:
        MemoryShortError: it has not.
    """
    import torch

    if not torch.cuda.is_available():
        return
    free, _ = torch.cuda.mem_get_info(index)
    if length > free and torch.cuda.memory_reserved(index) > torch.cuda.memory_allocated(index):
        _empty_cache()
        free, _ = torch.cuda.mem_get_info(index)
    if length > free:
        raise MemoryShortError(
            f"no room on the GPU for {what}: {amount(length, 'B')}, and {amount(free, 'B')} are "
            "free; free memory, or time in this process with isolate=False (--no-isolate)"
        )


@contextmanager
def returning_memory() -> Iterator[None]:
    """Give the driver back what PyTorch has cached of the memory that is taken within.

    Libraries beside PyTorch allocate for themselves. Out of memory within becomes a
    `MemoryShortError`.

    Raises:
        MemoryShortError: PyTorch found no memory.
    """
    import torch

    def reserved() -> int:
        return torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]

    before = reserved()
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).splitlines()[0]
        raise MemoryShortError(
            f"{first}; free memory of the GPU, or tune it before with `asmtune tune`"
        ) from error
    finally:
        if reserved() > before:
            _empty_cache()


def _empty_cache() -> None:
    import torch

    # PyTorch refuses while another thread captures a CUDA graph, and on a GPU that is lost: what
    # was tuned, or why it was not, counts more.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()
