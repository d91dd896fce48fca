"""Demands of programs, an element a config: operations, collectives, copies ahead, products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.hardware.model import Target, tensor_rate
from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.cycles import SHARED_SHARE
from asmtune.predict.features.profile import ROW_BYTES
from asmtune.predict.features.sketch.registers import K_STEPS
from asmtune.predict.features.tile.interpolate import ISSUED, DotForm, Row, Structure

_TYPES: Final = {
    "f32": "tf32",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "i8": "s8",
}


@dataclass(frozen=True)
class Options:
    """Launch options of the configs, an element each; a cap of 0 means no cap."""

    warps: Row
    stages: Row
    caps: Row
    programs: Row

    def at(self, places: NDArray[np.intp]) -> Options:
        """Return the options of some of the configs."""
        return Options(*(column[places] for column in vars(self).values()))


@dataclass(frozen=True)
class Typical:
    """Facts that hold for most of the configs, and are assumed for all.

    Attributes:
        vector: addresses that one instruction of a thread covers, at the median.
        hottest: the deepest segment with most instructions.
    """

    vector: float
    hottest: int


class Demands:
    """Sums over a program's operations, by segment where they are lists; counts are of a thread.

    Attributes:
        form, target, options, typical: of the configs; what is typical may be read off them.
        warps, stages, threads: of a program.
        times, longest: runs of each segment by a program, and by the one with most trips.
        issued, by_class, shared_steps: instructions of one pass over a segment.
        tensor, idle: cycles of the tensor cores of one pass, and those that too few warps waste.
        linked: bytes of one pass that come from L2.
        first: tiles copied before a loop begins; `asynchronous` says that it does not wait for its
            products.
        special, shared, barriers, wavefronts, l2_bytes, mma_text: of the whole program.
        copies, fragments: registers' need: asynchronous copies, and words of operands.
        kinds: instruction of each product, see `instruction`.
    """

    def __init__(
        self,
        structure: Structure,
        numbers: Row,
        options: Options,
        target: Target,
        typical: Typical | None = None,
    ) -> None:
        self.form, self.target, self.typical = structure, target, typical
        self.warps, self.stages = options.warps, np.maximum(1.0, options.stages)
        self.options = options
        self.threads = self.warps * target.warp_size
        self.numbers = numbers
        self.zero = np.zeros(len(numbers))
        segments = len(structure.loops) + 1
        part = self.part("loops")
        self.times = [self.zero + 1.0, *(part[:, i, 0] for i in range(segments - 1))]
        self.longest = [self.times[0]]
        for position, loop in enumerate(structure.loops):
            around = self.longest[loop.parent] / np.maximum(self.times[loop.parent], 1e-9)
            self.longest.append(self.times[position + 1] * part[:, position, 1] * around)
        self.issued = [self.zero + 0.0 for _ in range(segments)]
        self.tensor = [self.zero + 0.0 for _ in range(segments)]
        self.linked = [self.zero + 0.0 for _ in range(segments)]
        self.idle = [self.zero + 0.0 for _ in range(segments)]
        self.by_class = np.zeros((segments, len(ISSUED), len(numbers)))
        self.special = self.zero + 0.0
        self.shared = self.zero + 0.0
        self.shared_steps = [self.zero + 0.0 for _ in range(segments)]
        self.barriers = self.zero + 0.0
        self.wavefronts = self.zero + 0.0
        self.l2_bytes = self.zero + 0.0
        self.copies = self.zero + 0.0
        self.mma_text = self.zero + 0.0
        self.fragments = self.zero + 0.0
        self.first = [self.zero + 0.0 for _ in range(segments)]
        self.asynchronous = [self.zero > 0 for _ in range(segments)]
        self.kinds: list[Row] = []

    def part(self, name: str) -> Row:
        """Return a part of the tiles' numbers: a row a config, a member each, its numbers."""
        place, width = self.form.parts[name]
        numbers: Row = self.numbers[:, place].reshape(len(self.numbers), -1, width)
        return numbers

    def pipelined(self, segment: int) -> NDArray[np.bool_]:
        """Return whether a segment's loads are copied ahead, config by config."""
        if segment == 0 or not self.form.loops[segment - 1].pipelines:
            return self.zero > 0
        return self.depth(segment) > 1

    def depth(self, segment: int) -> Row:
        """Return the depth of a segment's pipeline."""
        if segment and self.form.loops[segment - 1].own_stages:
            own: Row = np.maximum(1.0, self.part("loops")[:, segment - 1, 2])
            return own
        return self.stages

    def ahead(self, place: int) -> NDArray[np.bool_]:
        """Return whether an access is copied ahead, config by config; 4 bytes at once at least."""
        one = self.form.accesses[place]
        own = one.segment > 0 and self.form.loops[one.segment - 1].own_stages
        if one.kind != "read" or not (one.feeds_product or own):
            return self.zero > 0
        wide = self.moves(self.part("accesses")[:, place])[1] * one.element_bytes >= 4
        return self.pipelined(one.segment) & (wide | one.bulk)

    def moves(self, numbers: Row) -> tuple[Row, Row]:
        """Return an access' instructions a thread, and elements of each."""
        elements, run = numbers[:, 0], numbers[:, 1]
        vector: Row = np.clip(np.minimum(run, elements / self.threads), 1.0, None)
        return np.maximum(1.0, elements / self.threads / vector), vector

    def move_shared(self, segment: int, size: Row, width: float, runs: Row) -> None:
        """Count moves of `size` bytes of a program to or from shared memory, a run."""
        steps = np.where(size > 0, np.maximum(1.0, size / self.threads / width), 0.0) * runs
        self.issued[segment] += steps
        self.shared_steps[segment] += steps
        self.shared += size * runs * self.times[segment]

    def add_tensor(self, dot: DotForm, name: str, flops: Row, runs: Row) -> Row:
        """Add a product's cycles to its segment, and return them."""
        operand = _TYPES.get(dot.operand, dot.operand)
        rate = tensor_rate(self.target, name, operand)
        cycles: Row = flops / rate * runs
        self.tensor[dot.segment] += cycles
        return cycles


