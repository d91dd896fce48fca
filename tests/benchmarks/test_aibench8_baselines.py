"""The untuned kernels: each computes what it should, and is launched as AI-Bench8 says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from benchmarks.aibench8.baselines import baseline_of
from benchmarks.aibench8.tasks import TASKS
from tests.interpreter import Interpreter

ROOT = Path(__file__).parent.parent.parent

PROGRAMS = {
    "matmul": (128, 1, 1),
    "dropout": (32768, 1, 1),
    "softmax": (1823, 1, 1),
    "layernorm": (1151, 1, 1),
    "correlation": (11, 112, 5),
    "resize": (1024, 3, 1),
    "rope": (8, 16, 512),
    "warp": (1024, 3, 1),
}


@pytest.mark.slow
def test_right(interpreter: Interpreter) -> None:
    """Every untuned kernel is within its tolerance of float64, over odd sizes and loops."""
    found = interpreter.call("tests.benchmarks.interpreted_baselines:errors")
    assert {what.split()[0] for what in found} == set(TASKS)
    assert {what: error for what, error in found.items() if not error <= 1} == {}


@pytest.mark.parametrize("name", TASKS)
def test_launches(name: str, settings: Settings, target: Target) -> None:
    """The programs are as many as defined, four warps each, and compile for an H200."""
    module = baseline_of(name)
    problem = module.problem(TASKS[name].inputs("meta"))
    assert problem.programs(module.CONFIGS[0]) == PROGRAMS[name]
    for config in module.CONFIGS:
        assert (config.num_warps, config.num_stages, config.maxnreg) == (4, 3, None)
        request: Any = Lowering(problem, target, 60).request(config)
        made = compile_one(request, settings)
        assert isinstance(made, Artifact), made
    ours = TASKS[name].problem("meta").arguments
    sizes = {k: v.numel() for k, v in problem.arguments.items() if k in module.OUTPUTS}
    assert sizes == {k: ours[k].numel() for k in module.OUTPUTS}
