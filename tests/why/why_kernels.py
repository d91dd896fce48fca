"""Kernels that show one access pattern or one cause of slowness each, and their launches."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.why.findings import Explanation
from asmtune.report.code import CodeReader


@triton.jit
def copy(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    """Copy every element at a stride; 1 is a plain copy."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride, mask=at < n)
    tl.store(y_ptr + at, x, mask=at < n)


@triton.jit
def transpose(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    """Read a row and write it as a column."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols)
    tl.store(y_ptr + at * rows + row, x, mask=at < cols)


@triton.jit
def take_rows(x_ptr, index_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Gather whole rows by an index."""
    row = tl.load(index_ptr + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * cols + at, tl.load(x_ptr + row * cols + at))


@triton.jit
def take(x_ptr, index_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Gather single elements by an index."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, tl.load(x_ptr + index, mask=at < n), mask=at < n)


@triton.jit
def product(
    a, b, c, N, K, b_row, b_col, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Compute C = A B, programs along M first; B has any strides."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * K + depth[None, :]
    b_at = b + depth[:, None] * b_row + cols[None, :] * b_col
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += BLOCK_K
        b_at += BLOCK_K * b_row
    tl.store(c + rows[:, None] * N + cols[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Keep a whole row in registers."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + tl.program_id(0) * cols + at, e / tl.sum(e, 0), mask=at < cols)


def tensor(dtype: torch.dtype, *extents: int) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(extents, dtype=dtype, device="meta")


def copy_problem(n: int, stride: int) -> Problem:
    """`copy` of n elements."""
    x, y = tensor(torch.float32, n * stride), tensor(torch.float32, n)
    values = {"x_ptr": x, "y_ptr": y, "n": n, "stride": stride}
    return Problem(copy, values, lambda meta: (triton.cdiv(n, meta["BLOCK"]),))


def square_problem(kernel: Any, size: int) -> Problem:
    """A transpose or a row-wise kernel on square matrices of fp32."""
    x, y = tensor(torch.float32, size, size), tensor(torch.float32, size, size)
    if kernel is softmax:
        return Problem(kernel, {"x_ptr": x, "y_ptr": y, "cols": size}, (size,))
    values = {"x_ptr": x, "y_ptr": y, "rows": size, "cols": size}
    if kernel is transpose:
        return Problem(kernel, values, lambda meta: (size, triton.cdiv(size, meta["BLOCK"])))
    return Problem(kernel, values, lambda meta: (size // meta["BLOCK"],) * 2)


def product_problem(
    m: int, n: int, k: int, dtype: torch.dtype = torch.float16, *, column_major: bool = False
) -> Problem:
    """`product` of matrices whose extents the tile divides."""
    strides = {"b_row": 1 if column_major else n, "b_col": k if column_major else 1}
    matrices = {"a": tensor(dtype, m, k), "b": tensor(dtype, k, n), "c": tensor(dtype, m, n)}
    values = {**matrices, "N": n, "K": k, **strides}
    return Problem(product, values, lambda meta: (m // meta["BLOCK_M"], n // meta["BLOCK_N"]))


def tile(m: int, n: int, k: int, warps: int, stages: int) -> Config:
    """A config of `product`."""
    names = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    return Config(names, num_warps=warps, num_stages=stages)


def why(
    problem: Problem, configs: list[Config], settings: Settings, target: str = "H200"
) -> Explanation:
    """Why the first config takes its time, with the others as its space."""
    machine = load_target(target)
    funnel = Funnel(machine, make_scorer("roofline"), settings, Keep.of("99"))
    report = funnel.prune(problem, Space.from_configs(configs))
    verdict = next(v for v in report.verdicts if v.config == configs[0])
    artifact = ArtifactCache.of(settings).get(verdict.artifact or "none")
    assert isinstance(artifact, Artifact), verdict
    reasons = CodeReader(problem, machine).why(verdict, artifact, report.verdicts)
    assert reasons is not None
    return reasons


def kinds(reasons: Explanation) -> set[str]:
    """The classes of the findings."""
    return {finding.kind for finding in reasons.findings}
