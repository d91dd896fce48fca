"""Sketches are the first part of a compile: the same TTGIR, memory and warps, and no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.compile.sandbox import Sandbox
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure, Sketch
from tests.asm.fixture_kernels import tma_gemm
from tests.compile.making import accepted, sketch_one, sketched_in
from tests.sample_kernels import product_problem, row_sum_problem, scale_problem, tensor

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
MACHINES = ("A100", "H200", "B200", "RTX5090")


def descriptors(specialise: bool) -> Problem:
    """A product through tensor descriptors, its loop's warps specialised or not."""
    pointers = {name: tensor(torch.float16) for name in ("a_ptr", "b_ptr", "c_ptr")}
    return Problem(tma_gemm, {**pointers, "M": 512, "N": 512, "K": 512, "WS": specialise}, (4, 4))


def request_of(problem: Problem, config: Config, name: str) -> LowerRequest:
    """Make the request that a back end gets for a config."""
    return accepted(Lowering(problem, load_target(name), 30), config)


KERNELS: Mapping[str, tuple[Problem, Config]] = {
    "a product": (product_problem(), Config(TILE, num_stages=3)),
    "a capped product": (product_problem(), Config(TILE, num_warps=8, maxnreg=96)),
    "a reduction": (row_sum_problem(), Config({"BLOCK": 512}, num_warps=8)),
    "no shared memory": (scale_problem(), Config({"BLOCK": 512})),
    "descriptors": (descriptors(specialise=False), Config({"BM": 64, "BN": 64, "BK": 64})),
    "specialised warps": (descriptors(specialise=True), Config({"BM": 128, "BN": 128, "BK": 64})),
}


def bare(ttgir: str) -> list[str]:
    """The text's lines without values' names: Triton numbers those of partitions anew each time."""
    return sorted(re.sub(r"%[\w#:]+|loc\(#\w+\)", "", line) for line in ttgir.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_as_the_whole_compile_has_it(
    name: str, machine: str, settings: Settings, shared_sandbox: Sandbox
) -> None:
    """TTGIR, shared memory, tensor memory and warps are those of the artifact."""
    request = request_of(*KERNELS[name], machine)
    artifact = compile_one(request, settings)
    sketch = sketched_in(shared_sandbox, request, 60)
    assert isinstance(artifact, Artifact), artifact
    assert isinstance(sketch, Sketch), sketch
    assert bare(sketch.ttgir) == bare(artifact.outputs["ttgir"])
    assert sketch.shared_bytes == artifact.shared_bytes
    for key, value in sketch.metadata.items():
        assert artifact.metadata[key] == value, key
    assert (sketch.digest, sketch.arch) == (artifact.digest, artifact.arch)


def test_nothing_is_kept(empty_settings: Settings, target: Target) -> None:
    """A sketch leaves no artifact behind that a launch could take for one."""
    request = request_of(scale_problem(), Config({"BLOCK": 256}), "H200")
    assert isinstance(sketch_one(request, empty_settings), Sketch)
    assert not list(Path(empty_settings.artifacts_dir).glob(f"**/{request.digest}*"))
    assert ArtifactCache.of(empty_settings).get(request.digest) is None


def test_an_artifact_stands_for_its_sketch(empty_settings: Settings, settings: Settings) -> None:
    """Where an artifact or a lasting failure lies on disk, no pass runs."""
    request = request_of(scale_problem(), Config({"BLOCK": 512}), "H200")
    built = compile_one(request, settings)
    assert isinstance(built, Artifact)
    marked = replace(built, outputs={**built.outputs, "ttgir": "kept"})
    cache = ArtifactCache(empty_settings.artifacts_dir, 1 << 30)
    cache.put(request.digest, marked)
    found = sketch_one(request, empty_settings)
    assert (found.ttgir, found.shared_bytes) == ("kept", built.shared_bytes)
    failure = Failure("cubin", "ptxas", "too much")
    cache.put(request.digest, failure)
    assert sketch_one(request, empty_settings) == failure
