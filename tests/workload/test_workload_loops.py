"""Trip counts of loops against what the kernels' source says."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
import workload_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_lowering import F16, I32, call, lower, moved, pointer, work

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


@pytest.mark.parametrize("size", [512, 1000, 8192])
@pytest.mark.parametrize(("bm", "bn"), [(64, 32), (32, 64), (128, 128)])
def test_causal_attention_stops_at_the_diagonal(size: int, bm: int, bn: int) -> None:
    """Each program's trips are exact: mean, fewest and most over all blocks of rows."""
    blocks = ceil(size / bm)
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), pointer(F16))
    sizes = {"N": size, "scale": 0.1, "D": 64, "CAUSAL": True, "BM": bm, "BN": bn}
    found = work(kernels.attention, grid=(blocks, 24), **pointers, **sizes)
    trips = [ceil(min((start + 1) * bm, size) / bn) for start in range(blocks)]
    (loop,) = found.loops
    assert loop.trips == pytest.approx(sum(trips) / blocks)
    assert (loop.least, loop.most) == (trips[0], trips[-1])
    assert found.exact
    assert found.evaluated == blocks  # the second axis does not matter
    assert loop.num_stages == 2


def test_plain_attention_reads_all_keys() -> None:
    """Without the mask every program's trips are the same."""
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), pointer(F16))
    sizes = {"N": 1000, "scale": 0.1, "D": 64, "CAUSAL": False, "BM": 64, "BN": 32}
    found = work(kernels.attention, grid=(16, 24), **pointers, **sizes)
    assert found.loops[0].trips == 32
    assert found.evaluated == 1


@pytest.mark.parametrize("cols", [255, 256, 257, 12288])
def test_loops_one_after_another_count_separately(cols: int) -> None:
    """Both loops of a layer norm walk the row, neither inside the other."""
    pointers = {"x_ptr": pointer(), "w_ptr": pointer(), "y_ptr": pointer()}
    found = work(kernels.layernorm, grid=(99,), **pointers, cols=cols, eps=1e-5, BLOCK=256)
    assert [loop.trips for loop in found.loops] == [ceil(cols / 256)] * 2
    assert [(loop.parent, loop.depth) for loop in found.loops] == [(None, 1)] * 2


def test_inner_bound_may_depend_on_outer_variable_and_program() -> None:
    """The triangle below the diagonal, cut at the program's column."""
    n, grid = 20, 8
    found = work(kernels.triangular, grid=(grid,), x_ptr=pointer(), y_ptr=pointer(), n=n, BLOCK=64)
    outer, inner = found.loops
    trips = [max(0, i + 1 - pid) for pid in range(grid) for i in range(n)]
    assert (outer.trips, inner.parent, inner.depth) == (n, outer.id, 2)
    assert inner.entries == n
    assert inner.iterations == pytest.approx(sum(trips) / grid)
    assert (inner.least, inner.most) == (0, n)
    assert found.exact


def test_bounds_may_depend_on_three_axes() -> None:
    """All programs of a small grid of three axes are evaluated."""
    found = work(kernels.three_axes, grid=(4, 3, 2), y_ptr=pointer(), n=5, BLOCK=64)
    trips = [x + 2 * y + 3 * z for z in range(2) for y in range(3) for x in range(4)]
    assert found.evaluated == 24
    assert found.loops[0].trips == pytest.approx(sum(trips) / 24)
    assert found.loops[0].most == max(trips)


def test_large_grids_are_sampled_fairly() -> None:
    """A sample's mean is near the true one, and corners give the extremes."""
    found = work(kernels.three_axes, grid=(300, 30, 40), y_ptr=pointer(), n=5, BLOCK=64)
    assert not found.exact
    assert found.evaluated == 256
    assert found.loops[0].trips == pytest.approx(299 / 2 + 29 + 39 * 1.5, rel=0.02)
    assert (found.loops[0].least, found.loops[0].most) == (0, 299 + 58 + 117)


def test_while_loop_with_scalar_state_is_followed() -> None:
    """Halving until one is left takes the logarithm."""
    found = work(kernels.while_scalar, grid=(1,), y_ptr=pointer(), n=1000, BLOCK=64)
    (loop,) = found.loops
    assert loop.trips == 9
    assert moved(found, "write") == (9 + 1) * 64 * 4


def test_while_loop_in_equal_steps_is_not_walked_to_its_end() -> None:
    """Ten million steps are counted exactly, and said to be extrapolated."""
    n, grid = 10_000_000, 40
    found = work(kernels.striding_while, grid=(grid,), y_ptr=pointer(), n=n, BLOCK=16)
    trips = [ceil((n - pid) / 7) for pid in range(grid)]
    assert found.loops[0].trips == pytest.approx(sum(trips) / grid)
    assert (found.loops[0].least, found.loops[0].most) == (min(trips), max(trips))
    assert not found.exact


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


@pytest.mark.parametrize(("block", "trips"), [(64, 16), (128, 8), (4096, 1)])
def test_bound_from_memory_is_said_and_assumed(block: int, trips: int) -> None:
    """Nobody knows how long a jagged row is; the wider the step, the fewer trips it takes."""
    pointers = {"x_ptr": pointer(), "starts_ptr": pointer(I32), "y_ptr": pointer()}
    text = lower(kernels.jagged, **pointers, BLOCK=block)
    kernel = Kernel(text)
    found = kernel.work(call((8,)))
    (loop,) = found.loops
    (doubt,) = found.assumptions
    assert loop.trips == trips
    assert doubt.reason == "loaded from memory"
    assert (doubt.loop, doubt.line) == (loop.id, loop.line)
    assert doubt.assumed == (f"{trips} trips" if trips > 1 else "1 trip")
    assert not found.exact
    assert found.evaluated == 1  # where the bound is loaded from does not matter


