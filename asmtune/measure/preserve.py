"""Keeping the user's tensors whole while configs run on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def preserved(values: Iterable[Any]) -> Iterator[None]:
    """Gives every tensor among `values` its contents back at the end.

    Tuning runs a kernel many times on the arguments of one launch; an in-place
    kernel, or one that adds atomically, must find them as they were. Costs one
    copy of each tensor in device memory, and the time of copying it twice.
    """
    tensors = {id(tensor): tensor.detach() for tensor in _tensors(values)}
    copies = [(tensor, tensor.clone()) for tensor in tensors.values()]
    try:
        yield
    finally:
        for tensor, copy in copies:
            tensor.copy_(copy)


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """Tensors themselves, those under descriptors or wrappers, and those inside tuples."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _tensors(value)
        for candidate in (value, getattr(value, "base", None)):
            if hasattr(candidate, "data_ptr") and hasattr(candidate, "detach"):
                yield candidate
                break
