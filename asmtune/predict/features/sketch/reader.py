"""Read a sketch into a profile: the estimate of what `ProfileReader` reads off an artifact."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import occupancy
from asmtune.core.records.artifacts import Sketch
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.catalog import OCCUPANCY
from asmtune.predict.features.profile import Profile, Segment
from asmtune.predict.features.requests import BankWays, Requests
from asmtune.predict.features.sketch.kernel import SketchedKernel
from asmtune.predict.features.sketch.layouts import kind_of
from asmtune.predict.features.sketch.memory import Sums
from asmtune.predict.features.sketch.moves import bank_ways, global_requests
from asmtune.predict.features.sketch.values import Values

_ALIASES: Final = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape", "ttg.convert_layout",
     "ttng.warp_group_dot_wait", "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui"}
)  # fmt: skip
"""Operations whose result mostly is their operand, in the same registers."""

POINTER_SHARE: Final = 0.2
"""Share of addresses, other than loops' own values, that are kept in registers (measured)."""

K_STEPS: Final = 2
"""Steps along K whose operands of mma.sync are in registers at once (measured)."""

COPY_WORDS: Final = 1.0
"""Words for each asynchronous copy of a loop: its address in shared memory."""

STORE_WORDS: Final = 0.5
"""Words for each store to shared memory of a loop: its address (measured)."""

_FREE: Final = frozenset({"arith.constant", "tt.make_range", "ub.poison"})


class Valued(Protocol):
    """Values, the elements of each, and sums by segment, from which live registers are counted."""

    values: Values
    sums: list[Sums]

    def elements(self, value: int) -> float:
        """Return the different elements of a value that are kept in registers."""


class LiveRegisters:
    """The words of registers that a thread needs: an estimate of what an allocator would need.

    Values live from the operation that makes them to the last that reads them; values that a loop
    reads from outside live until its end. A result takes the place of operands that are read for
    the last time, since machine code works on one element after another.
    """

    def __init__(self, kernel: Valued) -> None:
        self._kernel = kernel
        self._born: dict[int, int] = {}
        self._dies: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        self._loops: list[tuple[int, int]] = []
        self._spans: dict[int, tuple[int, int]] = {}
        self._clock = 0
        for body in kernel.values.tree.blocks:
            self._walk(body)
        self._extend()

    def _walk(self, body: Body) -> None:
        for argument in body.arguments:
            self._born.setdefault(argument, self._clock)
        for node in body.nodes:
            self._clock += 1
            for value in node.operands:
                self._dies[self._root(value)] = self._clock
            start = self._clock
            if node.name not in ("tt.reduce", "tt.scan"):
                for region in node.regions:
                    for inner in region:
                        self._walk(inner)
            if node.loop >= 0:
                self._clock += 1
                self._loops.append((start, self._clock))
                self._spans[node.loop] = (start, self._clock)
            self._make(node)

    def _make(self, node: Node) -> None:
        for place, result in enumerate(node.results):
            if node.name in _ALIASES and place < len(node.operands) and self._aliases(node):
                self._roots[result] = self._root(node.operands[place])
            self._born.setdefault(result, self._clock)

    def _aliases(self, node: Node) -> bool:
        if node.name != "ttg.convert_layout":
            return True
        layouts = [self._kernel.values.layout(v) for v in (node.operands[0], node.results[0])]
        return layouts[0].warps == layouts[1].warps and layouts[0].lanes == layouts[1].lanes

    def _root(self, value: int) -> int:
        while value in self._roots:
            value = self._roots[value]
        return value

    def _extend(self) -> None:
        """Keep the values that a loop reads from outside alive until the loop's end."""
        for value, died in self._dies.items():
            born = self._born.get(value, 0)
            for start, end in self._loops:
                if born < start < died <= end:
                    self._dies[value] = max(self._dies[value], end)

    def peak(self) -> float:
        """Return the words at the point where most are needed."""
        changes: defaultdict[int, float] = defaultdict(float)
        for value, died in self._dies.items():
            words = self._words(value)
            if words and value not in self._roots:
                changes[self._born.get(value, 0)] += words
                changes[died] -= words
        for start, end, words in self._places():
            changes[start] += words
            changes[end] -= words
        most = now = 0.0
        for moment in sorted(changes):
            now += changes[moment]
            most = max(most, now)
        return most

    def _places(self) -> list[tuple[int, int, float]]:
        """Return loops with the words that addresses in shared memory take."""
        places = []
        for loop, (start, end) in self._spans.items():
            sums = self._kernel.sums[loop + 1]
            stores = sum(
                number
                for moved, number in sums.traffic.items()
                if (moved.space, moved.direction) == ("shared", "store")
            )
            copies = sums.classes[OpClass.ASYNC_COPY]
            places.append((start, end, COPY_WORDS * copies + STORE_WORDS * stores))
        return places

    def _words(self, value: int) -> float:
        values = self._kernel.values
        owner, _ = values.tree.sources[value]
        if isinstance(owner, Node) and owner.name in _FREE:
            return 0.0
        kind = values.kind(value)
        if kind.bits <= 1 or kind.role not in ("tensor", "scalar"):
            return 0.0
        if kind.role == "scalar":
            return max(1.0, kind.bits / 32)
        words = max(1.0, self._kernel.elements(value) * kind.bits / 32)
        if isinstance(owner, Node):
            if kind.is_pointer:
                # Made one at a time where they are used, or as a base and constants.
                return min(words, 2.0 + POINTER_SHARE * words)
            if owner.name == "ttg.local_load" and kind_of(kind.encoding) != "blocked":
                return words * min(1.0, K_STEPS * 16 / max(16, max(kind.shape)))
        return words


