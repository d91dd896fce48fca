"""Loops and branches that index tensors steer: trips against a plain count of the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.core.index_values import IndexValues, values_of
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.scalars import compare_integers, integer
from asmtune.ir.ttir.work import SteeringArgument, Work
from tests.workload import workload_kernels as kernels
from tests.workload.workload_lowering import (
    F16,
    I32,
    I64,
    after_passes,
    call,
    lower,
    moved,
    pointer,
)

BLOCK = 64


@triton.jit
def flag_wait(flag_ptr, x_ptr, BLOCK: tl.constexpr):
    """Wait until another program has set a flag."""
    pid = tl.program_id(0)
    flag = tl.load(flag_ptr + pid, volatile=True)
    while flag == 0:
        flag = tl.load(flag_ptr + pid, volatile=True)
    tl.store(x_ptr + pid * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


def evaluated(text: str, grid: int, tensors: Mapping[str, Any], **values: Any) -> Work:
    """Give the work of a launch whose index tensors hold these numbers."""

    def read(name: str) -> IndexValues | str:
        return values_of(tensors[name], "the test") if name in tensors else "not given"

    return Kernel(text).work(replace(call((grid,), **values), read_table=read))


@cache
def jagged_text(dtype: torch.dtype = I32) -> str:
    """TTIR of the jagged sum."""
    pointers = {"x_ptr": pointer(), "starts_ptr": pointer(dtype), "y_ptr": pointer()}
    return after_passes(lower(kernels.jagged, **pointers, BLOCK=BLOCK))


def offsets(lengths: list[int] | torch.Tensor, dtype: torch.dtype = I32) -> torch.Tensor:
    """Offsets of segments of these lengths."""
    return torch.nn.functional.pad(torch.as_tensor(lengths).cumsum(0), (1, 0)).to(dtype)


@pytest.mark.slow(seconds=2)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_trips_of_ragged_segments_are_those_of_a_plain_count(lengths: list[int]) -> None:
    """Each program takes the trips of its own segment, none where it is empty."""
    trips = [-(-length // BLOCK) for length in lengths]
    found = evaluated(jagged_text(), len(lengths), {"starts_ptr": offsets(lengths)})
    (loop,) = found.loops
    assert loop.trips == pytest.approx(sum(trips) / len(trips))
    assert (loop.least, loop.most) == (min(trips), max(trips))
    assert found.assumptions == ()
    assert found.exact
    assert found.steering == (SteeringArgument("starts_ptr", "the test"),)
    assert moved(found, "read") == pytest.approx(sum(trips) * BLOCK * 4 + len(lengths) * 8)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, I32, I64])
def test_each_width_of_integers_is_read(dtype: torch.dtype) -> None:
    """The elements are those of the kernel's IR, whatever their width."""
    lengths = [60, 0, 67]
    found = evaluated(jagged_text(dtype), 3, {"starts_ptr": offsets(lengths, dtype)})
    assert found.loops[0].trips == pytest.approx((1 + 0 + 2) / 3)


def test_what_lies_outside_the_tensor_is_not_made_up() -> None:
    """A launch of more programs than there are segments has an assumption, and says so."""
    short = torch.tensor([0, 64, 128], dtype=I32).clone()
    found = evaluated(jagged_text(), 9, {"starts_ptr": short})
    assert found.assumptions[0].reason == "loaded from beyond its tensor"


