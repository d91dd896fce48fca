"""Kernels whose arguments are hard to send to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.core.config import Config
from asmtune.core.problem import Problem


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def mixed(
    pair,
    out_ptr,
    bias_ptr,
    scale,
    odd_ptr,
    n,
    ACT: tl.constexpr,
    DT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take a tuple, None, a float, a function, a dtype and a misaligned view of the output."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(pair[0] + at, mask=inside).to(DT) * scale + pair[1]
    if bias_ptr is not None:
        x += tl.load(bias_ptr + at, mask=inside)
    x += tl.load(odd_ptr + at, mask=inside)
    tl.store(out_ptr + at, ACT(x), mask=inside)


@triton.jit
def double_tiles(in_desc, out_desc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Double by tensor descriptors made on the host; their tiles are the config's."""
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    out_desc.store([row, col], in_desc.load([row, col]) * 2)


@triton.jit
def double_made(in_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Double by tensor descriptors made on the device, in memory that the launch allocates."""
    source = tl.make_tensor_descriptor(in_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    target.store([row, col], source.load([row, col]) * 2)


def set_tiles(values: Mapping[str, Any]) -> None:
    """The hook of a config of `double_tiles`."""
    for name in ("in_desc", "out_desc"):
        values[name].block_shape = [values["BLOCK_M"], values["BLOCK_N"]]


def tiled(meta: Mapping[str, Any]) -> tuple[int, int]:
    """The grid over a matrix of 512 rows and columns."""
    return (512 // meta["BLOCK_M"], 512 // meta["BLOCK_N"])


def problems(device: str = "cuda") -> dict[str, tuple[Problem, list[Config]]]:
    """Problems with a few configs each, the default first."""
    n = 1 << 16
    whole = torch.arange(3.0 * n, device=device) % 11
    first = {
        "pair": (torch.ones(n, device=device), 5),
        "out_ptr": whole[:n],
        "bias_ptr": None,
        "scale": 0.5,
        "odd_ptr": whole[n + 1 : 2 * n + 1],
        "n": n,
        "ACT": twice,
        "DT": tl.float32,
    }
    matrix = torch.randn(512, 512, device=device).half()
    tiles = [(64, 64), (128, 64), (64, 128)]
    blocks = [{"BLOCK_M": rows, "BLOCK_N": cols} for rows, cols in tiles]
    described = {
        name: TensorDescriptor.from_tensor(tensor, [1, 8])
        for name, tensor in (("in_desc", matrix), ("out_desc", torch.zeros_like(matrix)))
    }
    made = {"in_ptr": matrix, "out_ptr": torch.zeros_like(matrix), "M": 512, "N": 512}
    return {
        "mixed": (
            Problem(mixed, first, lambda meta: (triton.cdiv(n, meta["BLOCK"]),)),
            [Config({"BLOCK": block}) for block in (1024, 512, 2048)],
        ),
        "descriptors": (
            Problem(double_tiles, described, tiled),
            [Config(block, pre_hook=set_tiles) for block in blocks],
        ),
        "made on the device": (
            Problem(double_made, made, tiled),
            [Config(block) for block in blocks],
        ),
    }
