"""Loading: a launch of Triton's own kernel handle, made without compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asmtune.compile import ArtifactCache, Lowering, Request, compile_one
from asmtune.compile import load as loading
from asmtune.config import Config
from asmtune.records import Artifact, Failure
from asmtune.settings import Settings
from asmtune.target import Target
from tests.sample_kernels import scale_problem


def compiled(lowering: Lowering, config: Config, settings: Settings) -> Artifact:
    """The artifact of a config, which is to compile."""
    request = lowering.request(config)
    assert isinstance(request, Request)
    made = compile_one(request, settings)
    assert isinstance(made, Artifact)
    return made


def test_handle_has_the_artifacts_code(target: Target, settings: Settings) -> None:
    """Triton's handle carries the artifact's code, name and launch figures."""
    lowering, config = Lowering(scale_problem(), target, 30), Config({"BLOCK": 256}, num_warps=8)
    artifact = compiled(lowering, config, settings)
    specialised = lowering.specialise(config)
    assert not isinstance(specialised, Failure)
    kernel = loading._compiled_kernel(specialised.source, artifact, lowering.machine)
    assert kernel.asm["cubin"] == artifact.cubin
    assert kernel.asm["ptx"] == artifact.outputs["ptx"]
    assert kernel.name == artifact.entry == "scale"
    assert (kernel.metadata.num_warps, kernel.metadata.shared) == (8, artifact.shared_bytes)
    assert kernel.metadata.target.arch == 90


def test_launch_passes_all_arguments(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch has the problem's grid and its parameters in order; `prepare` runs the hook."""
    launches: list[Any] = []

    class Recorder:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *arguments: launches.append((grid, arguments))

    hooked: list[dict[str, Any]] = []
    problem, config = scale_problem(), Config({"BLOCK": 256}, pre_hook=hooked.append)
    lowering = Lowering(problem, target, 30)
    artifact = compiled(lowering, config, settings)
    monkeypatch.setattr(loading, "_compiled_kernel", lambda *_: Recorder())
    launch = loading.load(lowering, config, artifact)
    assert not isinstance(launch, Failure)
    hooked.clear()
    launch.run()
    given = problem.arguments
    assert launches == [((4, 1, 1), (given["x_ptr"], given["y_ptr"], 4096, 256))]
    assert hooked == []
    launch.prepare()
    assert hooked[0]["BLOCK"] == 256


def test_a_config_that_does_not_fit(target: Target, settings: Settings) -> None:
    """Options that Triton refuses give a failure, not an exception."""
    lowering = Lowering(scale_problem(), target, 30)
    artifact = compiled(lowering, Config({"BLOCK": 256}), settings)
    outcome = loading.load(lowering, Config({"BLOCK": 256}, num_warps=3), artifact)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "options"


def test_from_the_cache(target: Target, settings: Settings, tmp_path: Path) -> None:
    """What is cached gives its artifact and a launch; what is lost or failed gives a failure."""
    lowering, config = Lowering(scale_problem(), target, 30), Config({"BLOCK": 256})
    artifact = compiled(lowering, config, settings)
    cache = ArtifactCache(tmp_path / "artifacts", 1 << 20)
    lost = Failure("launch", "lost", "its artifact is no longer in the cache")
    assert loading.load_cached(lowering, config, cache, None) == lost
    assert loading.load_cached(lowering, config, cache, artifact.digest) == lost
    cache.put(artifact.digest, artifact)
    found = loading.load_cached(lowering, config, cache, artifact.digest)
    assert not isinstance(found, Failure)
    assert found[0] == artifact
    assert isinstance(found[1], loading.Launch)
    misfit = Config({"BLOCK": 256}, num_warps=3)
    refused = loading.load_cached(lowering, misfit, cache, artifact.digest)
    assert isinstance(refused, Failure)
    assert refused.kind == "options"
    remembered = Failure("cubin", "ptxas", "no")
    cache.put("remembered", remembered)
    assert loading.load_cached(lowering, config, cache, "remembered") == remembered