@pytest.mark.parametrize("block", [64, 256])
def test_what_is_read_once_tells_the_trips(block: int) -> None:
    """Jagged rows that lie in 8 x 4096 numbers have 4096 each on average."""
    pointers = {"x_ptr": pointer(), "starts_ptr": pointer(I32), "y_ptr": pointer()}
    text = lower(kernels.jagged, **pointers, BLOCK=block)
    sizes = {"x_ptr": 8 * 4096 * 4, "starts_ptr": 36, "y_ptr": 32}
    launch = replace(call((8,)), tensor_bytes=sizes)
    found = Kernel(text).work(launch)
    assert found.loops[0].trips == 4096 / block
    assert moved(found, "read") == pytest.approx(8 * 4096 * 4 + 2 * 8 * 4)
    assert found.assumptions[0].assumed == f"{4096 // block} trips"


def test_what_is_written_once_tells_the_trips() -> None:
    """A loop without a known end that stores 32 of 1024 numbers a trip takes 4 in each of 8."""
    pointers = {"y_ptr": pointer(), "n_ptr": pointer(I32)}
    text = lower(kernels.jagged_stores, **pointers, BLOCK=32)
    launch = replace(call((8,)), tensor_bytes={"y_ptr": 1024 * 4})
    found = Kernel(text).work(launch)
    outer, inner = found.loops
    assert (outer.trips, outer.least, outer.most) == (4, 4, 4)
    assert (inner.trips, inner.entries) == (3, 4)
    assert moved(found, "write") == 1024 * 4


def test_wait_for_memory_is_said_and_assumed() -> None:
    """A spin lock's trips are time, not work."""
    found = work(kernels.spin_lock, grid=(1,), lock_ptr=pointer(I32), x_ptr=pointer(), BLOCK=64)
    assert found.assumptions[0].reason == "the result of an atomic operation"
    assert found.loops[0].trips == 1  # as if the lock were free


def test_branch_on_memory_takes_the_side_that_does_more() -> None:
    """An expert's product runs; its early return and its zeros do not."""
    pointers = {"a_ptr": pointer(F16), "b_ptr": pointer(F16), "c_ptr": pointer(F16)}
    tables = dict.fromkeys(("token_ptr", "expert_ptr", "count_ptr"), pointer(I32))
    sizes = {"K": 512, **TILES}
    found = work(kernels.expert_gemm, grid=(10,), **pointers, **tables, **sizes)
    assert [doubt.operation for doubt in found.assumptions] == ["cf.cond_br"] * 2
    assert found.loops[0].iterations == 16
    assert moved(found, "write") == 10 * 64 * 64 * 2


def test_early_return_ends_a_program() -> None:
    """Programs beyond the end do nothing, one does something else."""
    found = work(
        kernels.early_return, grid=(8,), x_ptr=pointer(), y_ptr=pointer(), n=500, BLOCK=100 + 28
    )
    (loop,) = found.loops
    assert (loop.trips, loop.entries) == (3, 3 / 8)  # programs 0, 2 and 3
    assert moved(found, "write") == 3 * 3 * 128 * 4 + 4
    assert found.exact


def test_branches_choose_bounds() -> None:
    """Half of the programs do twice the work."""
    found = work(kernels.branchy, grid=(8,), x_ptr=pointer(), y_ptr=pointer(), n=5, BLOCK=64)
    assert (found.loops[0].trips, found.loops[0].least, found.loops[0].most) == (7.5, 5, 10)


def test_called_functions_return_bounds() -> None:
    """Several results of a call, each where it belongs."""
    found = work(
        kernels.tuple_helper,
        grid=(8,),
        x_ptr=pointer(),
        y_ptr=pointer(),
        n=10,
        SWAP=False,
        BLOCK=64,
    )
    trips = [max(0, min(4 * pid + 4, 10) - 4 * pid) for pid in range(8)]
    assert found.loops[0].trips == pytest.approx(sum(trips) / 8)


def test_each_call_has_a_loop_of_its_own() -> None:
    """Twice the same function is two loops, as in the machine code."""
    found = work(kernels.two_calls, grid=(10,), x_ptr=pointer(), y_ptr=pointer(), n=50, BLOCK=64)
    first, second = found.loops
    assert first.line == second.line
    assert (first.trips, second.trips) == (4.5, 45.5)
    assert moved(found, "read") == 10 * 50 * 64 * 4


def test_unrolled_loop_is_gone() -> None:
    """`static_range` leaves no loop, but its loads."""
    found = work(
        kernels.static_loop, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), BLOCK=64, TIMES=5
    )
    assert found.loops == ()
    assert moved(found, "read") == 5 * 64 * 4


def test_loops_backwards_and_with_options() -> None:
    """Counting down counts as many; the source's own options are read."""
    found = work(kernels.backwards, grid=(1,), y_ptr=pointer(), n=9)
    down, up = found.loops
    assert (down.trips, up.trips) == (5, 3)
    assert (up.unroll_factor, up.num_stages) == (2, 4)
    assert (down.unroll_factor, down.num_stages) == (None, None)


def test_scalar_floats_may_decide() -> None:
    """Ceiling, division, roots and conversions give the bound."""
    found = work(kernels.scalar_math, grid=(1,), y_ptr=pointer(), n=20, f=2.5, COUNT=2)
    bound = ceil(20 / 3 + 2.5) + int(20**0.5)
    assert found.loops[0].trips == ceil(bound / 2)


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
