"""PTX and SASS line by line: real compiles for four architectures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.ir.asm.nvptx import Group, OpClass, group_of
from asmtune.report.code import NO_SOURCES, CodeReader, CodeView
from tests.launch_kernels import called
from tests.sample_kernels import (
    masked_square,
    product_problem,
    scale_problem,
    tensor,
)

MACHINES = ("A100", "H200", "B200", "RTX 5090")
PLAIN = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3)
SQUEEZED = Config(
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=4, num_stages=2, maxnreg=96
)

Views = Callable[[Problem, Config, str], tuple[CodeView, CodeView]]


@pytest.fixture(scope="session")
def views(settings: Settings) -> Views:
    """PTX and SASS of a config, compiled for a target by name; the same is made once."""
    made: dict[tuple[str, Config, str], tuple[CodeView, CodeView]] = {}

    def viewed(problem: Problem, config: Config, machine: str) -> tuple[CodeView, CodeView]:
        key = (problem.name, config, machine)
        if key not in made:
            made[key] = both(problem, config, machine, settings)
        return made[key]

    return viewed


def both(
    problem: Problem, config: Config, machine: str, settings: Settings
) -> tuple[CodeView, CodeView]:
    """PTX and SASS of a config."""
    target = load_target(machine)
    request = Lowering(problem, target, 60).request(config)
    assert isinstance(request, LowerRequest), request
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact), artifact
    reader = CodeReader(problem, target)
    sass = reader.sass(artifact)
    assert isinstance(sass, CodeView), sass
    return reader.assembly(config, artifact), sass


@pytest.mark.parametrize("machine", MACHINES)
def test_what_reads_and_writes_memory_is_at_its_line(machine: str, views: Views) -> None:
    """In PTX and SASS loads stand at the line of `tl.load`, stores at that of `tl.store`."""
    vector = tensor(torch.float32, 40960)
    problem = Problem(masked_square, {"x_ptr": vector, "y_ptr": vector, "n": 40960}, (1,))
    lines, first = inspect.getsourcelines(masked_square.fn)
    for view in views(problem, Config({"BLOCK": 1024}, num_warps=2), machine):
        touching = [line for line in view.lines if line.kind is OpClass.GLOBAL]
        for call, opcode in (("tl.load(", "ld.global|LDG"), ("tl.store(", "st.global|STG")):
            place = first + next(n for n, line in enumerate(lines) if call in line)
            found = {line.source for line in touching if re.search(opcode, line.text)}
            assert {source[1] for source in found if source} == {place}, view.language
            assert {Path(view.files[source[0]]).name for source in found if source} == {
                "sample_kernels.py"
            }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("language", [0, 1])
def test_lines_and_counts_are_of_the_same_instructions(
    machine: str, language: int, views: Views
) -> None:
    """Hot lines are as many as the hot loop's instructions, all at its depth; labels are found."""
    view = views(product_problem(), PLAIN, machine)[language]
    assert view.hot is not None
    hot = [line for line in view.lines if line.hot and line.kind is not None]
    assert len(hot) == view.hot.instructions
    assert view.hot.depth == 1
    numbers = [line.number for line in view.lines]
    assert numbers == sorted(set(numbers))


def test_text_is_readable(views: Views) -> None:
    """No source positions, debug labels or addresses in the text; the head and the code are."""
    ptx, sass = views(product_problem(), PLAIN, "H200")
    shown = "\n".join(line.text for line in ptx.lines)
    assert shown.startswith(".visible .entry product(")
    assert shown.rstrip().endswith("}")
    for part in (".loc", "$L__tmp", "//", "\t", ".section"):
        assert part not in shown
    machine = "\n".join(line.text for line in sass.lines)
    assert machine.startswith("product:\n")
    for part in ("/*", "//", ".section", ".type"):
        assert part not in machine


def test_without_debug_information(
    views: Views, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view says so, has no sources, and the same hot loops and weights."""
    known = views(product_problem(), PLAIN, "H200")
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    bare = both(product_problem(), PLAIN, "H200", settings)
    for view, sourced in zip(bare, known, strict=True):
        assert view.notes == (NO_SOURCES,)
        assert not any(line.source for line in view.lines)
        assert view.hot == sourced.hot


@pytest.mark.parametrize("machine", ["A100", "H200", "RTX 5090"])
def test_the_hot_loop_of_sass(machine: str, views: Views) -> None:
    """It is the PTX's: all products are in it, and spills, which PTX has none of."""
    for config, spills in ((SQUEEZED, True), (PLAIN, False)):
        ptx, sass = views(product_problem(), config, machine)
        groups = [{group_of(line.kind) for line in view.lines if line.kind} for view in (ptx, sass)]
        assert Group.SPILL not in groups[0]
        hot = {line.kind for line in sass.lines if line.hot and line.kind}
        assert (Group.SPILL in map(group_of, hot)) is spills
        assert OpClass.TENSOR in hot


def test_without_a_loop(views: Views) -> None:
    """Nothing is hot."""
    for view in views(scale_problem(), Config({"BLOCK": 1024}), "H200"):
        assert view.hot is None
        assert not any(line.hot for line in view.lines)


def test_a_damaged_cubin_is_a_failure(settings: Settings) -> None:
    """The view says what nvdisasm refuses, and raises nothing."""
    target, problem, config = load_target("H200"), scale_problem(), Config({"BLOCK": 1024})
    request = Lowering(problem, target, 60).request(config)
    assert isinstance(request, LowerRequest)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    failure = CodeReader(problem, target).sass(replace(artifact, cubin=b"no cubin"))
    assert isinstance(failure, Failure)
    assert failure.stage == "sass"


@pytest.mark.slow(seconds=1)
def test_lines_of_called_functions(views: Views) -> None:
    """What a function that is not inlined does is part of the loop that calls it."""
    ptx, _ = views(called(3, 512), Config({}), "H200")
    assert all(line.hot for line in ptx.lines if line.kind is OpClass.TENSOR)
