"""Matrix product with bias by tensor descriptors that the host makes; B row-major.

A config's `pre_hook` gives the descriptors its block shapes before a launch.
Rows must take a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    a_desc,
    b_desc,
    bias_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program on a 2-D grid."""
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    m += tl.arange(0, BLOCK_M)
    n += tl.arange(0, BLOCK_N)
    acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"M": 2048, "N": 8192, "K": 2048},
    {"M": 128, "N": 4096, "K": 4096},
    {"M": 10000, "N": 256, "K": 768},
    {"M": 901, "N": 1208, "K": 1016},
)


def _set_blocks(values: Mapping[str, Any]) -> None:
    M, N, K = (values[f"BLOCK_{axis}"] for axis in "MNK")
    values["a_desc"].block_shape = [M, K]
    values["b_desc"].block_shape = [K, N]


def space() -> Space:
    """Build the space: tile, stages and warps; each config with its hook."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    plain = held(axes, 4, 256, "BLOCK_M", "BLOCK_N").where(
        "the stages fit in shared memory",
        lambda BLOCK_M, BLOCK_N, BLOCK_K, num_stages: (
            (BLOCK_M + BLOCK_N) * BLOCK_K * 2 * num_stages <= 227 * 1024
        ),
    )
    hooked = [
        Config(c.kwargs, c.num_warps, c.num_stages, pre_hook=_set_blocks) for c in plain.configs()
    ]
    return Space.from_configs(hooked)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = normal((M, K), dtype, device)
    b = normal((K, N), dtype, device)
    arguments = {
        "a_desc": TensorDescriptor.from_tensor(a, [32, 32]),
        "b_desc": TensorDescriptor.from_tensor(b, [32, 32]),
        "bias_ptr": torch.randn(N, device=device),
        "y_ptr": a.new_empty(M, N),
    }
    return launch(kernel, shape, arguments, (M, "BLOCK_M"), (N, "BLOCK_N"))
