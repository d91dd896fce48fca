"""Tensors keep their contents while configs run on them."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.measure import preserved

VIEWS = {
    "a tensor": lambda tensor: tensor,
    "a view of one": lambda tensor: tensor[2:],
    "a descriptor": lambda tensor: TensorDescriptor.from_tensor(tensor, [16, 16]),
    "a reinterpreted tensor": lambda tensor: triton.reinterpret(tensor, tl.float8e5),
    "a parameter": lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_contents_come_back(view: Any) -> None:
    """However an argument wraps its tensor, what is written meanwhile is undone, errors or not."""
    tensor = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    before = tensor.clone()
    argument = view(tensor)
    with preserved([argument, 3, None, argument]):
        tensor[2:].fill_(7)
    assert torch.equal(tensor, before)

    def fail() -> NoReturn:
        tensor[2:].fill_(7)
        raise RuntimeError("launch failed")

    with pytest.raises(RuntimeError, match="launch failed"), preserved([argument]):
        fail()
    assert torch.equal(tensor, before)
