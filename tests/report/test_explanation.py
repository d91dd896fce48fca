"""The explanation of one config, down to the lines of its hottest loop."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from asmtune.asm import hottest_loop
from asmtune.compile import ArtifactCache, Lowering, Request, compile_one
from asmtune.config import Config
from asmtune.features import ProfileReader
from asmtune.features.registry import Reading
from asmtune.funnel import Funnel
from asmtune.problem import Problem
from asmtune.records import Artifact
from asmtune.report.explanation import explanation, loop_text
from asmtune.score import make_scorer
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target
from tests.sample_kernels import product_problem, scale_problem

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}


def shown(problem: Problem, config: Config, target: Target, settings: Settings) -> str:
    """What is said of a config among two others."""
    others = [Config(config.kwargs, num_warps=warps) for warps in (2, 64)]
    space = Space.from_configs([config, *others])
    report = Funnel(target, make_scorer("weights"), settings).prune(problem, space)
    verdict = next(v for v in report.verdicts if v.config == config)
    reading = None
    if verdict.artifact is not None:
        cache = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes)
        artifact = cache.get(verdict.artifact)
        assert isinstance(artifact, Artifact)
        reading = ProfileReader(target).reading(artifact)
    text = io.StringIO()
    Console(file=text, width=160).print(explanation(report, verdict, reading))
    return text.getvalue()


def test_a_product(target: Target, settings: Settings) -> None:
    """Verdict, resources, counts by depth, and the loop with its tensor instruction as PTX."""
    text = shown(product_problem(), Config(TILE, num_warps=4), target, settings)
    lines = text.splitlines()
    assert lines[0].startswith("BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 num_warps=4")
    assert "on H200: kept, rank " in lines[1]
    assert "of 2 by weights" in lines[1]
    for part in ("Resources", "Registers a thread", "Instructions by loop depth", "depth 1"):
        assert part in text
    loop = text[text.index("Hottest loop") :]
    assert "wgmma.mma_async.sync.aligned.m64n64k16" in loop
    assert "$L__BB" in loop
    assert "st.global" not in loop


def test_without_a_loop(target: Target, settings: Settings) -> None:
    """A kernel without a loop says so."""
    text = shown(scale_problem(), Config({"BLOCK": 256}), target, settings)
    assert "It has no loop." in text


def test_a_config_that_cannot_run(target: Target, settings: Settings) -> None:
    """A config that does not compile shows the reason and no numbers."""
    text = shown(scale_problem(), Config({"BLOCK": 256}, num_warps=3), target, settings)
    assert "dropped at compile, not ranked" in text
    assert "num_warps must be a power of 2" in text
    assert "Resources" not in text


@pytest.fixture
def reading(target: Target, settings: Settings) -> Reading:
    """The parsed assembly of a product."""
    request = Lowering(product_problem(), target, 30).request(Config(TILE))
    assert isinstance(request, Request)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    return ProfileReader(target).reading(artifact)


def test_loop_text_is_the_ptx(reading: Reading) -> None:
    """Every line shown is a line of the PTX, once, and all instructions of the loop are there."""
    ptx = reading.artifact.outputs["ptx"]
    loop = hottest_loop(reading.program)
    assert loop is not None
    lines = loop_text(reading.program, ptx, loop.blocks).splitlines()
    whole = [line.replace("\t", "    ").rstrip() for line in ptx.splitlines()]
    for line in lines:
        assert line in whole or f"{line} " in " ".join(whole) or line.endswith(":")
    wanted = sum(len(reading.program.body(block)) for block in loop.blocks)
    assert sum(not line.endswith(":") for line in lines) >= wanted / 2
