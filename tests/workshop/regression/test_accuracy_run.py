"""Accuracy runs of functions: variants and references."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import asmtune
from asmtune.base.errors import MeasureError
from asmtune.workshop.regression.accuracy_run import AccuracyRun
from tests.interpreter import Interpreter

SCALES = Path(__file__).parents[3] / "examples" / "fp8_scales.py"
SMALL = {"rows": 16, "cols": 256, "outliers": 20}

FUNCTIONS = """
import torch

SHAPES = ({"n": 64},)
DTYPES = ("fp32", "fp16")

def inputs(shape, dtype, device):
    x = torch.randn(shape["n"], device=device)
    return {"x": x.to(getattr(torch, {"fp32": "float32", "fp16": "float16"}[dtype]))}

def twice(x, factor=2.0):
    return x * factor

def wrong(x):
    return x * 2 + 0.5

def both(x):
    return x + 1, x - 1

def named(x):
    return {"sum": x + 1, "difference": x - 1}

def turned(x):
    return {"difference": x - 1, "sum": x + 1}
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    """A file of plain functions."""
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return str(path)


def errors(run: AccuracyRun, metric: str) -> dict[str, float]:
    """A metric by variant."""
    return {row.name: getattr(row.stats, metric) for row in run.rows}


def test_variants_stand_side_by_side() -> None:
    """Finer scales lose less of a tensor with outlier channels, by keywords and by functions."""
    run = asmtune.accuracy(
        f"{SCALES}:per_tensor",
        shape=SMALL,
        variants={
            "channel": "per_channel",
            "group": "per_group(group=16)",
            "bf16": "dtype=bf16",
            "far": f"{SCALES}:per_group",
        },
    )
    shares = errors(run, "rms_share")
    assert list(shares) == ["per_tensor", "channel", "group", "bf16", "far"]
    assert shares["group"] < shares["far"] < shares["per_tensor"] < 0.05
    assert {row.name: row.dtype for row in run.rows}["bf16"] == "bf16"


def test_references(functions: str) -> None:
    """A reference is the function in wider numbers, a variant, or another file's function."""
    wrong = {"wrong": "wrong"}
    own = asmtune.accuracy(f"{functions}:twice", variants=wrong, dtype="fp16")
    assert errors(own, "max_abs") == {"twice": 0.0, "wrong": pytest.approx(0.0, abs=1e-2)}
    by_variant = asmtune.accuracy(f"{functions}:twice", variants=wrong, against="twice")
    assert errors(by_variant, "max_abs") == {"twice": 0.0, "wrong": pytest.approx(0.5)}
    half = asmtune.accuracy(f"{functions}:twice", variants={"h": "dtype=fp16"}, against="h")
    wide, narrow = (errors(half, "max_abs")[name] for name in ("twice", "h"))
    assert narrow == 0.0 < wide, "each variant has inputs of its own dtype"
    by_function = asmtune.accuracy(f"{functions}:twice", against=f"{functions}:wrong")
    assert errors(by_function, "max_abs") == {"twice": pytest.approx(0.5)}
    keyword = asmtune.accuracy(f"{functions}:twice", variants={"four times": {"factor": 4.0}})
    assert max(errors(keyword, "max_abs").values()) == 0.0, "the reference takes the keyword too"
    assert [row.name for row in asmtune.accuracy(f"{functions}:both").rows] == ["both 0", "both 1"]


def test_the_users_random_numbers_go_on(functions: str) -> None:
    """A run draws its inputs by its seed, and leaves PyTorch's generator as it was."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    asmtune.accuracy(f"{functions}:twice")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("against", ["turned", "both"])
def test_outputs_are_paired_by_their_names(functions: str, against: str) -> None:
    """Outputs of two mappings belong together by name, those of a tuple by their order."""
    run = asmtune.accuracy(f"{functions}:named", against=f"{functions}:{against}")
    assert [row.stats.max_abs for row in run.rows] == [0.0, 0.0]


def test_a_kernel_needs_a_gpu_or_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either, one line says how to go on."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(MeasureError, match="TRITON_INTERPRET=1"):
        asmtune.accuracy("softmax")


def interpreted(kernel: str, shape: dict[str, int]) -> dict[str, float]:
    """Statistics of a kernel under Triton's interpreter."""
    run = asmtune.accuracy(kernel, shape=shape, variants={"fp16": "dtype=fp16"})
    assert run.environment.gpu == "CPU, Triton's interpreter"
    return errors(run, "max_rel")


MODULE = """
from asmtune.kernels.softmax import DEFAULT, DTYPES, OUTPUTS, SHAPES, kernel, problem, reference
from asmtune.kernels.softmax import space
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["shipped", "launch"])
def test_kernels_under_the_interpreter(interpreter: Interpreter, tmp_path: Path, form: str) -> None:
    """A shipped kernel, and a module that has a launch alone, are right to their dtypes' digits."""
    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    kernel = "softmax" if form == "shipped" else str(path)
    name = "tests.workshop.regression.test_accuracy_run:interpreted"
    found = interpreter.call(name, kernel, {"rows": 8, "cols": 100})
    assert 0 < found["softmax" if form == "shipped" else "mine"] < 1e-6
    assert 1e-6 < found["fp16"] < 1e-3
