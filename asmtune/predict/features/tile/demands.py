"""Demands of programs, an element a config: element-wise work, collectives and copies ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.hardware.model import Target, tensor_rate
from asmtune.ir.asm.nvptx import OpClass
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
    """What holds of most of the configs, and is assumed of all.

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
        kinds: instruction of each product, see `products.instruction`.
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
