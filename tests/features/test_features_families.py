"""Kernels of many kinds are sketched, or compiled for AMD, and give finite features."""

from __future__ import annotations

import importlib
import math
import pkgutil
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import from_python_module
from asmtune.core.records.artifacts import Artifact, Sketch
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.reader import launch_features
from asmtune.predict.features.sketch.reader import SketchReader, can_sketch
from tests.compile.making import sketch_one

FOLDER = Path(__file__).parents[2] / "benchmarks" / "corpus" / "families"
FAMILIES = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if m.name[0] != "_")


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", ["H200", "B200", "MI300X", "MI355X"])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, machine: str, settings: Settings) -> None:
    """The default config of every kernel module that ships gives finite features."""
    module = from_python_module(importlib.import_module(f"benchmarks.corpus.families.{family}"))
    target = load_target(machine)
    problem = module.problem(module.shapes[0], module.dtypes[0], "meta")
    config = next(iter(module.space().configs(**problem.shape)))
    request = Lowering(problem, target, 60).request(config)
    if not isinstance(request, LowerRequest):
        pytest.skip(f"this Triton's front end refuses it: {request}")
    if can_sketch(target):
        sketch = sketch_one(request, settings)
        assert isinstance(sketch, Sketch), sketch
        profile = SketchReader(target)(sketch)
    else:
        artifact = compile_one(request, settings)
        assert isinstance(artifact, Artifact), artifact
        profile = reader_for(target)(artifact)
        assert profile.static["unknown_all"] == 0
    call = LaunchArguments(problem.bind(config), problem.programs(config))
    features = launch_features(profile, analyse(request.ttir, call), target)
    assert all(math.isfinite(value) for value in features.values())
    assert features["issue_cycles"] > 0
