"""Findings on a config: classes of slowness that people know, with numbers and what to try.

Each finding is printed only where its numbers reach a limit stated here. The advice is made of
configs of the kernel's own space that lower what the finding is about, and that are predicted to
be faster by 1% or more.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Final

from asmtune.base.text import amount
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.score.roofline import (
    MOST_SUGGESTED,
    Suggestion,
    changed_axes,
    dram_rate,
    predict,
    suggestions,
    tail_us,
)
from asmtune.predict.why.access import KernelAccesses
from asmtune.predict.why.addresses import Linear
from asmtune.predict.why.banks import bank_conflicts

UNUSED: Final = 0.5
"""Share of a request's sectors that is used, up to which an access is uncoalesced."""

TELLING: Final = 0.05
"""Share of the traffic, or of the predicted time, below which nothing is said."""

WAITING: Final = 0.15
"""Share of the predicted time that waits, from which stages or occupancy are the cause."""

AGAIN: Final = 1.25
"""Bytes that come from DRAM over different bytes, from which L2 misses are told."""

LOWER: Final = 0.95
"""Factor by which a config of the advice lowers what the finding is about, at least."""

_MOST_PROGRAMS: Final = 2048
"""Programs whose reads are replayed; two waves at least."""

Measure = Callable[[Features], float]


@dataclass(frozen=True)
class Finding:
    """A cause of a config's time.

    Attributes:
        kind: "uncoalesced access", "L2 misses", "bank conflicts", "too few stages",
            "register pressure" or "tail".
        text: its numbers, as a sentence without a full stop.
        line: of the source; None where it is of the whole launch.
        cost_us: of the predicted time, where the model has it.
        measures: what a config must lower to help, the most telling first.
        advice: up to two changes of axes that are predicted to help.
    """

    kind: str
    text: str
    line: int | None = None
    cost_us: float | None = None
    measures: tuple[Measure, ...] = ()
    advice: tuple[Suggestion, ...] = ()


@dataclass(frozen=True)
class ExaminedConfig:
    """A config with its accesses, the verdicts of its space, and whether that was searched."""

    verdict: Verdict
    features: Features
    accesses: KernelAccesses
    others: Sequence[Verdict]

    @property
    def target(self) -> Target:
        """Return the machine."""
        return self.accesses.target

    @cached_property
    def predicted_us(self) -> float:
        """Return the predicted time."""
        return predict(self.features, self.target).us

    def term(self, *names: str) -> Measure:
        """Return a measure: microseconds of some terms of the predicted time."""

        def sum_of(features: Features) -> float:
            terms = predict(features, self.target).terms_us
            return sum(terms[name] for name in names)

        return sum_of


def find(subject: ExaminedConfig) -> tuple[Finding, ...]:
    """Return the findings on a config, each with its advice."""
    classes = (_uncoalesced, _l2_misses, _conflicts, _stages, _registers, _tail)
    found = (finding for one in classes for finding in one(subject))
    return tuple(replace(finding, advice=_advice(subject, finding)) for finding in found)


def _advice(subject: ExaminedConfig, finding: Finding) -> tuple[Suggestion, ...]:
    """Return up to two changes that lower a measure of the finding, the most telling one first."""
    chosen: dict[frozenset[str], Suggestion] = {}
    for measure in finding.measures:
        limit = LOWER * measure(subject.features)
        better = [v for v in subject.others if v.features and measure(v.features) <= limit]
        for suggestion in suggestions(subject.verdict, better):
            axes = changed_axes(subject.verdict.config, suggestion.verdict.config)
            chosen.setdefault(axes, suggestion)
    return tuple(chosen.values())[:MOST_SUGGESTED]


def bytes_of(number: float) -> str:
    """Format a number of bytes: `448 MiB`."""
    return amount(number, "B")


def _l2_bytes(features: Features) -> float:
    return features["programs"] * features["program_l2_bytes"]


def _uncoalesced(subject: ExaminedConfig) -> Iterator[Finding]:
    patterns, programs = subject.accesses.patterns, subject.features["programs"]
    asked = sum(one.asked_bytes for one in patterns)
    for one in patterns:
        if one.pattern not in ("strided", "gather") or one.share > UNUSED or one.asked <= 1:
            continue
        if one.wasted_bytes < TELLING * asked:
            continue
        wasted, own = one.wasted_bytes * programs, one.asked_bytes * programs
        text = f"{one}; {bytes_of(wasted)} of {bytes_of(own)} in all requests are not used"
        measures = (_l2_bytes, subject.term("L1", "L2", "DRAM", "latency"))
        yield Finding("uncoalesced access", text, one.line, measures=measures)


