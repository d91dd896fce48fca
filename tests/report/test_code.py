"""PTX and SASS line by line: real compiles for four architectures, weights as the features'."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.nvptx import Group, OpClass
from asmtune.predict.features.catalog import LaunchReading
from asmtune.report.code import NO_SOURCES, CodeReader, CodeView
from tests import sample_kernels
from tests.asm.fixture_kernels import nested
from tests.launch_kernels import Launch, called
from tests.sample_kernels import (
    masked_square,
    product_problem,
    row_sum_problem,
    scale_problem,
    tensor,
)

MACHINES = ("A100", "H200", "B200", "RTX 5090")
PLAIN = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3)
SQUEEZED = Config(
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=4, num_stages=2, maxnreg=96
)
SUM = Config({"BLOCK": 1024})

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
    sass = reader.sass(config, artifact)
    assert isinstance(sass, CodeView), sass
    return reader.assembly(config, artifact), sass


def executed(view: CodeView, group: Group) -> float:
    """Executions of a group's instructions."""
    return sum(count.executed for count in view.classes if count.group is group)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("config", [PLAIN, SQUEEZED])
def test_ptx_is_weighed_as_the_features_weigh_it(
    machine: str, config: Config, views: Views, launch: Launch
) -> None:
    """Instructions that issue, times warps, are the feature `program_instructions`."""
    reading: LaunchReading = launch(product_problem(), config, machine)
    ptx, _ = views(product_problem(), config, machine)
    free = (OpClass.MOVE, OpClass.CONSTANT)  # no slots of their own
    issued = sum(count.executed for count in ptx.classes if count.kind not in free)
    assert issued * config.num_warps == pytest.approx(reading.cycles.instructions)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("config", [PLAIN, SQUEEZED])
def test_sass_runs_as_often_as_its_ptx(machine: str, config: Config, views: Views) -> None:
    """Tensor instructions and copies are executed equally often; the same loop is hot."""
    ptx, sass = views(product_problem(), config, machine)
    for kind in (OpClass.TENSOR, OpClass.ASYNC_COPY):
        both_counts = [next(c for c in view.classes if c.kind is kind) for view in (ptx, sass)]
        assert both_counts[0].executed == both_counts[1].executed > 0
        assert both_counts[0].hot == both_counts[1].hot > 0
    assert ptx.hot is not None
    assert sass.hot is not None
    assert ptx.hot.times == sass.hot.times


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


