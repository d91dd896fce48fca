"""Tuning within a bound on errors on a real GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton

import asmtune
from asmtune import Config, Problem, Space
from asmtune.measure.accuracy import Bound
from asmtune.tuning.session import AccuracyWarning
from tests.gpu import gpu_kernels


def in_double(values: Mapping[str, Any]) -> Any:
    """The sum in fp64."""
    return values["x_ptr"].double() + values["y_ptr"].double()


@pytest.mark.parametrize("isolate", [False, True])
def test_narrow_sums_break_a_bound(isolate: bool) -> None:
    """Configs that round to e5m2, the default among them, lose with their figure."""
    x, y = torch.randn(2, 1 << 16, device="cuda")
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.empty_like(x), "n": x.numel()}
    grid = lambda values: (triton.cdiv(x.numel(), values["BLOCK"]),)  # noqa: E731
    problem = Problem(gpu_kernels.add_narrow, arguments, grid, {"n": x.numel()})
    default = Config({"NARROW": True, "BLOCK": 256}, num_warps=4)
    space = Space({"NARROW": (False, True), "BLOCK": (256, 512)}, default=default)
    choices: dict[str, Any] = {"check": Bound(p99=1e-3), "reference": in_double}
    with pytest.warns(AccuracyWarning, match="default config's out_ptr breaks the bound"):
        record = asmtune.tune(problem, space, isolate=isolate, effort="exhaustive", **choices)
    assert not record.winner.kwargs["NARROW"]
    broken = {config.kwargs["NARROW"]: failure for config, failure in record.failures}
    assert broken[True].kind == "inaccurate"
    assert "p99 0." in broken[True].detail
