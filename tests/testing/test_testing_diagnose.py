"""`asmtune diagnose`: kernels with a planted fault, each named, and right ones, where none is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asmtune.core.hardware.model import Target
from asmtune.testing.diagnose import diagnose
from asmtune.testing.reports import Diagnosis
from asmtune.testing.subjects import DiagnosisRequest
from tests.cli.command_lines import Commands

MODULE = """
import torch, triton, triton.language as tl
from asmtune import Config, Problem, Space
from asmtune.core.dtypes import torch_dtype

@triton.jit
def kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        total += x
    tl.store(y_ptr + row, tl.sum(total.to(tl.float32), 0))

OUTPUTS = ("y_ptr",)
DTYPES = ("fp16", "fp32")
SHAPES = ({"rows": 4096, "cols": 4096},)

def space():
    return Space({"BLOCK": (32, 64), "num_warps": (4,)}, default=Config({"BLOCK": 64}))

def problem(shape, dtype, device):
    x = torch.randn(shape["rows"], shape["cols"], device=device).to(torch_dtype(dtype))
    y = torch.zeros(shape["rows"], dtype=torch.float32, device=device)
    grid = (shape["rows"],)
    return Problem(kernel, {"x_ptr": x, "y_ptr": y, **shape}, grid, shape, "rows")

def reference(arguments):
    return arguments["x_ptr"].double().sum(1)
"""

ALIGNED = "(x_ptr.to(tl.int64) // 16 * 16).to(tl.pointer_type(x_ptr.dtype.element_ty))"
STORE = "    tl.store(y_ptr + row, tl.sum(total.to(tl.float32), 0))"

FAULTS = {
    "mask": [(", mask=at < cols, other=0.0", "")],
    "accumulator": [
        ("(BLOCK,), tl.float32", "(BLOCK,), tl.float16"),
        ("+= x", "+= x.to(tl.float16)"),
    ],
    "race": [
        (STORE, "    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(total, 0))"),
        (".double().sum(1)", ".double().sum().reshape(1)"),
        ('torch.zeros(shape["rows"]', "torch.zeros(1"),
    ],
    "alignment": [("tl.load(x_ptr", f"tl.load({ALIGNED}")],
    "bounds": [("y_ptr + row,", "y_ptr + row + 1,")],
}
"""Replacements in the module, by the cause that they plant."""


def planted(folder: Path, replacements: list[tuple[str, str]]) -> str:
    """Write the module with replacements; return its path."""
    text = MODULE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path = folder / "rows.py"
    path.write_text(text)
    return str(path)


def findings(found: Diagnosis) -> dict[str, str]:
    """Return the outcome by cause."""
    return {one.cause: one.outcome for one in found.findings}


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("cause", FAULTS)
def test_planted_faults_are_named(cause: str, tmp_path: Path, target: Target) -> None:
    """The first cause that is named is the fault that was planted, with what to do."""
    request = DiagnosisRequest(kernel=planted(tmp_path, FAULTS[cause]), device="cpu")
    found = diagnose(request, target)
    assert found.wrong
    assert found.cause is not None, found.text()
    assert found.cause.cause == cause, found.text()
    assert found.cause.seen
    assert found.cause.advice in found.conclusion


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("kernel", ["", "softmax", "tiled_matmul"])
def test_right_kernels_have_no_cause(kernel: str, tmp_path: Path, target: Target) -> None:
    """Nothing is named about kernels that compute the right thing."""
    request = DiagnosisRequest(kernel=kernel or planted(tmp_path, []), device="cpu")
    found = diagnose(request, target)
    assert not found.wrong, found.text()
    assert set(findings(found).values()) == {"fine"}, found.text()


@pytest.mark.slow(seconds=12)
def test_wrong_formula_has_no_cause(tmp_path: Path, target: Target) -> None:
    """A wrong formula is told apart from all causes: the result is wrong, and none is named."""
    file = planted(tmp_path, [(STORE, STORE.replace("tl.sum(", "2 * tl.sum("))])
    found = diagnose(DiagnosisRequest(kernel=file, device="cpu"), target)
    assert found.wrong
    assert found.cause is None, found.text()
    assert "compare the formula" in found.conclusion


FUNCTION = """
import triton.language as tl

def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)

def twice(x_ptr):
    return 2 * x_ptr
"""


@pytest.mark.slow(seconds=12)
def test_plain_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], session_cache: Path
) -> None:
    """A plain Triton function with a reference is diagnosed by the command: exit 1, and JSON."""
    commands = Commands(tmp_path, capsys)
    (tmp_path / "double.py").write_text(FUNCTION)
    ran = commands.run(
        *("diagnose", "{}/double.py:double", "--reference", "{}/double.py:twice", "--json"),
        *("--arg", "x_ptr=fp16[n]", "--arg", "y_ptr=fp16[n]", "--arg", "n=4096"),
        *("--axis", "BLOCK=64", "--grid", "cdiv(n, BLOCK)", "--device", "cpu"),
    )
    assert ran.code == 1, ran
    document = json.loads(ran.out)
    first = next(one for one in document["findings"] if one["outcome"] == "cause")
    assert first["cause"] == "mask"
    assert "behind the end of y_ptr were written" in first["seen"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{}/plain.py:jitted",), "is a plain function: name its --reference"),
        (("nothing",), "unknown kernel 'nothing'"),
        (("{}/doubled.py", "--device", "tpu"), "--device 'tpu': cuda or cpu"),
        (("softmax", "--dtype", "i8"), "does not support i8"),
        (("softmax", "--tolerance", "fp12"), "--tolerance 'fp12': one of fp32"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad input gets one line, and no launch."""
    assert message in Commands(tmp_path, capsys).refused("diagnose", *arguments)