@pytest.mark.parametrize("machine", ["A100", "H200", "RTX 5090"])
def test_spills_show_in_sass_alone(machine: str, views: Views) -> None:
    """Ptxas adds loads and stores of local memory, in the loop too; PTX has none."""
    ptx, sass = views(product_problem(), SQUEEZED, machine)
    assert executed(ptx, Group.SPILL) == 0
    spilled = next(c for c in sass.classes if c.group is Group.SPILL)
    assert spilled.hot > 0
    assert spilled.executed > spilled.hot
    assert not any(
        c.group is Group.SPILL for c in views(product_problem(), PLAIN, machine)[1].classes
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_an_unrolled_loop_runs_less_often(machine: str, views: Views) -> None:
    """Loads of row_sum are executed as often in SASS, whatever ptxas has unrolled."""
    ptx, sass = views(row_sum_problem(), SUM, machine)
    assert ptx.hot is not None
    assert sass.hot is not None
    assert ptx.hot.times == 4
    loads = [
        sum(line.times or 0 for line in view.lines if line.hot and line.group is Group.GLOBAL)
        for view in (ptx, sass)
    ]
    assert loads[0] == loads[1] == 8
    assert sass.hot.times in (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("inner", [8, 11])
def test_the_rest_of_an_unrolled_loop_runs_as_often_as_is_left(
    machine: str, inner: int, views: Views
) -> None:
    """Of two nested loops ptxas unrolls the inner one: main part and rest have all loads of it."""
    pointers = {"x_ptr": tensor(torch.float32), "y_ptr": tensor(torch.float32)}
    arguments = {**pointers, "n": 3, "m": inner}
    problem = Problem(nested, arguments, (1,), {"n": 3, "m": inner}, f"nested {inner}")
    ptx, sass = views(problem, Config({"BLOCK": 128}), machine)
    loads = [
        [line.times or 0.0 for line in view.lines if line.group is Group.GLOBAL and line.depth == 2]
        for view in (ptx, sass)
    ]
    assert [sum(times) for times in loads] == [3 * inner, 3 * inner]
    assert len(set(loads[1])) == 2


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("language", [0, 1])
def test_lines_and_counts_are_of_the_same_instructions(
    machine: str, language: int, views: Views
) -> None:
    """Hot lines are as many as the hot loop's instructions, all at its depth; labels are found."""
    view = views(product_problem(), PLAIN, machine)[language]
    assert view.hot is not None
    hot = [line for line in view.lines if line.hot and line.kind is not None]
    assert len(hot) == view.hot.instructions == sum(count.hot for count in view.classes)
    assert {line.depth for line in hot} == {view.hot.depth} == {1}
    numbers = [line.number for line in view.lines]
    assert numbers == sorted(set(numbers))
    assert all((line.group is None) == (line.kind is None) for line in view.lines)


@pytest.mark.parametrize("language", [0, 1])
def test_sources_are_lines_of_the_kernel(language: int, views: Views) -> None:
    """The stores to global memory come from the kernel's last line, in its own file."""
    view = views(product_problem(), PLAIN, "H200")[language]
    kernel = sample_kernels.product
    last = kernel.starting_line_number + len(kernel.src.rstrip().split("\n"))
    stores = [line.source for line in view.lines if line.group is Group.GLOBAL]
    assert stores
    assert {line for _, line in filter(None, stores)} == {last}
    assert {Path(view.files[file]).name for file, _ in filter(None, stores)} == {
        "sample_kernels.py"
    }
    assert view.notes == ()


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


def test_code_that_no_path_reaches_is_never_executed(views: Views) -> None:
    """What fills the machine code up behind the last exit has no executions."""
    _, sass = views(product_problem(), PLAIN, "H200")
    filler = [line for line in sass.lines if line.text.strip().startswith("NOP")]
    assert filler
    assert {line.times for line in filler} == {0.0}
    assert math.fsum(count.executed for count in sass.classes) == math.fsum(
        line.times or 0.0 for line in sass.lines if line.kind is not None
    )


def test_without_a_loop(views: Views) -> None:
    """Nothing is hot, all runs once."""
    for view in views(scale_problem(), Config({"BLOCK": 1024}), "H200"):
        assert view.hot is None
        assert not any(line.hot for line in view.lines)
        assert {line.times for line in view.lines} <= {0.0, 1.0}


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
        assert view.classes == sourced.classes


def test_a_damaged_cubin_is_a_failure(settings: Settings) -> None:
    """What nvdisasm refuses is told, and nothing is raised."""
    from dataclasses import replace

    from asmtune.core.records.artifacts import Failure

    target = load_target("H200")
    problem = scale_problem()
    config = Config({"BLOCK": 1024})
    request = Lowering(problem, target, 60).request(config)
    assert isinstance(request, LowerRequest)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    failure = CodeReader(problem, target).sass(config, replace(artifact, cubin=b"no cubin"))
    assert isinstance(failure, Failure)
    assert failure.stage == "sass"


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", ["A100", "H200"])
def test_lines_of_called_functions(machine: str, views: Views) -> None:
    """What a function that is not inlined does has the times of the loops that call it."""
    ptx, _ = views(called(3, 512), Config({}), machine)
    products = [line for line in ptx.lines if line.kind is OpClass.TENSOR]
    assert products
    assert {(line.times, line.depth, line.hot) for line in products} == {(24.0, 2, True)}
