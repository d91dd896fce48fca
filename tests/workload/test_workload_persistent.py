"""Persistent kernels are told from those that only loop."""

from __future__ import annotations

from typing import Any

import pytest
import workload_kernels as kernels
from workload_lowering import F16, I32, call, lower, pointer, work

from asmtune.ir.ttir.analysis import LaunchArguments, analyse

TILES = {"BM": 64, "BN": 64, "BK": 32}
MATRICES = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))


@pytest.mark.parametrize(
    ("kernel", "grid", "values", "reason"),
    [
        (kernels.persistent_gemm, (132,), {**MATRICES, "M": 4096, "N": 4096, "K": 512, **TILES},
         "steps of the grid"),
        (kernels.persistent_constexpr, (132,),
         {"x_ptr": pointer(), "y_ptr": pointer(), "tiles": 999, "SMS": 132, "BLOCK": 64},
         "steps as wide as the grid"),
        (kernels.recurrence, (64,),
         {"x_ptr": pointer(), "y_ptr": pointer(), "h_ptr": pointer(), "steps": 500, "D": 32},
         "carries state"),
        (kernels.tiles_by_counter, (132,),
         {"x_ptr": pointer(), "counter_ptr": pointer(I32), "tiles": 999, "BLOCK": 64},
         "counter in memory"),
    ],
)  # fmt: skip
def test_persistent_kernels_are_found(
    kernel: Any, grid: tuple[int], values: dict[str, Any], reason: str
) -> None:
    """Tiles walked from a small grid, by steps or a counter; state carried over steps."""
    found = work(kernel, grid=grid, **values)
    assert found.persistent
    assert reason in found.persistent_reason
    assert f"(line {found.loops[0].line})" in found.persistent_reason


@pytest.mark.parametrize(
    ("kernel", "grid", "values"),
    [
        (kernels.gemm, (16,), {**MATRICES, "M": 256, "N": 256, "K": 8192, **TILES}),
        (kernels.split_k, (4, 4, 4),
         {**MATRICES, "M": 256, "N": 256, "K": 8192, "SPLIT": 4, **TILES}),
        (kernels.attention, (4, 2),
         {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), pointer(F16)), "N": 256,
          "scale": 0.1, "D": 64, "CAUSAL": True, "BM": 64, "BN": 32}),
        (kernels.layernorm, (4,),
         {"x_ptr": pointer(), "w_ptr": pointer(), "y_ptr": pointer(), "cols": 9999, "eps": 1e-5,
          "BLOCK": 256}),
        (kernels.triangular, (8,), {"x_ptr": pointer(), "y_ptr": pointer(), "n": 99, "BLOCK": 64}),
        (kernels.striding_while, (40,), {"y_ptr": pointer(), "n": 999, "BLOCK": 64}),
        (kernels.softmax, (9,), {"x_ptr": pointer(), "y_ptr": pointer(), "cols": 9, "BLOCK": 16}),
    ],
)  # fmt: skip
def test_loops_alone_do_not_make_a_kernel_persistent(
    kernel: Any, grid: tuple[int, ...], values: dict[str, Any]
) -> None:
    """Sums over the inner dimension, also on small grids, and overlapping strides."""
    found = work(kernel, grid=grid, **values)
    assert not found.persistent
    assert found.persistent_reason == ""


def test_state_on_a_large_grid_is_no_reason() -> None:
    """With programs for many machines there is nothing to keep; the caller names the machine."""
    values = dict.fromkeys(("x_ptr", "y_ptr", "h_ptr"), pointer()) | {"steps": 500, "D": 32}
    text = lower(kernels.recurrence, **values)
    assert not analyse(text, call((4096,), **values)).persistent
    assert analyse(text, LaunchArguments(values, (4096, 1, 1), processors=4096)).persistent


SCALES = {"x_ptr": pointer(), "y_ptr": pointer(), "BLOCK": 64}


@pytest.mark.parametrize(
    ("kernel", "grid", "values"),
    [
        (kernels.persistent_gemm, (132,), {**MATRICES, "M": 4096, "N": 4096, "K": 512, **TILES}),
        (kernels.flattened_gemm, (132,), {**MATRICES, "M": 4096, "N": 4096, "K": 512, **TILES}),
        (kernels.late_stores, (132,), {**SCALES, "tiles": 999, "width": 8}),
        (kernels.persistent_constexpr, (132,), {**SCALES, "tiles": 999, "SMS": 132}),
        (kernels.locked_sums, (132,), {**SCALES, "lock_ptr": pointer(I32), "tiles": 999}),
        (kernels.layernorm, (4,),
         {**SCALES, "w_ptr": pointer(), "cols": 9999, "eps": 1e-5, "BLOCK": 256}),
    ],
)  # fmt: skip
def test_walks_carry_no_state(kernel: Any, grid: tuple[int], values: dict[str, Any]) -> None:
    """Sums that each tile starts anew, that are stored late, or that lie in memory are no state."""
    assert work(kernel, grid=grid, **values).state is None


@pytest.mark.parametrize(
    ("kernel", "values", "reason", "kinds"),
    [
        (kernels.recurrence, {"h_ptr": pointer(), "steps": 500, "D": 32, "BLOCK": None},
         "carries state that each step stores", ("tensor<32x32xf32>",)),
        (kernels.walked_recurrences, {"sequences": 999, "steps": 50},
         "carries state that each step stores", ("tensor<64xf32>",)),
        (kernels.packed_recurrence, {"first_ptr": pointer(I32), "steps": 50},
         "carries state that each step stores", ("tensor<64xf32>",)),
        (kernels.whole_state, {"x_ptr": pointer(I32), "y_ptr": pointer(I32), "steps": 50},
         "carries state that each step stores", ("tensor<64xi32>",)),
        (kernels.exchanged_state, {"lock_ptr": pointer(I32), "h_ptr": pointer(), "steps": 50},
         "hands state on through memory", ()),
    ],
)  # fmt: skip
def test_recurrences_carry_state(
    kernel: Any, values: dict[str, Any], reason: str, kinds: tuple[str, ...]
) -> None:
    """State that steps store, inside a walk too, over packed sequences, or through memory."""
    given = {name: value for name, value in {**SCALES, **values}.items()
             if value is not None and name in kernel.arg_names}  # fmt: skip
    state = work(kernel, grid=(16,), **given).state
    assert state is not None
    assert reason in state.reason
    assert state.kinds == kinds