def _l2_misses(subject: ExaminedConfig) -> Iterator[Finding]:
    """Yield a finding where tiles that several waves read do not stay in L2."""
    target, features, accesses = subject.target, subject.features, subject.accesses
    resident = max(1, round(features["programs_per_sm"])) * target.sms
    different = accesses.work.unique_read_bytes
    if different <= target.l2_bytes or features["programs"] <= resident:
        return
    read = sum(item.bytes for item in accesses.work.accesses if item.kind == "read")
    if read * features["programs"] < AGAIN * different:
        return
    replayed = _replayed(accesses, resident, target.l2_bytes)
    misses = min(replayed.misses * features["programs"] / replayed.programs, _l2_bytes(features))
    factor = misses / different
    if factor < AGAIN or replayed.misses < AGAIN * replayed.different:
        return
    cost = (factor - 1) * different / dram_rate(target) * 1e6
    if cost < TELLING * subject.predicted_us:
        return
    through = _l2_bytes(features)
    text = (
        f"{bytes_of(different)} different bytes are read, and {bytes_of(through)} go through "
        f"L2 of {bytes_of(target.l2_bytes)}: {resident} programs at a time, each byte comes "
        f"{factor:.1f} times from DRAM, {bytes_of(misses)} in all, {cost:,.1f} us more at its rate"
    )
    measures = (_l2_bytes, subject.term("L2", "DRAM"))
    yield Finding("L2 misses", text, cost_us=cost, measures=measures)


_Piece = tuple[tuple[int, ...], tuple[Linear, ...]]


@dataclass(frozen=True)
class _Replayed:
    """Bytes that the first programs of a launch read from DRAM, and different ones of them."""

    programs: int
    misses: float
    different: float


def _replayed(accesses: KernelAccesses, resident: int, l2_bytes: int) -> _Replayed:
    """Replay the reads of the first programs through an L2 that keeps what was read last.

    What one program reads by one operation is one piece, known by its first address. The programs
    of a wave read in step, so that a piece comes once a wave at most.
    """
    x, y, z = accesses.call.grid
    programs = ((x_, y_, z_) for z_, y_, x_ in product(range(z), range(y), range(x)))
    reads = {
        (item.line, item.arguments): (node, item.bytes)
        for node, item in accesses.operations()
        if item.kind == "read"
    }
    kept: OrderedDict[_Piece, float] = OrderedDict()
    size = misses = 0.0
    different: dict[_Piece, float] = {}
    replayed = min(x * y * z, max(2, math.ceil(_MOST_PROGRAMS / resident)) * resident)
    for _ in range(math.ceil(replayed / resident)):
        wave: dict[_Piece, float] = {}
        for program in islice(programs, resident):
            addresses = accesses.of_program(program)
            for (_, arguments), (node, read) in reads.items():
                wave[arguments, accesses.start(node, addresses)] = read
        for piece, read in wave.items():
            different[piece] = read
            if piece not in kept:
                misses += read
                size += read
            kept[piece] = read
            kept.move_to_end(piece)
        while size > l2_bytes and kept:
            size -= kept.popitem(last=False)[1]
    return _Replayed(replayed, misses, sum(different.values()))


def _conflicts(subject: ExaminedConfig) -> Iterator[Finding]:
    features, target = subject.features, subject.target
    for one in bank_conflicts(subject.accesses, round(features["num_stages"])):
        cost = one.cycles * features["programs"] / target.sms / target.clock_hz * 1e6
        if cost >= TELLING * subject.predicted_us:
            measures = (subject.term("shared"),)
            yield Finding("bank conflicts", str(one), one.line, cost, measures)


