"""Estimate the features of many configs from the numbers of their tiles, without TTGIR.

The terms are those of `asmtune.predict.features.cycles`, and its constants; here each is an array
over configs. The layouts, which only TTGIR has, are replaced by what Triton usually chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE
from asmtune.core.occupancy import occupancy
from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.chain import COPY_LATENCY, PRODUCT_LATENCY
from asmtune.predict.features.cycles import (
    DEPENDENT_ISSUE,
    DRAIN_LATENCY,
    SPILL_LATENCY,
    l1_sectors,
)
from asmtune.predict.features.sketch.registers import fitted, most_registers
from asmtune.predict.features.tile.demands import (
    Demands,
    Typical,
    add_collectives,
    add_dots,
    add_nodes,
    add_pipelines,
    vector_of,
)
from asmtune.predict.features.tile.interpolate import ISSUED, Row

BASE: Final = 22.0
"""Registers beside the values of tiles: those of a sketch, and scalars (measured on sketches)."""

FOR_AN_ADDRESS: Final = 1.4
"""Registers for the address of each asynchronous copy (measured on sketches)."""

BARRIER_BYTES: Final = 8.0
"""Bytes of the barrier that each stage of bulk copies has."""

FILL_CYCLES: Final = 1600.0
"""Cycles until the first tiles of a pipelined loop are there (measured on sketches)."""


_APART: Final = 4096
"""More than a thread's registers: keeps them apart from the warps in one number."""


def estimate(demands: Demands) -> dict[str, Row]:
    """Return a column for each feature that scorers read, for configs of one structure."""
    return _Estimate(demands).columns()


def typical_of(demands: Demands) -> Typical:
    """Return what is typical of configs, to be assumed of them and of others."""
    estimate(demands)
    return Typical(vector_of(demands), hottest(demands))


def hottest(d: Demands) -> int:
    """Return the hottest loop's segment: of the deepest the one with most instructions."""
    if d.typical is not None:
        return d.typical.hottest
    depths = [0, *(loop.depth for loop in d.form.loops)]
    return max(range(len(depths)), key=lambda s: (depths[s], float(d.issued[s].mean())))


