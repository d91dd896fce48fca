"""Requests of a warp: the sectors and lines that its lanes touch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.ir.ttir.strides import Repeated, offset
from asmtune.predict.features.requests import LINE, Request, SectorsPerRequest, touched
from asmtune.predict.features.sketch.layouts import combined

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


def walked(asked: Request, steps: tuple[int | Repeated, ...], width: int) -> SectorsPerRequest:
    """What a request touches, by going from lane to lane and byte to byte."""
    run = max(1, width // asked.element_bytes)
    outer = [b for b in asked.registers if not (0 < b[asked.axis] < run and sum(map(bool, b)) == 1)]
    count, seen = min(16, 1 << len(outer)), set[int]()
    sectors = lines = fresh = 0
    for number in range(count):
        own, whole = set[int](), set[int]()
        for lane in range(1 << len(asked.lanes)):
            origin = combined(outer, number, (0,) * len(asked.shape))
            place = combined(asked.lanes, lane, origin)
            start = sum(map(offset, steps, place)) * asked.element_bytes
            own |= {byte // 32 for byte in range(start, start + width)}
            whole |= {byte // LINE for byte in range(start, start + width)}
        odd = sum(line % 2 for line in whole)
        sectors, fresh = sectors + len(own), fresh + len(own - seen)
        lines += max(odd, len(whole) - odd)
        seen |= own
    lanes = 1 << sum(map(any, asked.lanes))
    share = lanes / (1 << len(asked.lanes))
    return SectorsPerRequest(sectors / count, lines / count, fresh / sectors, share)


BASES = st.tuples(st.integers(0, 63), st.integers(0, 63))
STEPS = st.integers(-300, 3000) | st.builds(Repeated, st.integers(1, 8), st.integers(0, 700))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(BASES, min_size=1, max_size=5),
    st.lists(BASES, max_size=6),
    st.tuples(STEPS, STEPS),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 16, 48]),
)
def test_every_byte_of_every_lane(
    lanes: list[tuple[int, int]],
    registers: list[tuple[int, int]],
    steps: tuple[int | Repeated, int | Repeated],
    element_bytes: int,
    width: int,
) -> None:
    """Sectors, lines and what is fresh are those of a walk over the bytes."""
    asked = Request((64, 64), element_bytes, 1, tuple(lanes), tuple(registers))
    assert touched(asked, steps, width) == walked(asked, steps, width)
