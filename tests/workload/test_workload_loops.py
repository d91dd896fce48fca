"""Trip counts of loops against what the kernels' source says."""

from __future__ import annotations

from math import ceil

import pytest
import workload_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_lowering import F16, call, lower, pointer, work

from asmtune.ir.ttir.analysis import Kernel, LaunchArguments, analyse
from asmtune.ir.ttir.work import Work

TILES = {"BM": 64, "BN": 64, "BK": 32}


def gemm_work(m: int, n: int, k: int, **tiles: int) -> Work:
    """Work of the grouped product."""
    grid = (ceil(m / tiles["BM"]) * ceil(n / tiles["BN"]),)
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))
    return work(kernels.gemm, grid=grid, **pointers, M=m, N=n, K=k, **tiles)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 5000),
    st.integers(2, 5000),
    st.integers(2, 20000),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([16, 64, 128]),
)
def test_product_loops_over_the_inner_dimension(m: int, n: int, k: int, bm: int, bk: int) -> None:
    """Trips are the ceiling of K by its tile, whatever the shape; every program alike."""
    found = gemm_work(m, n, k, BM=bm, BN=32, BK=bk)
    (loop,) = found.loops
    assert (loop.trips, loop.least, loop.most, loop.entries) == (ceil(k / bk),) * 3 + (1,)
    assert found.exact
    assert found.evaluated == 1  # no bound depends on the program
    assert loop.has_dot


def test_loop_says_where_it_stands() -> None:
    """File and line are those of the loop in the source."""
    (loop,) = gemm_work(64, 64, 64, **TILES).loops
    assert loop.file.endswith("workload_kernels.py")
    first = kernels.gemm.starting_line_number
    source = kernels.gemm.raw_src[loop.line - first]
    assert "for k in range" in source


@pytest.mark.parametrize("n", [50, 3_000_000])
def test_while_loop_in_uneven_steps_goes_on_by_their_mean(n: int) -> None:
    """Steps of 1, 1 and 2 in turn never get even; their mean takes over."""
    found = work(kernels.uneven_while, grid=(1,), y_ptr=pointer(), n=n)
    i = trips = 0
    while i < n:
        i, trips = i + 1 + i % 3 // 2, trips + 1
    assert found.loops[0].trips == pytest.approx(trips, rel=0 if n == 50 else 0.01)
    assert found.exact == (n == 50)


@pytest.mark.parametrize("n", [50, 100_000])
def test_long_loop_with_varying_inner_bound_is_sampled(n: int) -> None:
    """The inner bound runs through 0 to 6; beyond the budget a sample stands for all."""
    found = work(kernels.long_loop, grid=(1,), y_ptr=pointer(), n=n, m=7)
    true = sum(i % 7 for i in range(n))
    assert found.loops[1].iterations == pytest.approx(true, rel=0 if n == 50 else 0.01)
    assert found.exact == (n == 50)


def test_a_sample_is_the_middle_of_its_share() -> None:
    """Where trips grow evenly, those that are walked give all without an error."""
    pointers = {"x_ptr": pointer(), "y_ptr": pointer()}
    found = work(kernels.triangular, grid=(1,), **pointers, n=100_000, BLOCK=64)
    assert not found.exact
    assert found.loops[1].iterations == pytest.approx(100_000 * 100_001 / 2, rel=1e-5)


def test_one_reading_serves_all_launches() -> None:
    """A kernel read once gives each launch its own numbers."""
    values = {"x_ptr": pointer(), "y_ptr": pointer()}
    kernel = Kernel(lower(kernels.scalar_loop, **values, n=20))
    trips = [kernel.work(call((1,), n=n)).loops[0].trips for n in (2, 30, 400)]
    assert trips == [2, 30, 400]


def test_missing_number_is_said() -> None:
    """A launch that leaves out an argument is told which."""
    text = lower(kernels.scalar_loop, x_ptr=pointer(), y_ptr=pointer(), n=20)
    found = Kernel(text).work(call((1,)))
    assert found.assumptions[0].reason == "argument n was given no number"


def _nested(depth: int, opening: str) -> str:
    """TTIR of triangular loops: each runs to the variable of the one around it."""
    lines = [
        "module {",
        "tt.func public @k(%p: !tt.ptr<f32>) {",
        "%c0 = arith.constant 0 : i32",
        "%c1 = arith.constant 1 : i32",
        "%i0 = arith.constant 100 : i32",
        "%f = arith.constant 1.0 : f32",
    ]
    for level in range(depth):
        lines += opening.format(outer=level, inner=level + 1).splitlines()
    lines.append("tt.store %p, %f : !tt.ptr<f32>")
    for level in reversed(range(depth)):
        if "scf.while" in opening:
            lines.append(f"%n{level + 1} = arith.addi %i{level + 1}, %c1 : i32")
            lines.append(f"scf.yield %n{level + 1} : i32")
        lines.append("}")
    return "\n".join([*lines, "tt.return", "}", "}"])


FOR = "scf.for %i{inner} = %c0 to %i{outer} step %c1  : i32 {{"
WHILE = """%w{inner} = scf.while (%b{inner} = %c0) : (i32) -> i32 {{
%t{inner} = arith.cmpi slt, %b{inner}, %i{outer} : i32
scf.condition(%t{inner}) %b{inner} : i32
}} do {{
^bb0(%i{inner}: i32):"""


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("opening", [FOR, WHILE], ids=["for", "while"])
@pytest.mark.parametrize("depth", [8, 14])
def test_nested_triangular_loops_are_not_walked_without_end(opening: str, depth: int) -> None:
    """Past a number of steps the trips of the inner loops are assumed, and the work says so."""
    counted = analyse(_nested(depth, opening), LaunchArguments({"p": None}, (1000, 1, 1)))
    assert [loop.depth for loop in counted.loops] == list(range(1, depth + 1))
    assert counted.loops[0].trips == 100
    assert not counted.exact
    assert any("take more trips than are walked" in str(a) for a in counted.assumptions)
    few = analyse(_nested(2, opening), LaunchArguments({"p": None}, (1000, 1, 1)))
    assert not few.assumptions
    if opening == FOR:  # those of a while loop are walked in a sample of its trips
        assert [loop.trips for loop in few.loops] == [100, 49.5]