class _Estimate:
    def __init__(self, demands: Demands) -> None:
        self._d = demands

    def columns(self) -> dict[str, Row]:
        """Return the columns."""
        add_nodes(self._d)
        add_dots(self._d)
        add_collectives(self._d)
        add_pipelines(self._d)
        buffers = self._buffers()
        registers, spilled = self._registers()
        limits = self._occupancy(registers, buffers)
        self._accesses(limits, buffers)
        return self._totals(registers, spilled, buffers, limits)

    def _buffers(self) -> Row:
        """Return bytes of shared memory: operands by stages, and what leaves through it."""
        part = self._d.part("accesses")
        kinds = np.max(self._d.kinds, axis=0) if self._d.form.dots else self._d.zero
        segments = len(self._d.times)
        # Loops that follow each other use the same bytes again.
        kept, once = [[self._d.zero + 0.0 for _ in range(segments)] for _ in range(2)]
        leaves = self._d.zero + 0.0
        awaited: set[int] = set()
        for place, one in enumerate(self._d.form.accesses):
            size = part[:, place, 0] * one.element_bytes
            ahead = self._d.ahead(place)
            if one.kind == "read" and (one.feeds_product or ahead.any()):
                depth = np.maximum(1.0, self._d.depth(one.segment))
                copies = np.where(kinds >= 3, depth, np.maximum(1.0, depth - 1))
                kept[one.segment] += np.where(ahead, size * copies, 0.0)
                if one.bulk and one.segment not in awaited:
                    awaited.add(one.segment)
                    kept[one.segment] += np.where(ahead, BARRIER_BYTES * copies, 0.0)
                waits = np.where(ahead, 0.0, size) * one.feeds_product
                if one.segment == 0:
                    kept[0] += np.where(kinds >= 3, waits, 0.0)
                else:
                    once[one.segment] += waits
            elif one.kind == "write" and one.segment == 0 and self._d.form.dots:
                leaves = np.maximum(leaves, size)
        dots = self._d.part("dots")
        for place, dot in enumerate(self._d.form.dots):
            if dot.registers and place:
                # Computed operands of mma.sync change their layout through shared memory.
                size = dots[:, place, 0] * dots[:, place, 2] * dot.operand_bits / 8
                once[dot.segment] += np.where(self._d.kinds[place] == 2, size, 0.0)
        least = 128.0 if self._d.form.collectives else 0.0
        most = np.max([a + b for a, b in zip(kept[1:], once[1:], strict=True)] or [once[0]], axis=0)
        taken: Row = np.maximum(np.maximum(kept[0] + most, leaves * (kinds > 0)), least)
        return taken

    def _registers(self) -> tuple[Row, Row]:
        peak = self._d.part("whole")[:, 0, 0]
        wanted = BASE + peak / self._d.threads + self._d.fragments + FOR_AN_ADDRESS * self._d.copies
        caps = np.stack([self._d.warps, self._d.options.caps], axis=1)
        kinds, back = np.unique(caps, axis=0, return_inverse=True)
        most = [most_registers(self._d.target, int(warps), int(cap)) for warps, cap in kinds]
        registers, spilled = fitted(wanted, np.array(most, dtype=float)[back.ravel()])
        return registers, np.round(spilled)

    def _occupancy(self, registers: Row, shared: Row) -> dict[str, Row]:
        """Return the columns of `catalog.OCCUPANCY`, each unit's limit computed once a value."""
        target, warps = self._d.target, self._d.warps
        keys, back = np.unique(warps * _APART + registers, return_inverse=True)
        fits = [occupancy(target, int(key // _APART), max(1, int(key % _APART)), 0) for key in keys]
        sizes, place = np.unique(np.round(shared), return_inverse=True)
        by_shared = np.array([occupancy(target, 1, 1, int(s)).limit_shared for s in sizes])[place]
        slots = [min(fit.limit_warps, fit.limit_blocks, fit.limit_registers) for fit in fits]
        programs = np.minimum(np.array(slots)[back], by_shared)
        return {
            "programs_per_sm": programs.astype(float),
            "programs_per_sm_by_registers": np.array([float(f.limit_registers) for f in fits])[
                back
            ],
            "programs_per_sm_by_shared": by_shared.astype(float),
            "occupancy": programs * warps / target.max_warps_per_sm,
        }

    def _hits(self, limits: Mapping[str, Row], shared: Row) -> dict[int, Row]:
        """Return the share of each access that L1 serves, as `cycles.Locality` has it."""
        part = self._d.part("accesses")
        resident = np.minimum(
            np.maximum(1.0, limits["programs_per_sm"]),
            np.ceil(self._d.options.programs / self._d.target.sms),
        )
        room = np.maximum(0.0, self._d.target.l1_room(resident * shared))
        by_argument: dict[int, list[int]] = {}
        for place, one in enumerate(self._d.form.accesses):
            if one.kind == "read" and one.argument >= 0:
                by_argument.setdefault(one.argument, []).append(place)
        unique, demand = {}, {}
        for argument, places in by_argument.items():
            moved = [
                part[:, p, 0] * self._d.form.accesses[p].element_bytes * part[:, p, 2]
                for p in places
            ]
            size = self._d.form.accesses[places[0]].size
            different = resident * np.max(moved, axis=0)
            unique[argument] = np.minimum(different, size) if size else different
            demand[argument] = np.maximum(1e-9, resident * np.sum(moved, axis=0))
        footprint = np.sum(list(unique.values()), axis=0) if unique else self._d.zero
        fit = np.where(footprint > 0, np.minimum(1.0, room / np.maximum(footprint, 1e-9)) ** 2, 0)
        return {
            place: np.maximum(0.0, 1.0 - unique[argument] / demand[argument]) * fit
            for argument, places in by_argument.items()
            for place in places
        }

    def _accesses(self, limits: Mapping[str, Row], shared: Row) -> None:
        part = self._d.part("accesses")
        hits = self._hits(limits, shared)
        lanes = float(self._d.target.warp_size)
        sector, at_once = l1_sectors(self._d.target)
        for place, one in enumerate(self._d.form.accesses):
            elements, run, runs, within = (part[:, place, i] for i in range(4))
            here = runs / np.maximum(self._d.times[one.segment], 1e-9)
            wanted = elements * one.element_bytes
            ahead = self._d.ahead(place)
            if one.bulk:
                self._d.l2_bytes += wanted * runs
                self._d.linked[one.segment] += wanted * here
                self._d.shared += wanted * runs
                self._d.issued[one.segment] += 4.0 * here
                continue
            count, vector = self._d.moves(part[:, place])
            width = vector * one.element_bytes
            moved = count * width * self._d.threads
            share = np.minimum(1.0, wanted / np.maximum(moved, 1.0))
            sectors = np.maximum(1.0, width * lanes / sector)
            sectors = np.where(run == 0, lanes * np.maximum(1.0, width / sector), sectors)
            share = np.minimum(share, within)
            kept = share if one.kind == "write" else within
            parent = self._d.form.loops[one.segment - 1].parent if one.segment else 0
            again = np.where(ahead, self._d.depth(one.segment) - 1, 0.0) * self._d.times[parent]
            times = count * (runs + again)
            self._d.wavefronts += np.maximum(1.0, sectors / at_once) * self._d.warps * times * kept
            cached = (one.kind == "read") & ~ahead
            missed = np.where(cached, 1.0 - hits.get(place, self._d.zero), 1.0)
            through = np.maximum(width * self._d.threads, sectors * sector * self._d.warps)
            self._d.l2_bytes += through * count * runs * share * missed
            self._d.linked[one.segment] += through * count * here * share
            self._d.shared += np.where(ahead, moved * runs * share, 0.0)
            self._d.issued[one.segment] += count * here * np.where(ahead, 2.5, 1.0)
            if one.kind == "read" and one.feeds_product:
                # A tile that is not copied ahead is stored to shared memory.
                put = np.where(ahead, 0.0, wanted)
                self._d.move_shared(one.segment, put, 16.0, here)
            if one.kind == "write" and one.segment == 0 and self._d.form.dots:
                self._d.move_shared(0, 2.0 * wanted, 16.0, here)
                self._d.barriers += 1.0

    def _totals(
        self, registers: Row, spilled: Row, shared: Row, limits: Mapping[str, Row]
    ) -> dict[str, Row]:
        latency, longest, instructions = self._d.zero + 0.0, self._d.zero + 0.0, self._d.zero + 0.0
        tensor = self._d.zero + 0.0
        chains = self._d.part("chains")
        barriers = self._d.barriers + 0.0
        for segment, times in enumerate(self._d.times):
            one = self._trip(segment, chains[:, segment])
            stalls = self._d.issued[segment] * DEPENDENT_ISSUE + spilled * SPILL_LATENCY
            latency += (one + stalls) * times
            longest += (one + stalls) * self._d.longest[segment]
            if segment:
                parent = self._d.form.loops[segment - 1].parent
                filled = np.where(self._d.first[segment] > 0, FILL_CYCLES, 0.0)
                filled += self._d.first[segment] / 2 * self._d.linked[segment] / L2_BYTES_PER_CYCLE
                latency += filled * self._d.times[parent]
                longest += filled * self._d.longest[parent]
            instructions += self._d.issued[segment] * times
            tensor += self._d.tensor[segment] * times
            barriers += np.where(self._d.pipelined(segment), 1.0, 0.0) * times
        trips = np.max(self._d.times, axis=0)
        spill_bytes = spilled * 4 * self._d.threads * 3 * trips
        target, programs = self._d.target, self._d.options.programs
        waves = programs / (np.maximum(1.0, limits["programs_per_sm"]) * target.sms)
        hot = self._hot()
        return {
            **limits,
            **hot,
            "programs": programs,
            "waves": waves,
            "tail": np.ceil(waves) - waves,
            "trips": trips,
            "unique_bytes": self._d.part("whole")[:, 0, 1],
            "updates": self._d.part("whole")[:, 0, 2],
            "lock_turns": self._d.part("whole")[:, 0, 3],
            "num_warps": self._d.warps,
            "num_stages": self._d.options.stages,
            "maxnreg": self._d.options.caps,
            "regs_per_thread": registers,
            "spill_words": spilled,
            "stack_bytes": 4.0 * spilled,
            "shared_bytes": np.round(shared),
            "tensor_cycles": tensor,
            "issue_cycles": (instructions + spilled * 2 * trips)
            * self._d.warps
            / target.issue_slots_per_clock_per_sm,
            "shared_cycles": self._d.shared / target.shared_bytes_per_clock_per_sm,
            "l1_cycles": self._d.wavefronts + spill_bytes / 64,
            "special_cycles": self._d.special
            * self._d.threads
            / target.special_functions_per_clock_per_sm,
            "latency_cycles": latency + DRAIN_LATENCY,
            "longest_cycles": longest + DRAIN_LATENCY,
            "program_l2_bytes": self._d.l2_bytes + 0.3 * spill_bytes,
            "program_spill_bytes": spill_bytes,
            "program_instructions": instructions * self._d.warps,
            "program_barriers": barriers,
            "text_mma_sync": self._d.mma_text,
        }

    def _trip(self, segment: int, chain: Row) -> Row:
        """Return the cycles of a segment's pass by a program alone on its SM."""
        busy = self._d.tensor[segment] + self._d.idle[segment]
        link = self._d.linked[segment] / L2_BYTES_PER_CYCLE
        waits: Row = chain[:, 0] + busy + link
        if segment == 0:
            return waits
        ahead = np.maximum(1.0, self._d.depth(segment) - 1)
        arrival = np.maximum(link, (COPY_LATENCY + link) / ahead)
        plain = np.maximum(chain[:, 1] + busy, arrival)
        beside = np.maximum(np.maximum(busy, chain[:, 1] + PRODUCT_LATENCY), arrival)
        copied = np.where(self._d.asynchronous[segment], beside, plain)
        return np.where(self._d.pipelined(segment), copied, waits)

    def _hot(self) -> dict[str, Row]:
        """Return counts of the hottest loop."""
        deepest = hottest(self._d)
        part = self._d.part("accesses")
        loads, moved, copied = self._d.zero + 0.0, self._d.zero + 0.0, self._d.zero + 0.0
        for place, one in enumerate(self._d.form.accesses):
            if one.segment != deepest or one.bulk:
                continue
            count, vector = self._d.moves(part[:, place])
            ahead = self._d.ahead(place)
            copied += np.where(ahead, count, 0.0)
            loads += np.where(ahead, 0.0, count)
            if one.kind == "read":
                moved += count * vector * one.element_bytes
        by_class = dict(zip(ISSUED, self._d.by_class[deepest], strict=True))
        return {
            "instructions_hot": self._d.issued[deepest],
            "integer_hot": by_class[OpClass.INTEGER],
            "convert_hot": by_class[OpClass.CONVERT],
            "shuffle_hot": by_class[OpClass.SHUFFLE],
            "shared_hot": self._d.shared_steps[deepest],
            "global_hot": loads,
            "async_copy_hot": copied,
            "global_load_bytes_hot": moved,
        }
