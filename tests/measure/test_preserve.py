"""The user's tensors hold what they held before, whatever ran on them."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.measure.checks.tensors import RegionCopy, preserved

VIEWS = {
    "a tensor": lambda tensor: tensor,
    "floats, NaN among them": lambda tensor: tensor.view(torch.float16),
    "a descriptor": lambda tensor: TensorDescriptor.from_tensor(tensor, [16, 16]),
    "a reinterpreted tensor": lambda tensor: triton.reinterpret(tensor, tl.float8e5),
    "a parameter": lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_contents_come_back(view: Any) -> None:
    """However an argument wraps its tensor, what is written meanwhile is undone, errors or not."""
    tensor = torch.arange(256).to(torch.uint8).reshape(16, 16)
    before = tensor.clone()
    argument = view(tensor)
    with preserved([argument, 3, None, "text", argument, tensor[5:]]) as restore:
        tensor[2:].fill_(7)
        restore()
        assert torch.equal(tensor, before)
        tensor[2:].fill_(8)
    assert torch.equal(tensor, before)

    def fail() -> NoReturn:
        tensor[2:].fill_(7)
        raise RuntimeError("launch failed")

    with pytest.raises(RuntimeError, match="launch failed"), preserved([argument]):
        fail()
    assert torch.equal(tensor, before)


def test_ctrl_c_does_not_cut_restoring_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two interrupts in the middle of it are raised after the last tensor has its contents."""
    tensors = [torch.arange(4.0), torch.arange(4.0)]
    restore, seen = RegionCopy.restore, []

    def interrupted(copy: RegionCopy) -> None:
        seen.append(copy)
        if len(seen) in (1, 3):
            raise KeyboardInterrupt
        restore(copy)

    monkeypatch.setattr(RegionCopy, "restore", interrupted)
    with pytest.raises(KeyboardInterrupt), preserved(tensors):
        torch._foreach_zero_(tensors)
    assert [tensor.tolist() for tensor in tensors] == [[0, 1, 2, 3]] * 2
