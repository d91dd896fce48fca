"""Index tensors on the command line: patterns, what a report says of them, bad ones."""

from __future__ import annotations

import inspect
import json

import pytest

from asmtune.core.inputs.patterns import FORMS
from tests.command_lines import HEAD, Commands, page_report
from tests.workload import workload_kernels

JAGGED = HEAD + inspect.getsource(workload_kernels.jagged.fn).replace("starts_ptr", "indptr")
MODULE = (
    JAGGED.replace("def jagged", "def kernel")
    + """
import torch
from asmtune import Problem, Space

SHAPES, DTYPES = [{"rows": 8}], ["fp32"]

def space():
    return Space({"BLOCK": (64,), "num_warps": (4,)})

def problem(shape, dtype, device):
    ends = torch.arange(shape["rows"] + 1, dtype=torch.int32) * 640
    x = torch.empty(int(ends[-1]), device=device)
    arguments = {"x_ptr": x, "indptr": ends.to(device), "y_ptr": torch.empty(8, device=device)}
    return Problem(kernel, arguments, (shape["rows"],), shape)
"""
)
STEERS = "loops and branches that indptr steers"


@pytest.fixture
def jagged(commands: Commands) -> tuple[str, ...]:
    """A plain function over 64 segments, without the offsets."""
    (commands.folder / "jagged.py").write_text(JAGGED)
    (commands.folder / "module.py").write_text(MODULE)
    values = ("--arg", "x_ptr=fp32[131072]", "--arg", "y_ptr=fp32[n]", "--arg", "n=64")
    axes = ("--axis", "BLOCK=64", "--axis", "num_warps=4")
    return ("{}/jagged.py:jagged", *values, *axes, "--grid", "n")


@pytest.mark.slow(seconds=3)
def test_a_pattern_gives_the_trips_and_is_named(
    commands: Commands, jagged: tuple[str, ...]
) -> None:
    """Text, JSON and page name the pattern; nothing is called a guess."""
    pattern = ("--arg", "indptr=ragged(n, 2048)")
    said = f"{STEERS} follow the pattern ragged(n, 2048)"
    ran = commands.run("explain", *jagged, *pattern, "--alone")
    assert said in ran.out
    assert "a guess" not in ran.out
    for form in ("text", "json"):
        ran = commands.run("prune-report", *jagged, *pattern, "--format", form)
        assert said in ran.out, form
    page = commands.run("prune-report", *jagged, *pattern, "--format", "html").out
    assert said in json.dumps(page_report(page))
    ran = commands.run("roofline", *jagged, *pattern)
    assert said in ran.out


def test_more_and_longer_segments_take_longer(commands: Commands, jagged: tuple[str, ...]) -> None:
    """The predicted time follows the pattern, with a dtype and a size before it or without."""

    def us(pattern: str) -> float:
        asked = (*jagged, "--arg", f"indptr={pattern}", "--format", "json")
        document = json.loads(commands.run("prune-report", *asked).out)
        return float(document["reports"][0]["verdicts"][0]["predicted_us"])

    short = us("ragged(64, 256)")
    assert us("constant(65, 7)") < short < us("i32[n + 1]: ragged(2048)")


def test_a_module_gives_values_and_a_pattern_replaces_them(
    commands: Commands,
    jagged: tuple[str, ...],
) -> None:
    """What a module computed is known on meta tensors; --arg may say otherwise."""
    ran = commands.run("explain", "{}/module.py", "--alone", "--code", "ptx")
    assert f"{STEERS} follow the kernel module's values" in ran.out
    assert "10 trips a program" in ran.out
    ran = commands.run(
        "explain", "{}/module.py", "--alone", "--code", "ptx", "--arg", "indptr=constant(9, 3)"
    )
    assert f"{STEERS} follow the pattern constant(9, 3)" in ran.out
    assert "10 trips a program" not in ran.out


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("raged(64, 2048)", "--arg indptr: no pattern 'raged'; did you mean ragged?"),
        ("ragged(64", "--arg indptr: no pattern 'ragged(64'"),
        ("ragged(64)", "--arg indptr: 'ragged(64)': its arguments do not fit"),
        ("ragged 64", "a pointer is written as indptr=fp16[M,K], the values of an index tensor as"),
    ],
)
def test_a_bad_pattern_is_one_line_with_the_forms(
    commands: Commands, jagged: tuple[str, ...], pattern: str, said: str
) -> None:
    """It says what is wrong and lists the forms."""
    line = commands.refused("prune-report", *jagged, "--arg", f"indptr={pattern}")
    assert said in line
    assert FORMS in line


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("indptr=ragged(3, 5)", "it makes 4 elements, and the tensor has 9"),
        ("indptr=i64: ragged(8, 5)", "the tensor is of i32; leave the dtype out"),
        ("x_ptr=ragged(8, 5)", "no index tensor has this name; known: indptr"),
        ("inptr=ragged(8, 5)", "did you mean indptr?"),
        ("indptr=i32[9]", "--arg is for a plain function, named as file.py:function; to a kernel"),
    ],
)
def test_a_pattern_that_does_not_fit_a_module_is_one_line(
    commands: Commands,
    jagged: tuple[str, ...],
    argument: str,
    said: str,
) -> None:
    """Name, size and dtype are those of the module's tensor."""
    assert said in commands.refused("prune-report", "{}/module.py", "--arg", argument)