_WARPS: Final = re.compile(r'"ttg\.num-warps" = (\d+)').search
_CAP: Final = re.compile(r"ttg\.maxnreg = \d+ : i32(, )?")
_BASE: Final = 12.0
"""Registers that every kernel needs beside its values (measured over the recordings)."""

_UNIT: Final = 8
"""ptxas gives registers in units of this many."""

_SLACK: Final = 0.2
"""Share of the cap that ptxas can save in registers before it spills (measured)."""

_SPILLED: Final = 1.4
"""Words in local memory for each register beyond that (measured)."""

_TEXT: Final = {
    "text_mma_sync": "mma.sync",
    "text_wgmma": "wgmma",
    "text_tcgen05_mma": "tcgen05",
}
_INSTRUCTION_BYTES: Final = 16
_MACHINE_SHARE: Final = 1.3
"""Machine instructions over those of PTX."""


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
        registers, spilled = allocated(self.target, wanted, warps, sketch.metadata.get("maxnreg"))
        fits = occupancy(self.target, warps, registers, sketch.shared_bytes)
        static = {
            **_launch(sketch.metadata),
            **_resources(registers, spilled, sketch.shared_bytes, segments),
            **{name: float(getattr(fits, own)) for name, (own, _) in OCCUPANCY.items()},
            **_text(segments),
            **_instructions(segments),
        }
        return Profile(segments, warps, stages, static, *moves)


def allocated(target: Target, wanted: float, warps: int, cap: int | None) -> tuple[int, float]:
    """Return the registers as allocated, and the words that do not fit."""
    per_thread = target.registers_per_sm // (warps * target.warp_size) // _UNIT * _UNIT
    most = min(target.max_registers_per_thread, max(_UNIT, per_thread))
    if cap:
        most = min(most, int(cap))
    units = -(-int(wanted) // _UNIT) * _UNIT
    return min(units, most), max(0.0, wanted - most * (1.0 + _SLACK)) * _SPILLED


@lru_cache(maxsize=1)
def _read(
    ttgir: str, num_warps: int, compiled_with: tuple[int, int], target: Target
) -> tuple[tuple[Segment, ...], float, tuple[Requests, BankWays]]:
    """Return segments, registers wanted and moves; cached, as neighbours may differ in the cap."""
    kernel = SketchedKernel(ttgir, num_warps, target)
    segments = tuple(sums.segment(*compiled_with) for sums in kernel.sums)
    moves = global_requests(kernel.values), bank_ways(kernel.values, kernel.runs)
    return segments, _BASE + LiveRegisters(kernel).peak(), moves


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
