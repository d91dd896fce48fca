"""Read a sketch into a profile: the estimate of what `ProfileReader` reads off an artifact."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import occupancy
from asmtune.core.records.artifacts import Sketch
from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.catalog import OCCUPANCY
from asmtune.predict.features.profile import Profile, Segment
from asmtune.predict.features.requests import BankWays, Requests
from asmtune.predict.features.sketch.kernel import SketchedKernel
from asmtune.predict.features.sketch.moves import bank_ways, global_requests
from asmtune.predict.features.sketch.registers import BASE, MARGIN, LiveRegisters, allocated

_WARPS: Final = re.compile(r'"ttg\.num-warps" = (\d+)').search
_CAP: Final = re.compile(r"ttg\.maxnreg = \d+ : i32(, )?")
_REQUESTED: Final = re.compile(r"requestedRegisters = array<i32: ([\d, ]+)>").findall
_TEXT: Final = {
    "text_mma_sync": "mma.sync",
    "text_wgmma": "wgmma",
    "text_tcgen05_mma": "tcgen05",
}
_INSTRUCTION_BYTES: Final = 16
_MACHINE_SHARE: Final = 1.3
"""Machine instructions over those of PTX."""


def can_sketch(target: Target) -> bool:
    """Return whether a sketch can be read for a target: AMD's layouts and operations are not."""
    return target.backend == "cuda"


@dataclass(frozen=True)
class SketchReader:
    """Reads sketches for one target; can be sent to a worker process.

    Its profiles have every feature that an artifact's profile has. Options, shared memory and
    tensor FLOPs are exact. Registers, spills and everything that follows from them, instructions
    and bytes are estimates. `stack_bytes` holds spilled words only.
    """

    target: Target

    def __call__(self, sketch: Sketch) -> Profile:
        """Read a sketch into a profile, which holds for every launch of the config.

        Raises:
            ParseError: the TTGIR cannot be read.
        """
        match = _WARPS(sketch.ttgir)
        warps = int(sketch.metadata["num_warps"])
        stages = int(sketch.metadata["num_stages"])
        text = _CAP.sub("", sketch.ttgir, count=1)
        partition = int(match[1]) if match else warps
        segments, wanted, moves = _read(text, partition, (warps, stages), self.target)
        cap = sketch.metadata.get("maxnreg")
        registers, spilled = allocated(self.target, wanted, warps, cap)
        requested = [int(n) for text in _REQUESTED(text) for n in text.split(",")]
        if cap and requested:
            # Partitions give registers to those that ask for more, which then do not spill.
            spilled = allocated(self.target, wanted, partition, max(int(cap), *requested))[1]
        fits = occupancy(self.target, warps, registers, sketch.shared_bytes)
        static = {
            **_launch(sketch.metadata),
            **_resources(registers, spilled, sketch.shared_bytes, segments),
            **{name: float(getattr(fits, own)) for name, (own, _) in OCCUPANCY.items()},
            **_text(segments),
            **_instructions(segments),
        }
        return Profile(segments, warps, stages, static, *moves)


@lru_cache(maxsize=1)
def _read(
    ttgir: str, num_warps: int, compiled_with: tuple[int, int], target: Target
) -> tuple[tuple[Segment, ...], float, tuple[Requests, BankWays]]:
    """Return segments, registers wanted and moves; cached, as neighbours may differ in the cap."""
    kernel = SketchedKernel(ttgir, num_warps, target)
    segments = tuple(sums.segment(*compiled_with) for sums in kernel.sums)
    moves = global_requests(kernel.values), bank_ways(kernel.values, kernel.runs)
    return segments, MARGIN * (BASE + LiveRegisters(kernel).peak()), moves


def _launch(metadata: Mapping[str, Any]) -> dict[str, float]:
    options = {"num_warps": 0.0, "num_stages": 0.0, "num_ctas": 1.0, "maxnreg": 0.0}
    return {name: float(metadata.get(name) or default) for name, default in options.items()}


def _resources(
    registers: int, spilled: float, shared: int, segments: tuple[Segment, ...]
) -> dict[str, float]:
    instructions = sum(sum(segment.classes.values()) for segment in segments)
    return {
        "regs_per_thread": float(registers),
        "spill_words": float(round(spilled)),
        "stack_bytes": 4.0 * round(spilled),
        "shared_bytes": float(shared),
        "code_bytes": float(round(instructions * _MACHINE_SHARE)) * _INSTRUCTION_BYTES,
    }


def _text(segments: tuple[Segment, ...]) -> dict[str, float]:
    classes = _total(segments)
    tensor = dict.fromkeys(_TEXT, 0.0)
    for segment in segments:
        for name, kind in _TEXT.items():
            if any(kind == own for own, _ in segment.flops):
                tensor[name] += segment.classes.get(OpClass.TENSOR, 0)
    copies = classes[OpClass.ASYNC_COPY]
    return {
        **tensor,
        "text_cp_async": float(copies + (classes[OpClass.ASYNC_WAIT] if copies else 0)),
        "text_cp_async_bulk": float(classes[OpClass.BULK_COPY]),
        "text_bar_sync": float(classes[OpClass.BARRIER]),
        "text_bra": float(classes[OpClass.BRANCH]),
        "text_ret": 1.0,
    }


def _total(segments: tuple[Segment, ...]) -> Counter[OpClass]:
    classes: Counter[OpClass] = Counter()
    for segment in segments:
        classes.update(segment.classes)
    return classes


def _instructions(segments: tuple[Segment, ...]) -> dict[str, float]:
    everything, hot_ones = _total(segments), _hot(segments)
    in_loops, hot = _total(segments[1:]), _total(hot_ones)
    features = {
        "instructions": float(everything.total()),
        "instructions_hot": float(hot.total()),
        "loops": float(len(segments) - 1),
        "loop_depth": float(max(segment.depth for segment in segments)),
    }
    for kind in OpClass:
        features[f"{kind}_all"] = float(everything[kind])
        features[f"{kind}_in_loops"] = float(in_loops[kind])
        features[f"{kind}_hot"] = float(hot[kind])
    features["tensor_flops"] = float(sum(sum(s.flops.values()) for s in segments))
    features["tensor_flops_hot"] = float(sum(sum(s.flops.values()) for s in hot_ones))
    hot_bytes: Counter[str] = Counter()
    for moved, times in (item for segment in hot_ones for item in segment.traffic.items()):
        hot_bytes[f"{moved.space}_{moved.direction}_bytes_hot"] += moved.bytes * times
    for space in ("global", "shared"):
        for direction in ("load", "store"):
            name = f"{space}_{direction}_bytes_hot"
            features[name] = float(hot_bytes[name])
    return features


def _hot(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the deepest loop, as `asmtune.ir.asm.counts.hottest_loop`; all without a loop."""

    def rank(segment: Segment) -> tuple[int, bool, int]:
        classes = segment.classes
        return segment.depth, OpClass.TENSOR in classes, sum(classes.values())

    return (max(segments[1:], key=rank),) if len(segments) > 1 else segments
