"""Kernel files for the commands, and what a run of one printed."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asmtune.cli.app import run

HEAD = "import torch, triton, triton.language as tl\n"

PLAIN = (
    HEAD
    + """
def plain(x_ptr, n, BLOCK: tl.constexpr, ACC: tl.constexpr = tl.float32):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(ACC)
    tl.store(x_ptr + at, (x * 2).to(x_ptr.dtype.element_ty), mask=at < n)

jitted = triton.jit(plain)

@triton.jit
def scaled(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(x_ptr + at, x / tl.sum(x, 0), mask=at < n)

@triton.autotune(configs=[
    triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=4),
], key=["n"])
@triton.jit
def tuned(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

not_a_kernel = 3
"""
)

MODULE = (
    HEAD
    + """
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    BODY

def space():
    return Space({"BLOCK": (128, 256), "num_warps": (2, 4)})

SHAPES = ({"n": 4096}, {"n": 100})
DTYPES = ("fp16", "fp32")

def problem(shape, dtype, device):
    x = torch.empty(shape["n"], dtype=getattr(torch, {"fp16": "float16"}.get(dtype, "float32")),
                    device=device)
    grid = lambda values: (triton.cdiv(shape["n"], values["BLOCK"]),)
    return Problem(kernel, {"x_ptr": x, "n": shape["n"]}, grid, shape, "doubled")
"""
)

GOOD = "tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)"
BAD = "tl.store(x_ptr + at, missing_name * 2, mask=at < n)"


def unpacked(text: str) -> Any:
    """Reverse `packed` of the page."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def page_report(text: str) -> dict[str, Any]:
    """Read the reports that a page holds."""
    match = re.search(r'<script type="application/json" id="report">([^<]*)</script>', text)
    assert match is not None
    found: dict[str, Any] = unpacked(match[1])
    return found


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str


class Commands:
    """Runs commands in this process, in a folder of kernel files."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        (folder / "plain.py").write_text(PLAIN)
        (folder / "doubled.py").write_text(MODULE.replace("BODY", GOOD))
        (folder / "broken.py").write_text(MODULE.replace("BODY", BAD))
        (folder / "syntax.py").write_text(HEAD + "def kernel(:\n")

    def run(self, *arguments: str) -> Ran:
        """Run a command; {} in an argument stands for the folder."""
        self._capture.readouterr()
        code = run([argument.replace("{}", str(self.folder)) for argument in arguments])
        printed = self._capture.readouterr()
        return Ran(code, printed.out, printed.err)

    def refused(self, *arguments: str, code: int = 2) -> str:
        """The one line of a command that is refused: its exit code, nothing on stdout."""
        ran = self.run(*arguments)
        assert ran.code == code, ran
        assert ran.out == ""
        assert ran.err.startswith("asmtune: "), ran.err
        assert ran.err.count("\n") == 1, ran.err
        assert ran.err.endswith("\n")
        return ran.err
