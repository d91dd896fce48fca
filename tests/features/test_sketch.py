"""Profiles before compiling: what TTGIR tells, against the assembly and against known totals."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from asmtune.base.errors import ParseError
from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import from_python_module
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Sketch
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.work import Work
from asmtune.kernels import _hopper_gemm
from asmtune.predict.features.catalog import LaunchReading
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.features.sketch.reader import SketchReader
from tests.compile.making import accepted, sketch_one
from tests.launch_kernels import looped
from tests.sample_kernels import product_problem, row_sum_problem

MACHINES = ("A100", "H200", "B200", "RTX5090")
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}

Both = Callable[[Problem, Config, str], tuple[Profile, Profile, Work]]
"""Profiles before and after compiling, and the work of the launch."""


@pytest.fixture(scope="session")
def both(settings: Settings) -> Both:
    """Compile a config, and read its sketch and its artifact."""

    def read(problem: Problem, config: Config, name: str) -> tuple[Profile, Profile, Work]:
        target = load_target(name)
        request = accepted(Lowering(problem, target, 60), config)
        artifact, sketch = compile_one(request, settings), sketch_one(request, settings)
        assert isinstance(artifact, Artifact), artifact
        assert isinstance(sketch, Sketch), sketch
        call = LaunchArguments(problem.bind(config), problem.programs(config))
        work = analyse(request.ttir, call)
        return SketchReader(target)(sketch), ProfileReader(target)(artifact), work

    return read


def total(profile: Profile, kind: OpClass) -> int:
    """Instructions of a class over all segments."""
    return sum(segment.classes.get(kind, 0) for segment in profile.segments)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("m", "n", "k", "warps", "stages"),
    [
        *((64, 64, 32, 4, stages) for stages in (1, 2, 4)),
        (128, 64, 64, 8, 2),
        (64, 128, 32, 4, 4),
        (32, 64, 64, 2, 1),
    ],
)
def test_flops_are_the_kernels(
    m: int, n: int, k: int, warps: int, stages: int, machine: str, both: Both
) -> None:
    """Products of a launch add up to 2 M N K, by the tensor instruction that the assembly has."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    config = Config(tile, num_warps=warps, num_stages=stages)
    sketched, built, work = both(looped(256, 256, 512, (m, n)), config, machine)
    reading = LaunchReading.of(sketched, work, load_target(machine))
    assert reading.cycles.flops * work.programs == 2 * 256 * 256 * 512
    kinds = {kind for segment in built.segments for kind in segment.flops}
    assert {kind for segment in sketched.segments for kind in segment.flops} == kinds


@pytest.mark.parametrize("cap", [None, 64, 168])
@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_exact(cap: int | None, machine: str, both: Both) -> None:
    """Shared memory, options and the programs that it allows are the artifact's."""
    config = Config(TILE, num_stages=3, num_warps=8, maxnreg=cap)
    sketched, built, _ = both(product_problem(), config, machine)
    for name in ("shared_bytes", "programs_per_sm_by_shared", "maxnreg", "num_warps", "num_stages"):
        assert sketched.static[name] == built.static[name], name
    most = min(cap or 255, 255)
    assert 16 <= sketched.static["regs_per_thread"] <= most


@pytest.mark.parametrize(
    ("family", "options", "warps"),
    [
        ("silu_and_mul", {"BLOCK": 8192, "STEPS": 2}, 8),
        ("quantise_blocks", {"ROWS": 4, "GROUPS": 4}, 1),
        ("matmul_fma", {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16}, 4),
        ("stencil", {"BLOCK_M": 16, "BLOCK_N": 128}, 2),
        ("transpose", {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 1}, 4),
    ],
)
def test_registers(family: str, options: dict[str, int], warps: int, both: Both) -> None:
    """Registers are within two fifths of ptxas's: loads meet, and results are used up at once."""
    module = from_python_module(importlib.import_module(f"benchmarks.corpus.families.{family}"))
    problem = module.problem(module.shapes[0], module.dtypes[0], "meta")
    sketched, built, _ = both(problem, Config(options, num_warps=warps, num_stages=3), "H200")
    registers = built.static["regs_per_thread"]
    assert sketched.static["regs_per_thread"] == pytest.approx(registers, rel=0.4)


def sketch_of(problem: Problem, config: Config, settings: Settings, name: str) -> Sketch:
    """A config's sketch."""
    sketch = sketch_one(accepted(Lowering(problem, load_target(name), 60), config), settings)
    assert isinstance(sketch, Sketch), sketch
    return sketch


@pytest.mark.slow
def test_partitions_have_the_registers_that_they_ask_for(settings: Settings) -> None:
    """A tile of 192 sums a thread fits, though a launch has 168 registers for each thread."""
    problem = _hopper_gemm.problem({"batch": 1, "M": 256, "N": 384, "K": 512}, "fp16", "meta")
    tile = {"BLOCK_M": 256, "BLOCK_N": 192}.items()
    config = next(c for c in _hopper_gemm.space().listed if tile <= c.kwargs.items())
    sketch = sketch_of(problem, config, settings, "H200")
    reader = SketchReader(load_target("H200"))
    static = reader(sketch).static
    assert static["spill_words"] == 0
    assert static["regs_per_thread"] <= config.maxnreg == 168
    text = sketch.ttgir.replace("requestedRegisters = array<i32: 240,", "ours = array<i32: 240,")
    assert reader(Sketch("", "sm_90", text, sketch.metadata)).static["spill_words"] > 0


def test_what_is_not_known_is_counted(settings: Settings) -> None:
    """An operation or a layout without a name here costs the stated default."""
    sketch = sketch_of(row_sum_problem(), Config({"BLOCK": 512}), settings, "H200")
    reader = SketchReader(load_target("H200"))
    known = reader(sketch)
    for old, new in (("arith.addf", "arith.unheard"), ("#ttg.blocked<", "#ttg.unheard<")):
        text = sketch.ttgir.replace(old, new)
        assert text != sketch.ttgir
        strange = reader(Sketch(sketch.digest, sketch.arch, text, sketch.metadata))
        assert set(strange.static) == set(known.static)
        assert strange.static["instructions"] > 0
    text = sketch.ttgir.replace("arith.addf", "arith.unheard")
    strange = reader(Sketch(sketch.digest, sketch.arch, text, sketch.metadata))
    assert total(strange, OpClass.INTEGER) > total(known, OpClass.INTEGER)


def test_damaged_text_is_a_parse_error(settings: Settings) -> None:
    """TTGIR that ends too early is refused by a line that says where."""
    sketch = sketch_of(row_sum_problem(), Config({"BLOCK": 512}), settings, "H200")
    half = sketch.ttgir[: sketch.ttgir.index("scf.for") + 200]
    with pytest.raises(ParseError):
        SketchReader(load_target("H200"))(Sketch("", "sm_90", half, sketch.metadata))
