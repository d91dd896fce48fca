"""A layout of an argument that would be faster, and what converting to it costs.

An access whose neighbours lie far apart asks for whole sectors. With the argument laid out so that
they lie beside each other it would not. The model predicts the launch anew with that stride. What
converting costs is the bytes moved over DRAM's rate, and a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from asmtune.base.text import amount
from asmtune.core.records.verdicts import Features
from asmtune.ir.ttir.work import MemoryAccess
from asmtune.predict.features.cycles import program_cycles
from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile
from asmtune.predict.score.roofline import FASTER, LAUNCH_US, dram_rate, predict
from asmtune.predict.why.access import AccessPattern
from asmtune.predict.why.findings import UNUSED, ExaminedConfig


@dataclass(frozen=True)
class Conversion:
    """A layout in which an argument's strided accesses would lie beside each other.

    Attributes:
        stride_bytes, element_bytes: between neighbours now, and then.
        before_us, after_us: predicted times of the launch.
        moved_bytes: that converting reads and writes; of what is read in part, that part.
        cost_us: of converting once.
        written: whether the kernel writes the argument, so that each launch converts its result.
    """

    argument: str
    line: int
    stride_bytes: int
    element_bytes: int
    before_us: float
    after_us: float
    moved_bytes: float
    cost_us: float
    written: bool

    @property
    def launches(self) -> int:
        """Return the launches on the same data after which converting has paid."""
        return math.ceil(self.cost_us / (self.before_us - self.after_us))

    def __str__(self) -> str:
        text = (
            f"{self.argument} with {self.element_bytes} B instead of {self.stride_bytes:,} B "
            f"between the neighbours of line {self.line}: predicted {self.before_us:.1f} -> "
            f"{self.after_us:.1f} us a launch; converting moves {amount(self.moved_bytes, 'B')} "
            f"in {self.cost_us:.1f} us"
        )
        if not self.written:
            return f"{text}, which {self.launches:,} launches on the same data pay for"
        gain = self.before_us - self.after_us
        if gain > self.cost_us:
            return f"{text} after each launch, less than it gains"
        return f"{text} after each launch, more than it gains: have its reader take that layout"


def conversions(subject: ExaminedConfig, profile: Profile) -> tuple[Conversion, ...]:
    """Return the layouts that are predicted to be faster by 1% or more, an argument each."""
    chosen: dict[str, Conversion] = {}
    for one in _candidates(subject, profile):
        known = chosen.get(one.argument)
        if known is None or one.after_us < known.after_us:
            chosen[one.argument] = one
    return tuple(chosen.values())


def _candidates(subject: ExaminedConfig, profile: Profile) -> Iterator[Conversion]:
    work, target = subject.accesses.work, subject.target
    before = subject.predicted_us
    for pattern in subject.accesses.patterns:
        if pattern.pattern != "strided" or pattern.share > UNUSED:
            continue
        place = pattern.line, pattern.kind
        items = [one for one in work.accesses if (one.line, one.kind) == place]
        uses = [use for use in work.arguments if use.name == pattern.argument]
        if len(uses) != 1 or not items:
            continue
        after = predict(_with_neighbours(subject, profile, items), target).us
        if after > before * (1 - FASTER):
            continue
        written = pattern.kind != "read"
        use = uses[0]
        wanted = use.unique_written_bytes if written else use.unique_read_bytes
        moved = _moved_bytes(pattern, wanted, use.size_bytes)
        numbers = before, after, moved, moved / dram_rate(target) * 1e6 + LAUNCH_US
        strides = pattern.stride_bytes, items[0].element_bytes
        yield Conversion(pattern.argument, pattern.line, *strides, *numbers, written)


def _moved_bytes(pattern: AccessPattern, wanted: float, size: int | None) -> float:
    """Return the bytes that a conversion reads in whole sectors, and writes side by side."""
    sectors = wanted / pattern.tile_share
    return (sectors if size is None else min(sectors, size)) + wanted


def _with_neighbours(
    subject: ExaminedConfig, profile: Profile, items: list[MemoryAccess]
) -> Features:
    """Return the features of the launch if some accesses were contiguous."""
    work = subject.accesses.work
    near = [replace(item, strides=(*item.strides[:-1], 1)) for item in items]
    others = (item for item in work.accesses if item not in items)
    changed = replace(work, accesses=(*others, *near))
    cycles = program_cycles(profile, executions(profile, changed), changed, subject.target)
    values = {"l1_cycles": cycles.l1, "program_l2_bytes": cycles.l2_bytes}
    return Features({**subject.features, **values})