_SPECIAL: Final = ISSUED.index(OpClass.SPECIAL)

FOR_A_COPY: Final = 5.0
"""Instructions for a tile's copies in each trip: buffer, group and wait (measured on sketches)."""


def add_nodes(d: Demands) -> None:
    """Count element-wise instructions: one at least for each operation that a thread has."""
    if not d.form.nodes:
        return
    counts = d.part("nodes")[:, :, 0]
    addresses = np.array([node[2] for node in d.form.nodes])
    vector = np.where(addresses, vector_of(d), 1.0)
    each = np.maximum(1.0, counts / d.threads[:, None] / vector)
    costs = np.array([node[1] for node in d.form.nodes])
    homes = np.array([node[0] for node in d.form.nodes])
    for segment in range(len(d.times)):
        own = homes == segment
        if own.any():
            added = each[:, own] @ costs[own]
            d.by_class[segment] += added.T
            d.issued[segment] += added.sum(axis=1)
            d.special += added[:, _SPECIAL] * d.times[segment]


def vector_of(d: Demands) -> float:
    """Return the addresses that one instruction of a thread covers, at the median."""
    if d.typical is not None:
        return d.typical.vector
    if not d.form.accesses:
        return 1.0
    runs = d.part("accesses")[:, :, 1]
    return max(1.0, float(np.median(runs)))


def add_pipelines(d: Demands) -> None:
    """Count what copies ahead add to a trip, and the first copies before each loop."""
    part = d.part("accesses")
    for place, one in enumerate(d.form.accesses):
        ahead = d.ahead(place)
        if not ahead.any():
            continue
        count = d.moves(part[:, place])[0]
        first = np.where(ahead, d.depth(one.segment) - 1, 0.0)
        parent = d.form.loops[one.segment - 1].parent
        d.copies += np.where(ahead & (not one.bulk), count, 0.0)
        d.issued[one.segment] += np.where(ahead, FOR_A_COPY, 0.0)
        d.issued[parent] += np.where(one.bulk, 4.0, count) * first
        d.first[one.segment] += first


def add_collectives(d: Demands) -> None:
    """Count reductions and scans: a thread's own elements, its warp's lanes, then all warps."""
    part = d.part("collectives")
    for place, one in enumerate(d.form.collectives):
        entering, leaving, length = (part[:, place, i] for i in range(3))
        held = np.maximum(1.0, entering / d.threads)
        if one.of_product:
            lanes, across = d.zero + 4.0, d.zero + 1.0
        else:
            lanes = np.clip(length / 4, 1.0, 32.0)
            across = np.clip(length / 4 / lanes, 1.0, d.warps)
        rows = np.maximum(1.0, leaving * lanes * across / d.threads)
        passes = 2.0 if one.scans else 1.0
        steps = np.log2(lanes) * rows
        total = one.instructions * (passes * held - rows + steps) + steps * one.words
        crossing = (across > 1).astype(float)
        total += crossing * (2 * (rows + 1) + 12 * one.words + one.instructions * 3)
        d.by_class[one.segment][ISSUED.index(OpClass.SHUFFLE)] += steps * one.words
        d.issued[one.segment] += total
        d.shared_steps[one.segment] += crossing * 2 * (rows + 1)
        times = d.times[one.segment]
        d.shared += crossing * 8 * (rows + 1) * d.threads * times
        d.barriers += crossing * 3 * times


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