def _stages(subject: ExaminedConfig) -> Iterator[Finding]:
    features, work = subject.features, subject.accesses.work
    waiting = subject.term("latency")
    cost, trips = waiting(features), features["trips"]
    reading = {item.loop for item in work.accesses if item.kind == "read" and item.elements > 1}
    loops = [loop for loop in work.loops if loop.id in reading and loop.iterations >= 2]
    if cost < WAITING * subject.predicted_us or not loops or not _too_shallow(subject):
        return
    resident, stages = max(1.0, features["programs_per_sm"]), features["num_stages"]
    chain = features["latency_cycles"] / max(1.0, trips)
    loop = max(loops, key=lambda loop: loop.iterations)
    text = (
        f"line {loop.line}: num_stages={stages:.0f}: a trip's chain of latencies takes "
        f"{chain:,.0f} cycles, and {resident:.0f} program{'s' * (resident > 1)} on an SM do not "
        f"fill them: {cost:.1f} of {subject.predicted_us:.1f} us wait"
    )
    yield Finding("too few stages", text, loop.line, cost, (_latency_cycles, waiting))


def _latency_cycles(features: Features) -> float:
    return features["latency_cycles"] * features["programs"]


def _too_shallow(subject: ExaminedConfig) -> bool:
    """Return whether more stages would shorten a program's chain of latencies.

    The space's own configs with more stages tell. Where it has none, one or two stages are few,
    if Triton pipelines the loop: it multiplies matrices, or the source asks for it.
    """
    own, features = subject.verdict.config, subject.features
    deeper = [
        v.features
        for v in subject.others
        if v.features
        and changed_axes(own, v.config) == {"num_stages"}
        and v.features["num_stages"] > features["num_stages"]
    ]
    if deeper:
        shortest = min(other["latency_cycles"] for other in deeper)
        return shortest < LOWER * features["latency_cycles"]
    loops = subject.accesses.work.loops
    pipelined = any(loop.has_dot or loop.num_stages for loop in loops)
    return pipelined and features["num_stages"] <= 2


def _registers(subject: ExaminedConfig) -> Iterator[Finding]:
    features = subject.features
    registers, spilled = features["regs_per_thread"], features["spill_words"]
    if spilled:
        moved = features["program_spill_bytes"] * features["programs"]
        text = (
            f"{registers:.0f} registers a thread are not enough: {spilled:,.0f} words a thread "
            f"are spilled, {bytes_of(moved)} through L1 in all"
        )

        def words(other: Features) -> float:
            return other["spill_words"]

        yield Finding("register pressure", text, measures=(words,))
        return
    fits, by_registers = features["programs_per_sm"], features["programs_per_sm_by_registers"]
    limits = by_registers <= fits and by_registers < features["programs_per_sm_by_shared"]
    waiting = subject.term("latency")
    cost = waiting(features)
    is_few = features["occupancy"] < 0.5 and features["waves"] > 1
    if limits and is_few and cost >= WAITING * subject.predicted_us:
        text = (
            f"{registers:.0f} registers a thread let {fits:.0f} programs run on an SM "
            f"({features['occupancy']:.0%} of its warps), where shared memory allows "
            f"{features['programs_per_sm_by_shared']:.0f}: {cost:.1f} of "
            f"{subject.predicted_us:.1f} us wait"
        )
        yield Finding("register pressure", text, None, cost, (waiting,))


def _tail(subject: ExaminedConfig) -> Iterator[Finding]:
    features, target = subject.features, subject.target
    cost = tail_us(features, target)
    if cost < TELLING * subject.predicted_us:
        return
    text = _spread(features, target.sms)
    longest, mean = features["longest_cycles"], features["latency_cycles"]
    if longest > 1.1 * mean:
        text += f", and the longest takes {longest / mean:.1f} times the mean"

    def lost(other: Features) -> float:
        return tail_us(other, target)

    text += f": {cost:.1f} of {subject.predicted_us:.1f} us"
    yield Finding("tail", text, None, cost, (lost,))


def _spread(features: Features, sms: int) -> str:
    """Say how a grid's programs spread over the SMs."""
    programs, at_once = round(features["programs"]), round(features["programs_per_sm"]) * sms
    if programs > at_once:
        full, left = divmod(programs, at_once)
        share = f", and then {left:,} ({left / at_once:.0%} of a wave)" if left else ""
        return f"{programs:,} programs, {at_once:,} at a time: {full:,} full waves{share}"
    full, left = divmod(programs, sms)
    text = f"{programs:,} programs on {sms} SMs"
    if not left:
        return text
    rest = f"{left} run {full + 1}"
    return f"{text}: {sms - left} of them run {full} and {rest}" if full else f"{text}: {rest}"