def test_experts_that_are_loaded_once_choose_the_branch() -> None:
    """Programs past the count return, those of expert -1 write zeros, the others multiply."""
    pointers = {"a_ptr": pointer(F16), "b_ptr": pointer(F16), "c_ptr": pointer(F16)}
    tables = dict.fromkeys(("token_ptr", "expert_ptr", "count_ptr"), pointer(I32))
    tiles = {"K": 512, "BM": 64, "BN": 64, "BK": 32}
    text = lower(kernels.expert_gemm, **pointers, **tables, **tiles)
    experts = torch.tensor([0, 3, -1, 3, 7, -1, 2, 2, 9, 9], dtype=I32)
    known = {"expert_ptr": experts, "count_ptr": torch.tensor([450], dtype=I32)}
    found = evaluated(text, 10, known, **tiles)
    there = [pid < -(-450 // 64) for pid in range(10)]
    products = sum(on and int(expert) != -1 for on, expert in zip(there, experts, strict=True))
    assert found.loops[0].entries == pytest.approx(products / 10)
    assert moved(found, "write") == pytest.approx(sum(there) * 64 * 64 * 2)
    assert found.assumptions == ()
    assert {one.name for one in found.steering} == set(known)  # tokens are addresses alone


@pytest.mark.parametrize("flag", [0, 1])
def test_a_wait_for_a_flag_counts_once(flag: int) -> None:
    """How often a flag is tested is time, not work, whatever it holds now."""
    text = lower(flag_wait, flag_ptr=pointer(I32), x_ptr=pointer(), BLOCK=BLOCK)
    found = evaluated(text, 4, {"flag_ptr": torch.full((4,), flag, dtype=I32)})
    assert found.loops[0].trips == 1
    assert moved(found, "read") == 4 * 4 * 2  # the load before the loop, and one in it
    assert [one.assumed for one in found.assumptions] == ["1 trip"]


@pytest.mark.parametrize("sizes", [{}, {"lock_ptr": 1 << 20, "x_ptr": 256}])
def test_a_lock_is_taken_at_the_first_try(sizes: dict[str, int]) -> None:
    """The atomic of a spin lock runs once, and does not follow the size of any tensor."""
    text = lower(kernels.spin_lock, lock_ptr=pointer(I32), x_ptr=pointer(), BLOCK=BLOCK)
    found = Kernel(text).work(replace(call((10,)), tensor_bytes=sizes))
    assert found.loops[0].trips == 1
    assert moved(found, "atomic") == 10 * (4 + 4)  # taken and given back


def test_an_unknown_index_tensor_is_named_with_its_assumption() -> None:
    """Without numbers the counts are those of today, and the argument is named in one line."""
    found = evaluated(jagged_text(), 8, {})
    assert found.loops[0].trips == 16
    assert [str(one) for one in found.steering] == [
        "loops and branches that starts_ptr steers are assumed: not given"
    ]


def test_nothing_is_copied_under_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy to the host would end the capture of a CUDA graph."""

    class OnGpu(torch.Tensor):
        is_cuda = True

        def detach(self) -> torch.Tensor:
            raise AssertionError("copied under capture")

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr("asmtune.core.index_values.is_plain", lambda _: True)
    tensor = torch.zeros(4, dtype=I32).as_subclass(OnGpu)
    assert values_of(tensor, "") == "a CUDA graph is being captured"


TILED = """module {{
tt.func public @k(%t: !tt.ptr<i32> loc("t"(#loc)), %y: !tt.ptr<f32> loc("y"(#loc))) {{
%r = tt.make_range {{end = 8 : i32, start = 0 : i32}} : tensor<8xi32>
%p = tt.splat %t : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
%q = tt.addptr %p, %r : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
%v = tt.load %q : tensor<8x!tt.ptr<i32>>
%k = arith.constant dense<{by}> : tensor<8xi32>
{operation}
%m = arith.constant dense<255> : tensor<8xi32>
%x = arith.andi %w, %m : tensor<8xi32>
%s = "tt.reduce"(%x) <{{axis = 0 : i32}}> ({{
^bb0(%a: i32, %b: i32):
%c = arith.addi %a, %b : i32
tt.reduce.return %c : i32
}}) : (tensor<8xi32>) -> i32
%zero = arith.constant 0 : i32
%one = arith.constant 1 : i32
scf.for %i = %zero to %s step %one : i32 {{
}}
tt.return
}}
}}
#loc = loc("k.py":1:0)
"""
INTEGERS = st.integers(-(2**31), 2**31 - 1)


TILE_OPERATIONS = (
    *("addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "divsi", "remsi", "divui"),
    *("remui", "minui", "maxui", "shli", "shrsi", "shrui", "cmpi slt,", "cmpi sge,", "cmpi ne,"),
    *("cmpi ult,", "cmpi uge,"),
)


@pytest.mark.parametrize("short", TILE_OPERATIONS)
@settings(max_examples=12, deadline=None)
@given(st.lists(INTEGERS, min_size=8, max_size=8), INTEGERS.filter(bool))
def test_tiles_are_computed_as_scalars_are(short: str, values: list[int], by: int) -> None:
    """Each operation on a loaded tile, brought to a loop's bound by a sum, wraps at 32 bits."""
    name = f"arith.{short}"
    by = by % 32 if ".sh" in name else by
    operation = f"%w = {name} %v, %k : tensor<8xi32>"
    if "cmpi" in name:
        operation = f"%f = {name} %v, %k : tensor<8xi32>\n"
        operation += "%w = arith.extui %f : tensor<8xi1> to tensor<8xi32>"
    compare = partial(compare_integers, name.partition(" ")[2]) if "cmpi" in name else None
    expected = [(compare or partial(integer, name))(value, by, 32) for value in values]
    table = torch.tensor(values, dtype=I32)
    found = evaluated(TILED.format(by=by, operation=operation), 1, {"t": table})
    assert found.assumptions == ()
    assert found.loops[0].trips == sum(one & 255 for one in expected)
