"""Estimate the features of many configs from the numbers of their tiles, without TTGIR.

The terms are those of `asmtune.predict.features.cycles`, and its constants; here each is an array
over configs. The layouts, which only TTGIR has, are replaced by what Triton usually chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, tensor_rate
from asmtune.core.occupancy import occupancy
from asmtune.predict.features.catalog import OCCUPANCY
from asmtune.predict.features.chain import COPY_LATENCY, PRODUCT_LATENCY
from asmtune.predict.features.cycles import (
    DEPENDENT_ISSUE,
    DRAIN_LATENCY,
    SHARED_SHARE,
    SPILL_LATENCY,
)
from asmtune.predict.features.profile import ROW_BYTES
from asmtune.predict.features.sketch.reader import K_STEPS, allocated
from asmtune.predict.features.tile.facts import ISSUED, AccessForm, DotForm, Row, Structure
from asmtune.ir.asm.nvptx import OpClass

BASE: Final = 22.0
"""Registers beside the values of tiles: those of a sketch, and scalars (measured on sketches)."""

FOR_AN_ADDRESS: Final = 1.4
"""Registers for the address of each asynchronous copy (measured on sketches)."""

FOR_A_COPY: Final = 5.0
"""Instructions for a tile's copies in each trip: buffer, group and wait (measured on sketches)."""

FILL_CYCLES: Final = 1600.0
"""Cycles until the first tiles of a pipelined loop are there (measured on sketches)."""

_TYPES: Final = {"f32": "tf32", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "s8"}
_WGMMA: Final = frozenset({"f16", "bf16", "f8E4M3FN", "f8E5M2", "i8", "f32"})
_SPECIAL: Final = ISSUED.index(OpClass.SPECIAL)


@dataclass(frozen=True)
class Options:
    """Launch options of the configs, an element each; a cap of 0 is none."""

    warps: Row
    stages: Row
    caps: Row
    programs: Row


def estimate(
    structure: Structure, numbers: Row, options: Options, target: Target
) -> dict[str, Row]:
    """Return a column for each feature that scorers read, for configs of one structure.

    Args:
        structure: of the configs' tiles.
        numbers: one row a config, as `TileFacts.numbers`.
        options: of the configs.
        target: the machine.
    """
    return _Estimate(structure, numbers, options, target).columns()


