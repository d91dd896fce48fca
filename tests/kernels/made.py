"""Kernels compiled for a target without a GPU, and launches that are noted and not made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import triton

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.alternatives import call_of
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.runtime.autotuner import AsmAutotuner


def artifact_of(
    problem: Problem, config: Config, settings: Settings, target: Target | str
) -> Artifact:
    """Compile a launch for a target."""
    target = load_target(target) if isinstance(target, str) else target
    request = Lowering(problem, target, 60).request(config)
    if "exceeds the source view" in str(request):
        pytest.skip(f"Triton {triton.__version__} lets no view of shared memory exceed its source")
    assert isinstance(request, LowerRequest), request
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact), artifact
    return artifact


def names_of(tuner: AsmAutotuner) -> frozenset[str]:
    """Name the alternatives of a tuner."""
    return frozenset(tuner.options.choices.get("alternatives") or {})


def noted_launches(
    monkeypatch: pytest.MonkeyPatch, *, called: bool = False
) -> list[frozenset[str]]:
    """Note the alternatives of each launch in place of making it; call them if `called`."""
    launches: list[frozenset[str]] = []

    def launcher(tuner: AsmAutotuner, _: Any) -> Callable[..., None]:
        def launch(*_: Any, **arguments: Any) -> None:
            launches.append(names_of(tuner))
            functions = tuner.options.choices.get("alternatives") or {}
            for function in functions.values() if called else ():
                call_of(function, tuner.arg_names, arguments)()

        return launch

    monkeypatch.setattr(AsmAutotuner, "__getitem__", launcher)
    return launches
