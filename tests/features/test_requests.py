"""Requests of a warp: the sectors and lines that its lanes touch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asmtune.ir.ttir.strides import Repeated
from asmtune.predict.features.requests import Request, touched

ROW = tuple((1 << bit,) for bit in range(5))
"""Lanes one element apart."""


def request(lanes: tuple[tuple[int, ...], ...], *registers: tuple[int, ...]) -> Request:
    """A request for halves, along the last axis."""
    rank = len(lanes[0])
    return Request((1 << 10,) * rank, 2, rank - 1, lanes, registers)


def test_a_lane_a_row_asks_for_a_sector_each() -> None:
    """Rows 256 bytes apart are 32 sectors and lie in one half of the lines' tags."""
    column = tuple((1 << bit, 0) for bit in range(5))
    even = touched(request(column), (128, 1), 2)
    odd = touched(request(column), (128 + 64, 1), 2)
    assert even.sectors == odd.sectors == 32
    assert even.lines == 32
    assert odd.lines == 16


def test_neighbours_of_a_thread_come_again() -> None:
    """Eight neighbours of a thread, moved one by one, are the same sectors eight times."""
    lanes = tuple((8 << bit,) for bit in range(5))
    registers = ((1,), (2,), (4,))
    single, wide = (touched(request(lanes, *registers), (1,), width) for width in (2, 16))
    assert single.sectors == wide.sectors == 16
    assert (single.fresh, wide.fresh) == (1 / 8, 1)


def test_elements_that_repeat_share_sectors() -> None:
    """Of 32 lanes two a half lie in one sector; of eight rows that each serve four lanes, eight."""
    assert touched(request(ROW), (Repeated(2, 1),), 2).sectors == 1
    assert touched(request(ROW), (Repeated(4, 640),), 2).sectors == 8


def test_unknown_distances_have_a_sector_each() -> None:
    """Where nothing tells the distance, each element has its own sector; a small table has few."""
    found = touched(request(ROW), (None,), 2)
    assert found.sectors == 32
    assert found.within(64, 0.5).sectors == 3
    assert found.within(64, 0.5).share == 0.5


@given(
    st.integers(1, 5000),
    st.permutations([*range(5)]),
    st.sampled_from([2, 4, 8, 16]),
)
def test_bounds(stride: int, order: list[int], width: int) -> None:
    """For any stride and order of lanes, no lane touches more than two sectors."""
    lanes = tuple(((1 << bit) * 8,) for bit in order)
    found = touched(request(lanes, (1,), (2,), (4,)), (stride,), width)
    assert 1 <= found.lines <= found.sectors <= 32 * 2
    assert 0 < found.fresh <= 1
    assert found.cycles(copies=True) <= found.cycles(copies=False)
