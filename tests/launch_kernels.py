"""Kernels whose work is known exactly, and their launches as the features see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target, shipped_cuda
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.catalog import LaunchReading
from tests.compile.making import accepted
from tests.sample_kernels import tensor

Launch = Callable[[Problem, Config, str], LaunchReading]
"""What is known of a launch, compiled for a target by name."""

UNKNOWN_TO_PTXAS = "sm_110"
"""The architecture of Jetson Thor: Triton 3.6 comes with a ptxas that has no such target."""

COMPILED = tuple(target.name for target in shipped_cuda() if target.arch != UNKNOWN_TO_PTXAS)
"""Shipped targets that kernels can be compiled for here."""

WITH_TENSOR_CORES = tuple(name for name in COMPILED if load_target(name).capability >= 80)
"""Those for which Triton uses tensor cores: on sm_70 and sm_75 it multiplies matrices without."""


def launches(settings: Settings) -> Launch:
    """Compile and weigh; the same compile is done once."""
    profiles: dict[str, Any] = {}

    def launch(problem: Problem, config: Config, name: str) -> LaunchReading:
        target = load_target(name)
        request = accepted(Lowering(problem, target, 60), config)
        artifact = compile_one(request, settings)
        assert isinstance(artifact, Artifact), artifact
        key = f"{artifact.digest} {target.name}"
        if key not in profiles:
            profiles[key] = reader_for(target)(artifact)
        call = LaunchArguments(
            arguments=problem.bind(config),
            grid=problem.programs(config),
            tensor_bytes=problem.tensor_bytes,
        )
        return LaunchReading.of(profiles[key], analyse(request.ttir, call), target)

    return launch


@triton.jit
def looped_product(
    a_ptr,
    b_ptr,
    c_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    UNROLL: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute C = A B, with the loop's own unrolling and stages."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, loop_unroll_factor=UNROLL, num_stages=STAGES):
        a = tl.load(a_ptr + rows[:, None] * K + k + depth[None, :])
        b = tl.load(b_ptr + (k + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit(noinline=True)
def _row_of_tiles(a_ptr, b_ptr, c_ptr, row, K, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + (row * BLOCK + at)[:, None] * K + (k + at)[None, :])
        b = tl.load(b_ptr + (k + at)[:, None] * BLOCK + at[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + (row * BLOCK + at)[:, None] * BLOCK + at[None, :], acc)


@triton.jit
def called_product(a_ptr, b_ptr, c_ptr, ROWS, K, BLOCK: tl.constexpr):
    """Compute C = A B for a narrow B, all of it in a function that is not inlined."""
    for i in range(ROWS):
        _row_of_tiles(a_ptr, b_ptr, c_ptr, tl.program_id(0) * ROWS + i, K, BLOCK)


@triton.jit
def persistent_product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Compute C = A B by a small grid that walks the tiles."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    depth = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in tl.range(0, K, BLOCK_K):
            a = tl.load(a_ptr + rows[:, None] * K + k + depth[None, :])
            b = tl.load(b_ptr + (k + depth)[:, None] * N + cols[None, :])
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def causal_attention(
    q_ptr, k_ptr, v_ptr, o_ptr, N, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Compute attention by programs that stop at their diagonal."""
    start = tl.program_id(0)
    rows = start * BLOCK_M + tl.arange(0, BLOCK_M)
    width = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + width[None, :])
    highest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for n in tl.range(0, (start + 1) * BLOCK_M, BLOCK_N):
        cols = n + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + cols[:, None] * D + width[None, :])
        scores = tl.where(rows[:, None] >= cols[None, :], tl.dot(q, k.T), -1.0e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrunk = tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weights, 1)
        v = tl.load(v_ptr + cols[:, None] * D + width[None, :])
        acc = tl.dot(weights.to(v.dtype), v, acc * shrunk[:, None])
        highest = higher
    out = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + width[None, :], out.to(o_ptr.dtype.element_ty))


@triton.jit
def two_loops(x_ptr, y_ptr, first, second, BLOCK: tl.constexpr):
    """Read many blocks, then write other ones: two loops, one after the other."""
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(first):
        total += tl.load(x_ptr + i * BLOCK + at)
    for i in range(second):
        tl.store(y_ptr + i * BLOCK + at, total + i)


@triton.jit
def column_copy(x_ptr, y_ptr, pitch, BLOCK: tl.constexpr):
    """Copy a column, whose elements are a row apart."""
    at = tl.arange(0, BLOCK) * pitch + tl.program_id(0)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


def looped(
    M: int,
    N: int,
    K: int,
    tile: tuple[int, int],
    unroll: int | None = None,
    stages: int | None = None,
) -> Problem:
    """`looped_product` in fp16."""
    a, b, c = tensor(torch.float16, M, K), tensor(torch.float16, K, N), tensor(torch.float16, M, N)
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "N": N, "K": K}
    loop = {"UNROLL": unroll, "STAGES": stages}
    return Problem(looped_product, {**arguments, **loop}, (M // tile[0], N // tile[1]))


def persistent(size: int, depth: int, programs: int, flatten: bool) -> Problem:
    """`persistent_product` of a (size, depth) and a (depth, size) matrix in fp16."""
    shape = {"M": size, "N": size, "K": depth, "FLATTEN": flatten}
    return Problem(
        persistent_product,
        {**pointers(torch.float16, "a_ptr", "b_ptr", "c_ptr"), **shape},
        (programs,),
    )


def executed_flops(reading: LaunchReading) -> float:
    """Tensor arithmetic of a whole launch, as the assembly has it."""
    return reading.cycles.flops * reading.work.programs


def called(rows: int, depth: int) -> Problem:
    """A product of 4 x `rows` tiles of 64 x 64, by a function that is called for each."""
    arguments = {**pointers(torch.float16, "a_ptr", "b_ptr"), **pointers(torch.float32, "c_ptr")}
    return Problem(called_product, {**arguments, "ROWS": rows, "K": depth, "BLOCK": 64}, (4,))


def pointers(dtype: torch.dtype, *names: str, extent: int = 1 << 24) -> dict[str, Any]:
    """Tensors without memory by name."""
    return {name: tensor(dtype, extent) for name in names}
