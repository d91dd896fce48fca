"""Memory that kernels ask for at launch, where the program has not said who gives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime import _allocation


@contextmanager
def allocating() -> Iterator[None]:
    """Kernels get the memory that they ask for at launch, such as for descriptors they make.

    A program's own allocator goes first; without one Triton refuses to launch them.
    """
    if not isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        yield
        return
    before = _allocation._allocator.set(_memory)
    try:
        yield
    finally:
        _allocation._allocator.reset(before)


def _memory(size: int, alignment: int, stream: int | None) -> Any:  # noqa: ARG001
    import torch

    # PyTorch's own are at multiples of 512 bytes; a descriptor wants 128.
    return torch.empty(size, dtype=torch.int8, device="cuda")
