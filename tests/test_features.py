"""Features: the registry, and what is read off real assembly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from asmtune.base.errors import ParseError
from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.predict.features import catalog
from asmtune.predict.features.catalog import FEATURES, schema
from asmtune.predict.features.reader import ProfileReader
from tests.compile import making
from tests.sample_kernels import scale_problem

Compile = Callable[[Problem, Config, str], Artifact]


@pytest.fixture(scope="module")
def compiled(settings: Settings) -> Compile:
    """Compile a config for a machine's name."""

    def make(problem: Problem, config: Config, name: str) -> Artifact:
        return making.compiled(Lowering(problem, load_target(name), 30), config, settings)

    return make


def read(machine: Target, artifact: Artifact) -> Mapping[str, float]:
    """Read the features of an artifact alone."""
    return ProfileReader(machine)(artifact).static


def test_registry_is_complete() -> None:
    """Every feature is listed under its own name with unit, group and a sentence."""
    assert all(name == feature.name for name, feature in FEATURES.items())
    assert all(f.unit and f.group and f.meaning.endswith(".") for f in FEATURES.values())
    meanings = [feature.meaning for feature in FEATURES.values()]
    assert len(set(meanings)) == len(meanings)


def test_the_registry_is_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is registered once; the schema changes when a feature or its unit does."""
    with pytest.raises(ValueError, match="'num_warps' is registered twice"):
        catalog.register("num_warps", "1", "launch", "Again.", lambda _: 0.0)
    before = schema()
    assert schema() == before
    monkeypatch.setitem(FEATURES, "num_warps", replace(FEATURES["num_warps"], unit="warps"))
    assert schema() != before


def test_a_kernel_without_a_loop(target: Target, compiled: Compile) -> None:
    """Without a loop the hot part is the whole kernel, and nothing counts as inside loops."""
    found = read(target, compiled(scale_problem(), Config({"BLOCK": 512}), "H200"))
    assert found["loops"] == found["loop_depth"] == 0
    assert found["instructions_hot"] == found["instructions"]
    for name in FEATURES:
        if name.endswith("_in_loops"):
            assert found[name] == 0
            assert (
                found[name.replace("_in_loops", "_hot")] == found[name.replace("_in_loops", "_all")]
            )
    # 512 halves over 128 threads.
    assert found["global_load_bytes_hot"] == found["global_store_bytes_hot"] == 8


def test_damage_is_told(target: Target, compiled: Compile) -> None:
    """A damaged cubin or PTX is a ParseError, and in a run a failure of that config alone."""
    artifact = compiled(scale_problem(), Config({"BLOCK": 512}), "H200")
    for broken in (
        replace(artifact, cubin=artifact.cubin[:200]),
        replace(artifact, outputs={**artifact.outputs, "ptx": "nothing"}),
    ):
        with pytest.raises(ParseError):
            read(target, broken)
