"""Where arguments lie: ranges that cover them, what they share, copies that keep their layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asmtune.measure.checks.roles import overlap
from asmtune.measure.checks.tensors import (
    RegionCopy,
    TensorArgument,
    regions_of,
    tensor_arguments,
)

BYTES = 256


def tensors_in(*tensors: Tensor) -> list[TensorArgument]:
    found, _ = tensor_arguments({f"t{number}": tensor for number, tensor in enumerate(tensors)})
    return found


def extents(*tensors: Tensor) -> list[tuple[int, int]]:
    """First and last byte of each region."""
    return [(region.start, region.stop) for region in regions_of(tensors_in(*tensors))]


def test_views_that_meet_share_a_region() -> None:
    """Ranges that overlap become one, whatever their order; those that only touch stay apart."""
    memory = torch.zeros(100)
    assert extents(memory[50:60], memory[:20], memory[10:30]) == [(0, 120), (200, 240)]
    assert extents(memory[:10], memory[10:20]) == [(0, 40), (40, 80)]
    assert extents(memory, memory[10:20], memory[30:]) == [(0, 400)]
    assert extents(memory, memory.clone()) == [(0, 400), (0, 400)]
    assert extents(memory[1::3], memory[2:5]) == [(4, 392)]


def test_storages_of_the_same_memory_share_a_region() -> None:
    """A tensor that came by way of another library lies where it lies."""
    memory = torch.zeros(100)
    other = torch.from_numpy(memory.numpy()[:60])
    (region,) = regions_of(tensors_in(other, memory))
    assert (region.start, region.stop) == (0, 400)
    assert region.contents().numel() == 400
    assert memory.untyped_storage().nbytes() == 400


def test_gaps() -> None:
    """A region has gaps unless one of its views has every byte."""
    memory = torch.zeros(10, 10)
    packed = [memory[:, :5], memory[:, 5:]]
    for views, expected in [
        ([memory], False),
        ([memory.t()], False),
        ([memory[2:5]], False),
        ([memory[:, :9]], True),
        ([memory[:, :9], memory], False),
        ([memory[0].expand(4, 10)], False),
        (packed, True),
    ]:
        (region,) = regions_of(tensors_in(*views))
        assert region.has_gaps == expected


def test_copies_keep_the_layout_of_every_view() -> None:
    """A copy that begins at an odd byte has its wider elements in place."""
    memory = torch.arange(64, dtype=torch.uint8)
    views = [memory[3:41], memory.view(torch.float32)[2:9:3], memory.view(torch.int64)[1:4]]
    found = tensors_in(*views)
    (region,) = regions_of(found)
    copy = RegionCopy(region)
    before = [view.clone() for view in views]
    memory.zero_()
    for slot, expected in zip(found, before, strict=True):
        assert torch.equal(copy.view(slot), expected)
    copy.restore()
    assert memory.tolist() == [n if 3 <= n < 41 else 0 for n in range(64)]


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
