"""Where arguments lie: ranges that cover them, what they share, copies that keep their layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asmtune.measure.checks.roles import overlap
from asmtune.measure.checks.tensors import (
    TensorArgument,
    regions_of,
    tensor_arguments,
)

BYTES = 256


def tensors_in(*tensors: Tensor) -> list[TensorArgument]:
    found, _ = tensor_arguments({f"t{number}": tensor for number, tensor in enumerate(tensors)})
    return found


def test_storages_of_the_same_memory_share_a_region() -> None:
    """A tensor that came by way of another library lies where it lies."""
    memory = torch.zeros(100)
    other = torch.from_numpy(memory.numpy()[:60])
    (region,) = regions_of(tensors_in(other, memory))
    assert (region.start, region.stop) == (0, 400)
    assert region.contents().numel() == 400
    assert memory.untyped_storage().nbytes() == 400


@st.composite
def layouts(draw: st.DrawFn) -> Tensor:
    """A view of the first bytes of nothing in particular."""
    dtype = draw(st.sampled_from([torch.uint8, torch.float16, torch.float32]))
    sizes = draw(st.lists(st.integers(1, 4), max_size=3))
    strides = [draw(st.integers(0, 7)) for _ in sizes]
    reach = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    start = draw(st.integers(0, BYTES // 4 - reach - 1 if reach < BYTES // 4 else 0))
    return torch.empty(0, dtype=dtype, device="cpu").set_(
        MEMORY.untyped_storage(), start, sizes, strides
    )


MEMORY = torch.zeros(BYTES, dtype=torch.uint8)


def addresses(tensor: Tensor) -> set[int]:
    """Every byte that an element of a tensor has."""
    places = torch.tensor([tensor.storage_offset()])
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + step * torch.arange(size)).flatten()
    width = tensor.dtype.itemsize
    return {int(place) * width + byte for place in places for byte in range(width)}


@given(layouts(), layouts())
def test_views_overlap_where_they_share_a_byte(one: Tensor, other: Tensor) -> None:
    """The verdict on two views is that of the sets of their bytes."""
    first, second = tensors_in(one, other)
    assert overlap(first, second) == bool(addresses(one) & addresses(other))
    assert overlap(first, first)


def test_views_too_hard_to_tell_apart_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the exact answer would take too long, views are taken to share memory."""
    memory = torch.zeros(1000)
    one, other = tensors_in(
        memory.as_strided((4, 5, 6), (7, 11, 13)), memory.as_strided((5, 6, 4), (17, 19, 23), 1)
    )
    monkeypatch.setattr("asmtune.measure.checks.roles._OVERLAP_WORK", 1)
    assert overlap(one, other)
