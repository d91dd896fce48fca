"""Hand-edited IR in the place of a stage's output: real compiles, held to Triton's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.predict.features.reader import ProfileReader
from tests.compile.making import compiled, sketch_one
from tests.compile.triton_reference import compiled_by_triton
from tests.sample_kernels import row_sum_problem

CONFIG = Config({"BLOCK": 256}, num_warps=4)
STAGES = ("ttir", "ttgir", "llir", "ptx")

# 1 where the kernel begins its sum at 0, in the words of each stage.
EDITS = {
    "ttir": ("dense<0.000000e+00> : tensor<256xf32>", "dense<1.000000e+00> : tensor<256xf32>"),
    "ttgir": ("dense<0.000000e+00>", "dense<1.000000e+00>"),
    "llir": ("[ 0.000000e+00, %5 ]", "[ 1.000000e+00, %5 ]"),
    "ptx": ("0f00000000", "0f3F800000"),
}

Write = Callable[[str, str], Config]


@pytest.fixture
def problem() -> Problem:
    return row_sum_problem()


@pytest.fixture
def lowering(problem: Problem) -> Lowering:
    return Lowering(problem, load_target("H200"), 30)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", jobs=1)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A config whose file of a name has a text."""

    def written(name: str, text: str) -> Config:
        path = tmp_path / name
        path.write_text(text)
        return CONFIG.with_override(str(path))

    return written


def refused(lowering: Lowering, config: Config, settings: Settings) -> Failure:
    """Why a config does not compile; the sketch, which goes as far as LLVM, may say so first."""
    request = lowering.request(config)
    if isinstance(request, Failure):
        return request
    made = compile_one(request, settings)
    assert isinstance(made, Failure)
    return made


@pytest.mark.parametrize("stage", STAGES)
def test_a_file_gives_what_triton_makes_of_it(
    problem: Problem, lowering: Lowering, settings: Settings, write: Write, stage: str
) -> None:
    """Machine code and launch of an edited file of each stage are those of Triton's own flow."""
    text = compiled_by_triton(problem, CONFIG, 90).asm[stage]
    before, after = EDITS[stage]
    assert before in text
    config = write(f"row_sum.{stage}", text.replace(before, after))
    mine, own = compiled(lowering, config, settings), compiled(lowering, CONFIG, settings)
    theirs = compiled_by_triton(problem, config, 90)
    assert mine.cubin == theirs.asm["cubin"]
    assert mine.cubin != own.cubin
    for name in ("name", "shared", "num_warps", "global_scratch_size"):
        assert mine.metadata[name] == getattr(theirs.metadata, name)
    assert ("dense<1.000000e+00>" in mine.outputs["ttgir"]) == (stage in ("ttir", "ttgir"))
    assert ProfileReader(load_target("H200"))(mine)


def test_an_edit_is_never_a_stale_hit(
    problem: Problem, lowering: Lowering, settings: Settings, write: Write
) -> None:
    """The same path with another content is compiled anew; the same content elsewhere is not."""
    text = compiled_by_triton(problem, CONFIG, 90).asm["ptx"]
    first = compiled(lowering, write("one.ptx", text), settings)
    edited = compiled(lowering, write("one.ptx", text.replace(*EDITS["ptx"])), settings)
    again = compiled(lowering, write("two.ptx", text), settings)
    assert first.digest == again.digest != edited.digest
    assert first.cubin == again.cubin != edited.cubin
    assert ArtifactCache.of(settings).get(edited.digest) == edited


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("entry row_sum(", "entry col_sum("), "no entry row_sum.*its entries: col_sum"),
        (("\t.param .u32 row_sum_param_2,\n", ""), "takes 4 parameters of .*the kernel 5"),
        ((".reqntid 128", ".reqntid 256"), "256 threads a program, and launched with 128"),
        (("ret;", "return_to_sender;"), "line [0-9]+: .*return_to_sender"),
    ],
)
def test_ptx_that_does_not_fit_is_refused(
    lowering: Lowering, settings: Settings, write: Write, edit: tuple[str, str], said: str
) -> None:
    """Another entry, other parameters, other threads, and what is no PTX: each in one line."""
    text = compiled(lowering, CONFIG, settings).outputs["ptx"]
    assert edit[0] in text
    failure = refused(lowering, write("row_sum.ptx", text.replace(*edit)), settings)
    first = failure.detail.splitlines()[0]
    assert first.startswith("ir_override=row_sum.ptx: ")
    assert re.search(said, first), first


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bad.ttir", "bad.ttgir", "bad.llir", "bad.ptx", "bad.o", ""])
def test_what_is_no_ir_is_refused(
    lowering: Lowering, settings: Settings, write: Write, name: str
) -> None:
    """A text of no IR, a file of no stage, and a missing one fail with the file's name, once."""
    config = write(name, "no IR") if name else CONFIG.with_override("gone/missing.ptx")
    failure = refused(lowering, config, settings)
    assert (name or "missing.ptx") in failure.detail.splitlines()[0]
    assert isinstance(compiled(lowering, CONFIG, settings), Artifact)  # the child is well


def test_sketches_are_of_the_file(lowering: Lowering, settings: Settings, write: Write) -> None:
    """An edited TTGIR is what its sketch shows, with the digest that its artifact will have."""
    text = compiled(lowering, CONFIG, settings).outputs["ttgir"]
    fresh = Settings(cache_dir=settings.cache_dir / "fresh", jobs=1)
    config = write("row_sum.ttgir", text.replace(*EDITS["ttgir"]))
    for each in (CONFIG, config):
        request = lowering.request(each)
        assert not isinstance(request, Failure)
        sketch = sketch_one(request, fresh)
        assert not isinstance(sketch, Failure)
        assert sketch.digest == request.digest
        assert (EDITS["ttgir"][1] in sketch.ttgir) == (each is config)
