"""Loops that carry state from step to step, and walks over tiles, which start each anew."""

from __future__ import annotations

from typing import Any

import pytest
import workload_kernels as kernels
from workload_lowering import F16, I32, call, lower, pointer, work

from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.work import CarriedState

TILES = {"BM": 64, "BN": 64, "BK": 32}
MATRICES = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))


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


def test_state_on_a_large_grid_is_no_reason() -> None:
    """With programs for many machines there is nothing to keep; the caller names the machine."""
    values = dict.fromkeys(("x_ptr", "y_ptr", "h_ptr"), pointer()) | {"steps": 500, "D": 32}
    text = lower(kernels.recurrence, **values)
    assert analyse(text, call((4096,), **values)).state is None
    found = analyse(text, LaunchArguments(values, (4096, 1, 1), processors=2048))
    assert found.state == CarriedState(
        "a sequential loop carries state that each step stores, on a small grid "
        f"(line {found.loops[0].line})",
        ("tensor<32x32xf32>",),
    )
    assert analyse(text, LaunchArguments(values, (4096, 1, 1), processors=2047)).state is None
