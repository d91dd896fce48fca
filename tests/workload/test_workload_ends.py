"""The furthest byte that a launch reaches of an argument, against the numbers of its source."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from tests.workload.workload_lowering import call, lower, pointer


@triton.jit
def ends(x_ptr, n, stride, FORM: tl.constexpr, BLOCK: tl.constexpr):  # noqa: C901 - a form each
    """Store a block a program, each form with another address or mask."""
    at = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * BLOCK + at
    mask = offs < n
    if FORM == "tile":
        mask = at < 5
    if FORM == "rows":
        offs = (tl.program_id(0) % 4) * stride + (tl.program_id(0) // 4) * BLOCK + at
        mask = at < n
    if FORM == "wrapped":
        offs = offs % n
    if FORM == "other":
        mask = tl.program_id(0) * 7 + at < 3
    if FORM == "below":
        mask = offs >= 8
    if FORM == "both":
        mask = (offs < n) & (at < 5)
    if FORM == "scaled":
        offs = offs * 3 + 2
        mask = tl.program_id(0) * BLOCK + at < n
    if FORM == "after":
        place = x_ptr
        for _ in range(n):
            place += stride
        tl.store(place + at, 1.0)
    elif FORM == "loop":
        for i in range(0, n, 2):
            tl.store(x_ptr + i * stride + at, 1.0)
    elif FORM == "strided":
        for i in range(tl.program_id(0), n, tl.num_programs(0)):
            tl.store(x_ptr + i * stride + at, 1.0, mask=i < n - 1)
    elif FORM == "branch":
        if n > 3:
            tl.store(x_ptr + offs, 1.0)
    else:
        tl.store(x_ptr + offs, 1.0, mask=mask)


@pytest.mark.parametrize(
    ("form", "n", "last"),
    [
        ("plain", 100, 100),  # the mask ends before the grid of 8 x 16 does
        ("plain", 999, 8 * 16),
        ("tile", 100, 7 * 16 + 5),
        ("rows", 9, 3 * 1000 + 1 * 16 + 9),
        ("wrapped", 100, 0),  # nobody follows a remainder of a tile
        ("other", 100, 0),  # it limits what is no part of the address
        ("below", 100, 0),
        ("both", 100, 0),  # two limits of terms that overlap
        ("scaled", 100, 99 * 3 + 2 + 1),
        ("after", 7, 7 * 1000 + 16),
        ("loop", 7, 6 * 1000 + 16),
        ("strided", 30, 28 * 1000 + 16),
        ("branch", 100, 0),  # not every launch comes there
    ],
)
def test_ends(form: str, n: int, last: int) -> None:
    """Limits of masks, terms of programs, tiles and loops; 0 where the text does not tell."""
    values = {"x_ptr": pointer(), "n": n, "stride": 1000, "FORM": form, "BLOCK": 16}
    text = lower(ends, **values)
    launch = LaunchArguments(values, call((8,)).grid, {"x_ptr": 1})
    (use,) = Kernel(text).work(launch).arguments
    assert use.end_bytes == last * 4
