"""Runs the Gluon kernels for Hopper on the machine of `gluon_machine`, and their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from asmtune.kernels import (
    _hopper_attention,
    _hopper_attention_backward,
    _hopper_gemm,
    _hopper_scaled,
)
from asmtune.kernels._attention_host import Attending, summed
from asmtune.kernels._attention_spec import attend as attention_of
from asmtune.kernels._attention_spec import differentiate as differentiate_exactly
from tests.kernels.gluon_machine import Machine
from tests.kernels.gluon_values import Descriptor, Int, Pointer


def halves(seed: int, *extents: int) -> Any:
    """Draw normal numbers in fp16."""
    return np.random.default_rng(seed).standard_normal(extents).astype(np.float16)


def gelu(x: Any) -> Any:
    """GELU by erf, in float64."""
    return torch.nn.functional.gelu(torch.from_numpy(np.asarray(x, np.float64))).numpy()


def product(
    extents: tuple[int, int, int, int], config: Mapping[str, Any], dense: str,
    order: Sequence[int], seed: int = 0, *, finish: bool = False,
) -> tuple[Any, Any, list[Machine]]:  # fmt: skip
    """Multiply by programs in an order, and add a bias and take GELU to `finish`.

    Returns C, C in float64, and the machines.
    """
    batch, M, N, K = extents
    a, b, bias = halves(1, batch, M, K), halves(2, batch, K, N), halves(3, N)
    c = np.full((batch, M, N), np.nan, np.float16)
    high, wide, parts = config["BLOCK_M"], config["BLOCK_N"], config["SPLIT_K"]
    tiles = batch * math.ceil(M / high) * math.ceil(N / wide)
    sums = np.full(tiles * parts * high * wide, np.nan, np.float32)
    counts = np.zeros(tiles * config["CONSUMERS"], np.int32)
    rows = high if config["PINGPONG"] else high // config["CONSUMERS"]
    k, piece = config["BLOCK_K"], wide // config["PIECES"]
    n = wide & -wide  # the widest block of a power of two
    weights, block = (b, [1, k, n]) if dense == "n" else (b.transpose(0, 2, 1), [1, n, k])
    machines = [Machine(program, len(order), seed + program) for program in order]
    for machine in machines:
        machine.function(_hopper_gemm.kernel)(
            Descriptor(a, [1, rows, k]),
            Descriptor(weights, block),
            Descriptor(c, [1, rows, piece & -piece]),
            Pointer(bias) if finish else None,
            *(Pointer(sums), Pointer(counts)),
            *map(Int, extents),
            *(dense == "k", "gelu" if finish else "none", len(order)),
            **config,
        )
    assert not counts.any(), "counts are not at 0 for the next launch"
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return c, gelu(exact + bias) if finish else exact, machines


def multiply(
    extents: tuple[int, int, int, int], config: Mapping[str, Any], dense: str, programs: int,
    seed: int = 0, *, finish: bool = False,
) -> tuple[float, list[Machine]]:  # fmt: skip
    """Multiply, and add a bias and take GELU to `finish`; return the largest error and machines."""
    c, exact, machines = product(extents, config, dense, range(programs), seed, finish=finish)
    return float(np.abs(c - exact).max()), machines


def _scales(seed: int, extents: tuple[int, int], groups: tuple[int, int]) -> Any:
    """Draw scales of a matrix by the extents of their groups, 0 for all."""
    counts = [
        -(-extent // (group or extent)) for extent, group in zip(extents, groups, strict=True)
    ]
    return np.random.default_rng(seed).uniform(0.5, 1.5, counts).astype(np.float32)


def _spread(scales: Any, extents: tuple[int, int], groups: tuple[int, int]) -> Any:
    """Repeat scales for each element of a matrix."""
    for axis, (extent, group) in enumerate(zip(extents, groups, strict=True)):
        scales = np.repeat(scales, group or extent, axis)
    return scales[: extents[0], : extents[1]].astype(np.float64)


def multiply_scaled(
    extents: tuple[int, int, int], groups: tuple[int, int, int], config: Mapping[str, Any],
    programs: int, seed: int = 0, *, fast: bool = False, finish: bool = False,
) -> tuple[float, list[Machine]]:  # fmt: skip
    """Multiply by scales, and add a bias to `finish`; return the largest error and machines.

    Args:
        extents: M, N and K.
        groups: rows of A, columns of B and elements of K that share a scale, 0 for all.
        config: of the kernel.
        programs: how many.
        seed: of the order of partitions.
        fast: sum all of K in the tensor core.
        finish: see above.
    """
    M, N, K = extents
    a, b, bias = halves(1, M, K), halves(2, N, K), halves(3, N)
    down, along, across = (M, K), (groups[0], groups[2]), (groups[1], groups[2])
    scale_a, scale_b = _scales(4, down, along), _scales(5, (N, K), across)
    c = np.full((M, N), np.nan, np.float16)
    rows = config["BLOCK_M"] if config["PINGPONG"] else config["BLOCK_M"] // 2
    piece = min(config["BLOCK_N"], 128)
    machines = [Machine(program, programs, seed + program) for program in range(programs)]
    for machine in machines:
        # Scales of A lie by column, as `torch._scaled_mm` wants them, those of B by row.
        machine.function(_hopper_scaled.kernel)(
            Descriptor(a, [rows, 128]),
            Descriptor(b, [config["BLOCK_N"] if fast else piece, 128]),
            Descriptor(c, [rows, piece]),
            *(Pointer(scale_a.T.ravel()), Pointer(scale_b.ravel())),
            Pointer(bias) if finish else None,
            *map(Int, extents),
            *map(Int, (1, scale_a.shape[0], 1, scale_b.shape[1])),
            *(*groups, fast, 2, programs),
            **config,
        )
    left = a * _spread(scale_a, down, along)
    exact = left @ (b * _spread(scale_b, (N, K), across)).T
    exact = exact + bias if finish else exact
    return float(np.abs(c - exact).max()), machines


def attend(
    shape: Mapping[str, int], config: Mapping[str, int], programs: int, together: int = 2,
    seed: int = 0,
) -> tuple[float, float, list[Machine]]:  # fmt: skip
    """Attend; return the largest errors of the result and of lse, and the machines."""
    B, H, KV, M, N, D, causal = (shape[name] for name in ("B", "H", "KV", "M", "N", "D", "causal"))
    q, k, v = halves(1, B, H, M, D), halves(2, B, KV, N, D), halves(3, B, KV, N, D)
    y, lse = np.full_like(q, np.nan), np.full(B * H * M, np.nan, np.float32)
    blocks = (64, config["BLOCK_N"], config["BLOCK_N"], 64)
    machines = [Machine(program, programs, seed + program) for program in range(programs)]
    for machine in machines:
        machine.function(_hopper_attention.kernel)(
            *(Descriptor(x, [1, 1, n, D]) for x, n in zip((q, k, v, y), blocks, strict=True)),
            Pointer(lse),
            *map(Int, (B * H, H, H // KV, M, N, together, together)),
            *(D**-0.5, D, bool(causal), math.gcd(256, N), programs),
            **config,
        )
    wide_k, wide_v = (np.repeat(x, H // KV, 1).astype(np.float64) for x in (k, v))
    s = q.astype(np.float64) @ wide_k.transpose(0, 1, 3, 2) * D**-0.5
    if causal:
        s = np.where(np.arange(N)[None] <= np.arange(M)[:, None], s, -np.inf)
    top = s.max(-1, keepdims=True)
    weights = np.exp(s - top)
    total = weights.sum(-1, keepdims=True)
    exact_lse = ((top + np.log(total)) * math.log2(math.e)).reshape(-1)
    error = np.abs(y - weights @ wide_v / total).max()
    return float(error), float(np.abs(lse - exact_lse).max()), machines


def differentiate(
    shape: Mapping[str, int], stages: int = 2, together: int = 2, seed: int = 0
) -> tuple[dict[str, float], list[Machine]]:
    """Compute attention's gradients; return their largest errors, and the machines.

    An error is divided by the largest number.
    """
    B, H, KV, M, N, D, causal = (shape[name] for name in ("B", "H", "KV", "M", "N", "D", "causal"))
    how = Attending(causal=bool(causal), scale=D**-0.5)
    drawn = zip(("q", "dy", "k", "v"), ((H, M), (H, M), (KV, N), (KV, N)), strict=True)
    given = {name: halves(at, B, *rows, D) for at, (name, rows) in enumerate(drawn)}
    wide = {name: torch.from_numpy(x).double() for name, x in given.items()}
    y, lse = attention_of(wide["q"], wide["k"], wide["v"], how)
    delta = (wide["dy"] * y).sum(-1)
    exact = differentiate_exactly(wide["dy"], wide["q"], wide["k"], wide["v"], lse, delta, how)
    made = {name: np.full_like(given["k"], np.nan) for name in ("dk", "dv")}
    sums = np.zeros((B, H, M, D), np.float32)
    programs = -(-N // 128) * B * KV
    machines = [Machine(program, programs, seed + program) for program in range(programs)]
    tiles = (given["q"], given["dy"], given["k"], given["v"])
    for machine in machines:
        machine.function(_hopper_attention_backward.kernel)(
            *(Descriptor(x, [1, 1, 64, D]) for x in tiles),
            Descriptor(given["k"], [1, 1, 64, D // 2]),
            *(Descriptor(made[name], [1, 1, 64, D]) for name in ("dk", "dv")),
            Descriptor(sums, [1, 1, 64, D // 2]),
            *(Pointer(x.reshape(-1).float().numpy()) for x in (lse, delta)),
            *map(Int, (B * KV, KV, H // KV, M, N, together)),
            *(D**-0.5, D, bool(causal), math.gcd(256, M, N), stages),
        )
    found = {"dq": sums * D**-0.5, **made}
    wanted = (exact[0], summed(exact[1], wide["k"]), summed(exact[2], wide["k"]))
    errors = {
        name: float(np.abs(found[name] - want.numpy()).max() / want.abs().max().clamp(min=1.0))
        for name, want in zip(("dq", "dk", "dv"), wanted, strict=True)
    }
    return errors, machines
