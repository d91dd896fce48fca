"""Memory for kernels that ask for some at launch."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import torch
from triton.runtime import _allocation

from asmtune.triton_api.launching import allocating


def test_kernels_get_memory_where_no_allocator_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a user's allocator there is one for as long as asmtune launches, and none after."""
    made: list[tuple[int, Any]] = []
    real = torch.empty

    def empty(size: int, **given: Any) -> torch.Tensor:
        made.append((size, given["dtype"]))
        return real(size, dtype=given["dtype"])

    def launches() -> None:
        _allocation._allocator.set(_allocation.NullAllocator())
        with allocating():
            assert _allocation._allocator.get()(128, 128, None).data_ptr()
        assert made == [(128, torch.int8)]
        with pytest.raises(RuntimeError, match="no allocator was set"):
            _allocation._allocator.get()(128, 128, None)

    monkeypatch.setattr(torch, "empty", empty)
    contextvars.copy_context().run(launches)


def test_a_users_allocator_goes_first() -> None:
    """What a program has set is what its kernels get their memory from."""
    own = object()
    before = _allocation._allocator.set(own)  # type: ignore[arg-type]
    try:
        with allocating():
            assert _allocation._allocator.get() is own
        assert _allocation._allocator.get() is own
    finally:
        _allocation._allocator.reset(before)
