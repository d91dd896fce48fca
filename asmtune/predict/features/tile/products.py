"""Matrix products: the tensor instruction that Triton chooses, and what it demands."""

from __future__ import annotations

from typing import Final

import numpy as np

from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.cycles import SHARED_SHARE
from asmtune.predict.features.profile import ROW_BYTES
from asmtune.predict.features.sketch.registers import K_STEPS
from asmtune.predict.features.tile.demands import Demands
from asmtune.predict.features.tile.interpolate import ISSUED, DotForm, Row

_WGMMA: Final = frozenset({"f16", "bf16", "f8E4M3FN", "f8E5M2", "i8", "f32"})


def instruction(d: Demands, dot: DotForm, m: Row, n: Row, batch: Row) -> Row:
    """Return 3 for wgmma, 5 for tcgen05, 2 for mma.sync, and 0 for none, by config."""
    if dot.precise or (dot.operand_bits > 16 and dot.operand not in ("f32", "i8", "f64")):
        return d.zero + 0.0
    generation = d.target.capability // 10
    if generation not in (9, 10) or dot.operand not in _WGMMA:
        return d.zero + 2.0
    wide = (m >= 64) & (n >= 8) & (d.warps % 4 == 0) & (batch <= 1)
    return np.where(wide, 3.0 if generation == 9 else 5.0, 2.0)


def add_dots(d: Demands) -> None:
    """Count every product by its instruction; sets `Demands.kinds`."""
    part = d.part("dots")
    d.kinds = []
    for place, dot in enumerate(d.form.dots):
        m, n, k, batch, runs = (part[:, place, i] for i in range(5))
        kind = instruction(d, dot, m, n, batch)
        d.kinds.append(kind)
        runs_here = runs / np.maximum(d.times[dot.segment], 1e-9)
        _wgmma(d, dot, (m, n, k), kind, runs_here)
        _mma_sync(d, dot, (m, n, k, batch), kind, runs_here)
        _multiply_add(d, dot, (m, n, k, batch), kind, runs_here)


def _wgmma(d: Demands, dot: DotForm, size: tuple[Row, Row, Row], kind: Row, runs: Row) -> None:
    m, n, k = size
    used = (kind >= 3).astype(float)
    if not used.any():
        return
    step = max(1, 8 * ROW_BYTES // max(1, dot.operand_bits))
    along_m = np.minimum(d.warps, np.maximum(1.0, m // 16))
    columns = np.clip(n / np.maximum(1.0, d.warps // along_m), 8.0, 256.0)
    groups = np.maximum(1.0, d.warps / 4)
    rows = np.ceil(m / (16 * along_m))
    across = np.ceil(n / (columns * np.maximum(1.0, d.warps // along_m)))
    count = rows * across * np.ceil(k / step) * used
    d.add_tensor(dot, "wgmma", count * 2 * 64 * columns * step * groups, runs)
    read = (0.0 if dot.registers else 64.0) + columns
    operands = count * read * ROW_BYTES * groups
    d.shared += operands * runs * d.times[dot.segment] / SHARED_SHARE
    described = count / rows + (0.0 if dot.registers else 1.0) * count / across
    d.issued[dot.segment] += (count + 1.8 * described + 8.0 * used) * runs
    d.barriers += used * runs * d.times[dot.segment]
    d.asynchronous[dot.segment] = d.asynchronous[dot.segment] | (used > 0)


def _mma_sync(
    d: Demands, dot: DotForm, size: tuple[Row, Row, Row, Row], kind: Row, runs: Row
) -> None:
    m, n, k, batch = size
    used = (kind == 2).astype(float)
    if not used.any():
        return
    step = max(1, 8 * ROW_BYTES // max(1, dot.operand_bits))
    along_m, along_n = _warp_grid(d, dot, m, n)
    rows = np.maximum(1.0, np.ceil(m / (16 * along_m)))
    across = np.maximum(1.0, np.ceil(n / (8 * along_n)))
    count = rows * across * np.maximum(1.0, k // step) * batch * used
    flops = count * 2 * 16 * 8 * step * d.warps
    idle = np.maximum(1.0, 4.0 / d.warps)
    cycles = d.add_tensor(dot, "mma.sync", flops, runs)
    d.idle[dot.segment] += cycles * (idle - 1.0)
    size_of = dot.operand_bits / 8
    left = 0.0 if dot.registers else rows * 16 * along_m * k * along_n
    right = across * 8 * along_n * k * along_m
    read = (left + right) * size_of * batch * used
    d.move_shared(dot.segment, read, 16.0, runs)
    d.issued[dot.segment] += count * runs
    d.mma_text += count * runs
    pieces = K_STEPS * 16 * (rows * 16 * along_m * along_n + across * 8 * along_n * along_m)
    d.fragments = np.maximum(d.fragments, used * pieces * dot.operand_bits / 32 / d.threads)


def _warp_grid(d: Demands, dot: DotForm, m: Row, n: Row) -> tuple[Row, Row]:
    """Return the warps along M and N that Triton lays out for mma.sync."""
    along_m, along_n = d.zero + 1.0, d.zero + 1.0
    for _ in range(6):
        more = along_m * along_n < d.warps
        down = (m / 16 / along_m >= n / 16 / along_n) & (along_m < m / 16)
        along_m = np.where(more & down, along_m * 2, along_m)
        along_n = np.where(more & ~down, along_n * 2, along_n)
    rows = (m >= 16 * d.warps) & dot.chained
    return np.where(rows, d.warps, along_m), np.where(rows, 1.0, along_n)


def _multiply_add(
    d: Demands, dot: DotForm, size: tuple[Row, Row, Row, Row], kind: Row, runs: Row
) -> None:
    m, n, k, batch = size
    used = (kind == 0).astype(float)
    if not used.any():
        return
    held = np.maximum(1.0, m * n * batch / d.threads)
    side = np.sqrt(held)
    d.issued[dot.segment] += used * held * k * runs
    d.by_class[dot.segment][ISSUED.index(OpClass.FLOAT)] += used * held * k * runs
    read = used * 2 * side * k * dot.operand_bits / 8 * d.threads
    d.move_shared(dot.segment, read, 16.0, runs)