class _Estimate:
    def __init__(
        self, structure: Structure, numbers: Row, options: Options, target: Target
    ) -> None:
        self.form, self.target = structure, target
        self.warps, self.stages = options.warps, np.maximum(1.0, options.stages)
        self.options = options
        self.threads = self.warps * target.warp_size
        self.numbers = numbers
        self.zero = np.zeros(len(numbers))
        segments = len(structure.loops) + 1
        part = self._part("loops")
        self.times = [self.zero + 1.0, *(part[:, i, 0] for i in range(segments - 1))]
        self.longest = [self.times[0]]
        for position, loop in enumerate(structure.loops):
            around = self.longest[loop.parent] / np.maximum(self.times[loop.parent], 1e-9)
            self.longest.append(self.times[position + 1] * part[:, position, 1] * around)
        self.issued = [self.zero + 0.0 for _ in range(segments)]
        self.tensor = [self.zero + 0.0 for _ in range(segments)]
        self.linked = [self.zero + 0.0 for _ in range(segments)]
        self.flexible = [self.zero + 0.0 for _ in range(segments)]
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

    def _part(self, name: str) -> Row:
        place, width = self.form.parts[name]
        return self.numbers[:, place].reshape(len(self.numbers), -1, width)

    def columns(self) -> dict[str, Row]:
        """Return the columns."""
        self._nodes()
        self._dots()
        self._collectives()
        self._pipelines()
        buffers = self._buffers()
        registers, spilled = self._registers()
        limits = self._occupancy(registers, buffers)
        self._accesses(limits, buffers)
        return self._totals(registers, spilled, buffers, limits)

    def _nodes(self) -> None:
        """Count element-wise instructions: one at least for each operation that a thread has."""
        if not self.form.nodes:
            return
        counts = self._part("nodes")[:, :, 0]
        addresses = np.array([node[2] for node in self.form.nodes])
        vector = np.where(addresses, self._vector(), 1.0)
        each = np.maximum(1.0, counts / self.threads[:, None] / vector)
        costs = np.array([node[1] for node in self.form.nodes])
        homes = np.array([node[0] for node in self.form.nodes])
        for segment in range(len(self.times)):
            own = homes == segment
            if own.any():
                added = each[:, own] @ costs[own]
                self.by_class[segment] += added.T
                self.issued[segment] += added.sum(axis=1)
                self.special += added[:, _SPECIAL] * self.times[segment]

    def _vector(self) -> float:
        """Return the addresses that one instruction of a thread stands for, at the median."""
        if not self.form.accesses:
            return 1.0
        runs = self._part("accesses")[:, :, 1]
        return float(max(1.0, np.median(runs)))

    def _pipelined(self, segment: int) -> NDArray[np.bool_]:
        """Return whether a segment's loads are copied ahead, config by config."""
        if segment == 0 or not self.form.loops[segment - 1].pipelines:
            return self.zero > 0
        return self._depth(segment) > 1

    def _depth(self, segment: int) -> Row:
        own = self.form.loops[segment - 1].num_stages if segment else None
        return self.stages if own is None else self.zero + own

    def instruction(self, dot: DotForm, m: Row, n: Row, batch: Row) -> Row:
        """Return 3 for wgmma, 5 for tcgen05, 2 for mma.sync, and 0 for none, config by config."""
        if dot.precise or (dot.operand_bits > 16 and dot.operand not in ("f32", "i8", "f64")):
            return self.zero + 0.0
        generation = self.target.capability // 10
        if generation not in (9, 10) or dot.operand not in _WGMMA:
            return self.zero + 2.0
        wide = (m >= 64) & (n >= 8) & (self.warps % 4 == 0) & (batch <= 1)
        return np.where(wide, 3.0 if generation == 9 else 5.0, 2.0)

    def _dots(self) -> None:
        part = self._part("dots")
        self.kinds = []
        for place, dot in enumerate(self.form.dots):
            m, n, k, batch, runs = (part[:, place, i] for i in range(5))
            kind = self.instruction(dot, m, n, batch)
            self.kinds.append(kind)
            runs_here = runs / np.maximum(self.times[dot.segment], 1e-9)
            self._wgmma(dot, (m, n, k), kind, runs_here)
            self._mma_sync(dot, (m, n, k, batch), kind, runs_here)
            self._multiply_add(dot, (m, n, k, batch), kind, runs_here)

    def _add_tensor(self, dot: DotForm, name: str, flops: Row, runs: Row) -> Row:
        rate = tensor_rate(self.target, name, _TYPES.get(dot.operand, dot.operand))
        cycles: Row = flops / rate * runs
        self.tensor[dot.segment] += cycles
        return cycles

    def _wgmma(self, dot: DotForm, size: tuple[Row, Row, Row], kind: Row, runs: Row) -> None:
        m, n, k = size
        used = (kind >= 3).astype(float)
        if not used.any():
            return
        step = max(1, 8 * ROW_BYTES // max(1, dot.operand_bits))
        along_m = np.minimum(self.warps, np.maximum(1.0, m // 16))
        columns = np.clip(n / np.maximum(1.0, self.warps // along_m), 8.0, 256.0)
        groups = np.maximum(1.0, self.warps / 4)
        rows = np.ceil(m / (16 * along_m))
        across = np.ceil(n / (columns * np.maximum(1.0, self.warps // along_m)))
        count = rows * across * np.ceil(k / step) * used
        self._add_tensor(dot, "wgmma", count * 2 * 64 * columns * step * groups, runs)
        read = (0.0 if dot.registers else 64.0) + columns
        operands = count * read * ROW_BYTES * groups
        self.shared += operands * runs * self.times[dot.segment] / SHARED_SHARE
        described = count / rows + (0.0 if dot.registers else 1.0) * count / across
        self.issued[dot.segment] += (count + 1.8 * described + 8.0 * used) * runs
        self.barriers += used * runs * self.times[dot.segment]
        self.asynchronous[dot.segment] = self.asynchronous[dot.segment] | (used > 0)

    def _mma_sync(
        self, dot: DotForm, size: tuple[Row, Row, Row, Row], kind: Row, runs: Row
    ) -> None:
        m, n, k, batch = size
        used = (kind == 2).astype(float)
        if not used.any():
            return
        step = max(1, 8 * ROW_BYTES // max(1, dot.operand_bits))
        along_m, along_n = self._warp_grid(dot, m, n)
        rows = np.maximum(1.0, np.ceil(m / (16 * along_m)))
        across = np.maximum(1.0, np.ceil(n / (8 * along_n)))
        count = rows * across * np.maximum(1.0, k // step) * batch * used
        flops = count * 2 * 16 * 8 * step * self.warps
        idle = np.maximum(1.0, 4.0 / self.warps)
        cycles = self._add_tensor(dot, "mma.sync", flops, runs)
        self.flexible[dot.segment] += cycles * (idle - 1.0)
        size_of = dot.operand_bits / 8
        left = 0.0 if dot.registers else rows * 16 * along_m * k * along_n
        right = across * 8 * along_n * k * along_m
        read = (left + right) * size_of * batch * used
        self._read_shared(dot.segment, read, 16.0, runs)
        self.issued[dot.segment] += count * runs
        self.mma_text += count * runs
        pieces = K_STEPS * 16 * (rows * 16 * along_m * along_n + across * 8 * along_n * along_m)
        self.fragments = np.maximum(
            self.fragments, used * pieces * dot.operand_bits / 32 / self.threads
        )

    def _warp_grid(self, dot: DotForm, m: Row, n: Row) -> tuple[Row, Row]:
        """Return the warps along M and N that Triton lays out for mma.sync."""
        if dot.chained:
            return self.warps, self.zero + 1.0
        along_m, along_n = self.zero + 1.0, self.zero + 1.0
        for _ in range(6):
            more = along_m * along_n < self.warps
            down = (m / 16 / along_m >= n / 16 / along_n) & (along_m < m / 16)
            along_m = np.where(more & down, along_m * 2, along_m)
            along_n = np.where(more & ~down, along_n * 2, along_n)
        return along_m, along_n

    def _pipelines(self) -> None:
        """Count what copies ahead add to a trip, and the first copies before each loop."""
        part = self._part("accesses")
        for place, one in enumerate(self.form.accesses):
            ahead = self._ahead(one)
            if not ahead.any():
                continue
            count = self._moves(part[:, place], one)[0]
            first = np.where(ahead, self._depth(one.segment) - 1, 0.0)
            parent = self.form.loops[one.segment - 1].parent
            self.copies += np.where(ahead & (not one.bulk), count, 0.0)
            self.issued[one.segment] += np.where(ahead, FOR_A_COPY, 0.0)
            self.issued[parent] += np.where(one.bulk, 4.0, count) * first
            self.first[one.segment] += first

    def _ahead(self, one: AccessForm) -> NDArray[np.bool_]:
        """Return whether an access is copied ahead, config by config."""
        if one.kind != "read" or not one.feeds_product:
            return self.zero > 0
        return self._pipelined(one.segment)

    def _moves(self, numbers: Row, one: AccessForm) -> tuple[Row, Row]:
        """Return an access' instructions a thread, and elements of each."""
        elements, run = numbers[:, 0], numbers[:, 1]
        vector: Row = np.clip(np.minimum(run, elements / self.threads), 1.0, None)
        return np.maximum(1.0, elements / self.threads / vector), vector

    def _multiply_add(
        self, dot: DotForm, size: tuple[Row, Row, Row, Row], kind: Row, runs: Row
    ) -> None:
        m, n, k, batch = size
        used = (kind == 0).astype(float)
        if not used.any():
            return
        held = np.maximum(1.0, m * n * batch / self.threads)
        side = np.sqrt(held)
        self.issued[dot.segment] += used * held * k * runs
        self.by_class[dot.segment][ISSUED.index(OpClass.FLOAT)] += used * held * k * runs
        read = used * 2 * side * k * dot.operand_bits / 8 * self.threads
        self._read_shared(dot.segment, read, 16.0, runs)

    def _read_shared(self, segment: int, size: Row, width: float, runs: Row) -> None:
        """Count moves of `size` bytes of a program to or from shared memory, a run."""
        steps = np.where(size > 0, np.maximum(1.0, size / self.threads / width), 0.0) * runs
        self.issued[segment] += steps
        self.shared_steps[segment] += steps
        self.shared += size * runs * self.times[segment]

    def _collectives(self) -> None:
        part = self._part("collectives")
        for place, one in enumerate(self.form.collectives):
            entering, leaving, length = (part[:, place, i] for i in range(3))
            held = np.maximum(1.0, entering / self.threads)
            if one.of_product:
                lanes, across = self.zero + 4.0, self.zero + 1.0
            else:
                lanes = np.clip(length / 4, 1.0, 32.0)
                across = np.clip(length / 4 / lanes, 1.0, self.warps)
            rows = np.maximum(1.0, leaving * lanes * across / self.threads)
            passes = 2.0 if one.scans else 1.0
            steps = np.log2(lanes) * rows
            total = one.instructions * (passes * held - rows + steps) + steps * one.words
            crossing = (across > 1).astype(float)
            total += crossing * (2 * (rows + 1) + 12 * one.words + one.instructions * 3)
            self.by_class[one.segment][ISSUED.index(OpClass.SHUFFLE)] += steps * one.words
            self.issued[one.segment] += total
            self.shared_steps[one.segment] += crossing * 2 * (rows + 1)
            times = self.times[one.segment]
            self.shared += crossing * 8 * (rows + 1) * self.threads * times
            self.barriers += crossing * 3 * times

    def _buffers(self) -> Row:
        """Return bytes of shared memory: operands by stages, and what leaves through it."""
        part = self._part("accesses")
        kinds = np.max(self.kinds, axis=0) if self.form.dots else self.zero
        kept, once, leaves = self.zero + 0.0, self.zero + 0.0, self.zero + 0.0
        for place, one in enumerate(self.form.accesses):
            size = part[:, place, 0] * one.element_bytes
            if one.kind == "read" and one.feeds_product:
                ahead = self._pipelined(one.segment)
                depth = np.maximum(1.0, self._depth(one.segment))
                copies = np.where(kinds >= 3, depth, np.maximum(1.0, depth - 1))
                kept += np.where(ahead, size * copies, 0.0)
                waits = np.where(ahead, 0.0, size)
                if one.segment == 0:
                    kept += np.where(kinds >= 3, waits, 0.0)
                else:
                    once += waits
            elif one.kind == "write" and one.segment == 0 and self.form.dots:
                leaves = np.maximum(leaves, size)
        dots = self._part("dots")
        for place, dot in enumerate(self.form.dots):
            if dot.registers and place:
                # Computed operands of mma.sync change their layout through shared memory.
                size = dots[:, place, 0] * dots[:, place, 2] * dot.operand_bits / 8
                once += np.where(self.kinds[place] == 2, size, 0.0)
        least = 128.0 if self.form.collectives else 0.0
        return np.maximum(np.maximum(kept + once, leaves * (kinds > 0)), least)

    def _registers(self) -> tuple[Row, Row]:
        peak = self._part("whole")[:, 0, 0]
        wanted = BASE + peak / self.threads + self.fragments + FOR_AN_ADDRESS * self.copies
        registers, spilled = np.empty_like(wanted), np.empty_like(wanted)
        for place, (words, warps, cap) in enumerate(
            zip(wanted, self.warps, self.options.caps, strict=True)
        ):
            one = allocated(self.target, float(words), int(warps), int(cap))
            registers[place], spilled[place] = one
        return registers, np.round(spilled)

    def _occupancy(self, registers: Row, shared: Row) -> dict[str, Row]:
        keys = np.stack([self.warps, registers, np.round(shared)], axis=1)
        unique, back = np.unique(keys, axis=0, return_inverse=True)
        fits = [occupancy(self.target, int(w), max(1, int(r)), int(s)) for w, r, s in unique]
        return {
            name: np.array([float(getattr(fit, own)) for fit in fits])[back.ravel()]
            for name, (own, _) in OCCUPANCY.items()
        }

    def _hits(self, limits: Mapping[str, Row], shared: Row) -> dict[int, Row]:
        """Return the share of each access that L1 serves, as `cycles.Locality` has it."""
        part = self._part("accesses")
        resident = np.minimum(
            np.maximum(1.0, limits["programs_per_sm"]),
            np.ceil(self.options.programs / self.target.sms),
        )
        room = np.maximum(0.0, self.target.shared_bytes_per_sm - resident * shared)
        by_argument: dict[int, list[int]] = {}
        for place, one in enumerate(self.form.accesses):
            if one.kind == "read" and one.argument >= 0:
                by_argument.setdefault(one.argument, []).append(place)
        unique, demand = {}, {}
        for argument, places in by_argument.items():
            moved = [
                part[:, p, 0] * self.form.accesses[p].element_bytes * part[:, p, 2] for p in places
            ]
            size = self.form.accesses[places[0]].size
            different = resident * np.max(moved, axis=0)
            unique[argument] = np.minimum(different, size) if size else different
            demand[argument] = np.maximum(1e-9, resident * np.sum(moved, axis=0))
        footprint = np.sum(list(unique.values()), axis=0) if unique else self.zero
        fit = np.where(footprint > 0, np.minimum(1.0, room / np.maximum(footprint, 1e-9)) ** 2, 0)
        return {
            place: np.maximum(0.0, 1.0 - unique[argument] / demand[argument]) * fit
            for argument, places in by_argument.items()
            for place in places
        }

    def _accesses(self, limits: Mapping[str, Row], shared: Row) -> None:
        part = self._part("accesses")
        hits = self._hits(limits, shared)
        lanes = float(self.target.warp_size)
        for place, one in enumerate(self.form.accesses):
            elements, run, runs = (part[:, place, i] for i in range(3))
            here = runs / np.maximum(self.times[one.segment], 1e-9)
            wanted = elements * one.element_bytes
            ahead = self._ahead(one)
            if one.bulk:
                self.l2_bytes += wanted * runs
                self.linked[one.segment] += wanted * here
                self.shared += wanted * runs
                self.issued[one.segment] += 4.0 * here
                continue
            count, vector = self._moves(part[:, place], one)
            width = vector * one.element_bytes
            moved = count * width * self.threads
            share = np.minimum(1.0, wanted / np.maximum(moved, 1.0))
            sectors = np.maximum(1.0, width * lanes / 32)
            sectors = np.where(run == 0, lanes * np.maximum(1.0, width / 32), sectors)
            kept = share if one.kind == "write" else 1.0
            parent = self.form.loops[one.segment - 1].parent if one.segment else 0
            again = np.where(ahead, self._depth(one.segment) - 1, 0.0) * self.times[parent]
            times = count * (runs + again)
            self.wavefronts += np.maximum(1.0, sectors / 4) * self.warps * times * kept
            cached = (one.kind == "read") & ~ahead
            missed = np.where(cached, 1.0 - hits.get(place, self.zero), 1.0)
            through = np.maximum(width * self.threads, sectors * 32 * self.warps)
            self.l2_bytes += through * count * runs * share * missed
            self.linked[one.segment] += through * count * here * share
            self.shared += np.where(ahead, moved * runs * share, 0.0)
            self.issued[one.segment] += count * here * np.where(ahead, 2.5, 1.0)
            if one.kind == "read" and one.feeds_product:
                # A tile that is not copied ahead is stored to shared memory.
                put = np.where(ahead, 0.0, wanted)
                self._read_shared(one.segment, put, 16.0, here)
            if one.kind == "write" and one.segment == 0 and self.form.dots:
                self._read_shared(0, 2.0 * wanted, 16.0, here)
                self.barriers += 1.0

    def _totals(
        self, registers: Row, spilled: Row, shared: Row, limits: Mapping[str, Row]
    ) -> dict[str, Row]:
        latency, longest, instructions = self.zero + 0.0, self.zero + 0.0, self.zero + 0.0
        tensor = self.zero + 0.0
        chains = self._part("chains")
        barriers = self.barriers + 0.0
        for segment, times in enumerate(self.times):
            one = self._trip(segment, chains[:, segment])
            stalls = self.issued[segment] * DEPENDENT_ISSUE + spilled * SPILL_LATENCY
            latency += (one + stalls) * times
            longest += (one + stalls) * self.longest[segment]
            if segment:
                parent = self.form.loops[segment - 1].parent
                filled = np.where(self.first[segment] > 0, FILL_CYCLES, 0.0)
                filled += self.first[segment] / 2 * self.linked[segment] / L2_BYTES_PER_CYCLE
                latency += filled * self.times[parent]
                longest += filled * self.longest[parent]
            instructions += self.issued[segment] * times
            tensor += self.tensor[segment] * times
            barriers += np.where(self._pipelined(segment), 1.0, 0.0) * times
        trips = np.max(self.times, axis=0)
        spill_bytes = spilled * 4 * self.threads * 3 * trips
        target, programs = self.target, self.options.programs
        waves = programs / (np.maximum(1.0, limits["programs_per_sm"]) * target.sms)
        hot = self._hot()
        return {
            **limits,
            **hot,
            "programs": programs,
            "waves": waves,
            "tail": np.ceil(waves) - waves,
            "trips": trips,
            "unique_bytes": self._part("whole")[:, 0, 1],
            "num_warps": self.warps,
            "num_stages": self.options.stages,
            "maxnreg": self.options.caps,
            "regs_per_thread": registers,
            "spill_words": spilled,
            "stack_bytes": 4.0 * spilled,
            "shared_bytes": np.round(shared),
            "tensor_cycles": tensor,
            "issue_cycles": (instructions + spilled * 2 * trips)
            * self.warps
            / target.issue_slots_per_clock_per_sm,
            "shared_cycles": self.shared / target.shared_bytes_per_clock_per_sm,
            "l1_cycles": self.wavefronts + spill_bytes / 64,
            "special_cycles": self.special
            * self.threads
            / target.special_functions_per_clock_per_sm,
            "latency_cycles": latency + DRAIN_LATENCY,
            "longest_cycles": longest + DRAIN_LATENCY,
            "program_l2_bytes": self.l2_bytes + 0.3 * spill_bytes,
            "program_spill_bytes": spill_bytes,
            "program_instructions": instructions * self.warps,
            "program_barriers": barriers,
            "text_mma_sync": self.mma_text,
        }

    def _trip(self, segment: int, chain: Row) -> Row:
        """Return the cycles of a segment's pass by a program alone on its SM."""
        busy = self.tensor[segment] + self.flexible[segment]
        link = self.linked[segment] / L2_BYTES_PER_CYCLE
        waits: Row = chain[:, 0] + busy + link
        if segment == 0:
            return waits
        ahead = np.maximum(1.0, self._depth(segment) - 1)
        arrival = np.maximum(link, (COPY_LATENCY + link) / ahead)
        plain = np.maximum(chain[:, 1] + busy, arrival)
        beside = np.maximum(np.maximum(busy, chain[:, 1] + PRODUCT_LATENCY), arrival)
        copied = np.where(self.asynchronous[segment], beside, plain)
        return np.where(self._pipelined(segment), copied, waits)

    def _hot(self) -> dict[str, Row]:
        """Return counts of the hottest loop: the deepest with most instructions."""
        depths = [0, *(loop.depth for loop in self.form.loops)]
        deepest = max(range(len(depths)), key=lambda s: (depths[s], float(self.issued[s].mean())))
        part = self._part("accesses")
        loads, moved, copied = self.zero + 0.0, self.zero + 0.0, self.zero + 0.0
        for place, one in enumerate(self.form.accesses):
            if one.segment != deepest or one.bulk:
                continue
            count, vector = self._moves(part[:, place], one)
            ahead = self._ahead(one)
            copied += np.where(ahead, count, 0.0)
            loads += np.where(ahead, 0.0, count)
            if one.kind == "read":
                moved += count * vector * one.element_bytes
        by_class = dict(zip(ISSUED, self.by_class[deepest], strict=True))
        return {
            "instructions_hot": self.issued[deepest],
            "integer_hot": by_class[OpClass.INTEGER],
            "convert_hot": by_class[OpClass.CONVERT],
            "shuffle_hot": by_class[OpClass.SHUFFLE],
            "shared_hot": self.shared_steps[deepest],
            "global_hot": loads,
            "async_copy_hot": copied,
            "global_load_bytes_hot": moved,
        }
