"""Layouts: which elements registers, lanes and warps hold."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.predict.features.sketch.layouts import Basis, TensorLayout, layout_of

POWERS = st.sampled_from([1, 2, 4, 8])
MMA2 = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"  # noqa: E501
MMA3 = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 2], instrShape = [16, 64, 16]}>"  # noqa: E501


def span(bases: Iterable[Basis], rank: int) -> set[Basis]:
    """All coordinates that some bases add up to."""
    found = {(0,) * rank}
    for basis in bases:
        found |= {tuple(a ^ b for a, b in zip(at, basis, strict=True)) for at in found}
    return found


def covers(layout: TensorLayout, shape: tuple[int, ...]) -> bool:
    """Say if every element is held by some thread, and none that is not there."""
    held = span((*layout.registers, *layout.lanes, *layout.warps), len(shape))
    return held == span(
        [
            tuple(1 << bit if d == axis else 0 for d in range(len(shape)))
            for axis, size in enumerate(shape)
            for bit in range(size.bit_length() - 1)
        ],
        len(shape),
    )


@pytest.mark.slow
@given(
    own=st.tuples(POWERS, POWERS),
    lanes=st.sampled_from([(1, 32), (2, 16), (8, 4), (32, 1)]),
    warps=st.sampled_from([(1, 4), (2, 2), (4, 1), (8, 1)]),
    order=st.sampled_from([(0, 1), (1, 0)]),
    shape=st.tuples(st.sampled_from([1, 2, 16, 64, 128]), st.sampled_from([1, 4, 32, 64, 256])),
)
def test_blocked_covers_its_tensor(
    own: tuple[int, int],
    lanes: tuple[int, int],
    warps: tuple[int, int],
    order: tuple[int, int],
    shape: tuple[int, int],
) -> None:
    """Whatever the shape, all elements are held; a slice of it holds a row or a column."""
    text = (
        f"#ttg.blocked<{{sizePerThread = {list(own)}, threadsPerWarp = {list(lanes)}, "
        f"warpsPerCTA = {list(warps)}, order = {list(order)}}}>"
    )
    layout = layout_of(text, shape, math.prod(warps))
    assert covers(layout, shape)
    assert layout.width == min(own[order[0]], shape[order[0]])
    for dim in (0, 1):
        part = layout_of(f"#ttg.slice<{{dim = {dim}, parent = {text}}}>", (shape[1 - dim],), 4)
        assert covers(part, (shape[1 - dim],))


@pytest.mark.parametrize(
    ("encoding", "shape", "held"),
    [
        (MMA2, (64, 64), 64 * 64 // 128),
        (MMA2, (16, 8), 4),
        (MMA3, (64, 128), 64 * 128 // 256),
        (MMA3, (128, 128), 128 * 128 // 256),
        (f"#ttg.dot_op<{{opIdx = 0, parent = {MMA2}, kWidth = 2}}>", (64, 32), 64 * 32 // 64),
        (f"#ttg.dot_op<{{opIdx = 1, parent = {MMA2}, kWidth = 2}}>", (32, 64), 32 * 64 // 64),
    ],
)
def test_tensor_layouts(encoding: str, shape: tuple[int, int], held: int) -> None:
    """Accumulators lie over all warps, operands over those along their own axis alone."""
    layout = layout_of(encoding, shape, 8)
    assert covers(layout, shape)
    assert layout.elements == held


def test_linear_is_read_as_written() -> None:
    """A linear layout's bases are its own, whichever order they come in."""
    text = (
        "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], "
        "[4, 0]], warp = [[16, 0], [0, 0]], block = []}>"
    )
    layout = layout_of(text, (32, 8), 4)
    assert layout.registers == ((0, 1), (8, 0))
    assert layout.warps == ((16, 0), (0, 0))
    assert (layout.fast, layout.width) == (1, 2)


def test_distinct_elements() -> None:
    """Axes along which nothing differs, and vectors that are asked for as one, are not counted."""
    text = "#ttg.blocked<{sizePerThread = [2, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"  # noqa: E501
    layout = layout_of(text, (32, 64), 4)
    assert layout.distinct(frozenset({0, 1})) == 16
    assert layout.distinct(frozenset({1})) == 8
    assert layout.distinct(frozenset({0, 1}), (1, 8)) == 2
    assert layout.distinct(frozenset()) == 1
