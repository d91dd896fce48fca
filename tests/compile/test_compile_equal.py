"""An artifact is what Triton itself would have compiled for the launch."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton_reference import compiled_by_triton

from asmtune.compile.lower import Lowering
from asmtune.compile.sandbox import Sandbox
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from tests.compile.making import accepted, compiled_in
from tests.sample_kernels import (
    product_problem,
    scale,
    scale_problem,
    tensor,
)

MACHINES = ("A100", "H200", "B200", "RTX5090")
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}


def check(problem: Problem, config: Config, machine: Target, sandbox: Sandbox) -> Artifact:
    """Compile on both ways; PTX, cubin and what a launch needs to know are equal."""
    request = accepted(Lowering(problem, machine, 30), config)
    artifact = compiled_in(sandbox, request, 60)
    assert isinstance(artifact, Artifact), artifact
    own = compiled_by_triton(problem, config, machine.capability)
    assert artifact.outputs["ptx"] == own.asm["ptx"]
    assert artifact.cubin == own.asm["cubin"]
    for name in ("num_warps", "num_ctas", "shared", "name", "global_scratch_size", "maxnreg"):
        assert artifact.metadata[name] == getattr(own.metadata, name), name
    assert artifact.entry == own.metadata.name
    assert artifact.arch == f"sm_{machine.capability}"
    return artifact


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_products_equal(name: str, shared_sandbox: Sandbox) -> None:
    """A pipelined product with a register cap is Triton's own on every generation."""
    config = Config(TILE, num_warps=4, num_stages=3, maxnreg=128)
    artifact = check(product_problem(), config, load_target(name), shared_sandbox)
    assert ".maxnreg 128" in artifact.outputs["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.int8, torch.float32])
def test_dtypes_equal(dtype: torch.dtype, shared_sandbox: Sandbox, target: Target) -> None:
    """Pointers of every width are specialised as Triton does."""
    if dtype == torch.int8:
        check(scale_problem(dtype=dtype), Config({"BLOCK": 256}), target, shared_sandbox)
    else:
        check(product_problem(dtype), Config(TILE), target, shared_sandbox)


@triton.jit
def _of_tuple(pointers, sizes, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pointers[1] + at, tl.load(pointers[0] + at, mask=at < sizes[0]), mask=at < sizes[1])


def test_tuples_equal(shared_sandbox: Sandbox, target: Target) -> None:
    """Tuples of pointers and of numbers are arguments too."""
    pointers = (tensor(torch.float32), tensor(torch.float32))
    problem = Problem(_of_tuple, {"pointers": pointers, "sizes": (1, 50)}, (1,))
    check(problem, Config({"BLOCK": 128}), target, shared_sandbox)


def test_heuristics_equal(shared_sandbox: Sandbox, target: Target) -> None:
    """What `@triton.heuristics` computes from a config is compiled in."""
    wrapped = triton.heuristics({"BLOCK": lambda values: values["n"] // 8})(scale)
    arguments = scale_problem(1024).arguments
    request = accepted(Lowering(Problem(wrapped, arguments, (1,)), target, 30), Config({}))
    artifact = compiled_in(shared_sandbox, request, 60)
    own = compiled_by_triton(Problem(scale, arguments, (1,)), Config({"BLOCK": 128}), 90)
    assert artifact.cubin == own.asm["cubin"]


def _closure(factor: float) -> Any:
    constant = tl.constexpr(factor)

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, tl.load(x_ptr) * constant)

    return kernel


def test_closures_equal(shared_sandbox: Sandbox, target: Target) -> None:
    """Kernels of one source that close over different values get different binaries."""
    problems = [
        Problem(_closure(factor), {"x_ptr": tensor(torch.float32)}, (1,)) for factor in (2.5, 7.5)
    ]
    ptx = [check(p, Config({}), target, shared_sandbox).outputs["ptx"] for p in problems]
    assert "0f40200000" in ptx[0]
    assert "0f40F00000" in ptx[1]


_CELL = """
import triton, triton.language as tl
@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + NUMBER)
"""


@pytest.mark.parametrize(("module", "number"), [("__main__", "41"), ("notebook", "42")])
def test_notebook_cells_equal(
    module: str, number: str, shared_sandbox: Sandbox, target: Target
) -> None:
    """A kernel that exists only in memory, under a name that no child could import, compiles."""
    name = f"<cell of {module}>"
    cell = _CELL.replace("NUMBER", number)
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": module}
    exec(compile(cell, name, "exec"), scope)
    problem = Problem(scope["kernel"], {"x_ptr": tensor(torch.int32)}, (1,))
    check(problem, Config({}), target, shared_sandbox)
