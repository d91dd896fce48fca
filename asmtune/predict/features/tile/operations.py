"""Element-wise operations, collectives, and copies ahead of a loop's trips."""

from __future__ import annotations

from typing import Final

import numpy as np

from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.tile.demands import Demands
from asmtune.predict.features.tile.forms import ISSUED

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
    """Return the addresses that one instruction of a thread stands for, at the median."""
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
