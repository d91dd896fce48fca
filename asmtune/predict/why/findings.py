"""Findings on a config: classes of slowness that people know, with numbers.

Each finding is printed only where its numbers reach a limit stated here. What to try is said once
a config (`roofline.suggestions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from asmtune.base.text import amount
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile
from asmtune.predict.score.roofline import changed_axes, predict, tail_us
from asmtune.predict.why.access import UNUSED, AccessPattern, access_patterns

TELLING: Final = 0.05
"""Share of the traffic, or of the predicted time, below which nothing is said."""

WAITING: Final = 0.15
"""Share of the predicted time that waits, from which stages or occupancy are the cause."""

SHORTER: Final = 0.95
"""Share of a chain of latencies that is left with more stages, at most, where these help."""


@dataclass(frozen=True)
class Finding:
    """A cause of a config's time.

    Attributes:
        kind: "uncoalesced access", "bank conflicts", "too few stages", "register pressure" or
            "tail".
        text: its numbers, as a sentence without a full stop.
        line: of the source; None where it is of the whole launch.
        cost_us: of the predicted time, where the model has it.
    """

    kind: str
    text: str
    line: int | None = None
    cost_us: float | None = None


@dataclass(frozen=True)
class ExaminedConfig:
    """A compiled config in one launch, and the verdicts on the others of its space."""

    verdict: Verdict
    features: Features
    profile: Profile
    work: Work
    target: Target
    others: Sequence[Verdict]

    @cached_property
    def patterns(self) -> tuple[AccessPattern, ...]:
        """Return the access patterns by line."""
        return access_patterns(self.profile, self.work, self.target)

    @cached_property
    def predicted_us(self) -> float:
        """Return the predicted time."""
        return predict(self.features, self.target).us

    def waiting_us(self) -> float:
        """Return the part of the predicted time that waits for the chain of latencies."""
        return predict(self.features, self.target).terms_us["latency"]


@dataclass(frozen=True)
class Explanation:
    """Accesses by line, and findings; `failure` says why they are missing."""

    accesses: tuple[AccessPattern, ...] = ()
    findings: tuple[Finding, ...] = ()
    failure: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        findings = [asdict(one) for one in self.findings]
        accesses = [{**asdict(one), "text": str(one)} for one in self.accesses]
        return {"accesses": accesses, "findings": findings, "failure": self.failure or None}


def reasons(
    profile: Profile, work: Work, target: Target, verdict: Verdict, others: Sequence[Verdict]
) -> Explanation | None:
    """Say why a config takes its time, beside the `others` of its space.

    Return None for a config without features, or of a kernel whose work could not be read.
    """
    if verdict.features is None or not work.accesses:
        return None
    if target.backend != "cuda":
        return Explanation(failure=f"the layouts of {target.arch}'s TTGIR are not read")
    subject = ExaminedConfig(verdict, verdict.features, profile, work, target, others)
    return Explanation(subject.patterns, find(subject))


def find(subject: ExaminedConfig) -> tuple[Finding, ...]:
    """Return the findings on a config."""
    classes = (_uncoalesced, _conflicts, _stages, _registers, _tail)
    return tuple(finding for one in classes for finding in one(subject))


def _uncoalesced(subject: ExaminedConfig) -> Iterator[Finding]:
    patterns, programs = subject.patterns, subject.features["programs"]
    asked = sum(one.asked_bytes for one in patterns)
    for one in patterns:
        if one.pattern not in ("strided", "gather") or one.share > UNUSED or one.asked <= 1:
            continue
        if one.wasted_bytes < TELLING * asked:
            continue
        wasted, own = one.wasted_bytes * programs, one.asked_bytes * programs
        text = f"{one}; {amount(wasted, 'B')} of {amount(own, 'B')} in all requests are not used"
        yield Finding("uncoalesced access", text, one.line)


def _conflicts(subject: ExaminedConfig) -> Iterator[Finding]:
    """Yield the costliest accesses of shared memory whose lanes meet in banks."""
    features, target, profile = subject.features, subject.target, subject.profile
    runs = executions(profile, subject.work, target.warp_size)
    threads = profile.num_warps * target.warp_size
    moved: dict[tuple[int, str], float] = {}
    for segment, run in zip(profile.segments, runs, strict=True):
        for traffic, count in segment.traffic.items():
            direction = "copy" if traffic.copies else traffic.direction
            if traffic.space == "shared" or traffic.copies:
                size = max(traffic.bytes, 4) * threads * count * run.times
                place = traffic.line, direction
                moved[place] = moved.get(place, 0.0) + size
    costs = {
        place: (ways - 1) * moved.get(place, 0.0) / target.shared_bytes_per_clock_per_sm
        for place, ways in profile.bank_ways.items()
        if ways >= 2
    }
    for (line, direction), cycles in sorted(costs.items(), key=lambda cost: -cost[1]):
        cost = cycles * features["programs"] / target.sms / target.clock_hz * 1e6
        if cost >= TELLING * subject.predicted_us:
            words = {"load": "load from", "store": "store to", "copy": "copy into"}[direction]
            ways = profile.bank_ways[line, direction]
            text = (
                f"line {line}: {words} shared memory: {ways:.3g} times the passes that its bytes "
                f"need, {cost:.1f} of {subject.predicted_us:.1f} us"
            )
            yield Finding("bank conflicts", text, line, cost)


def _stages(subject: ExaminedConfig) -> Iterator[Finding]:
    features, work = subject.features, subject.work
    cost, trips = subject.waiting_us(), features["trips"]
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
    yield Finding("too few stages", text, loop.line, cost)


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
        return shortest < SHORTER * features["latency_cycles"]
    loops = subject.work.loops
    pipelined = any(loop.has_dot or loop.num_stages for loop in loops)
    return pipelined and features["num_stages"] <= 2


def _registers(subject: ExaminedConfig) -> Iterator[Finding]:
    features = subject.features
    registers, spilled = features["regs_per_thread"], features["spill_words"]
    if spilled:
        moved = features["program_spill_bytes"] * features["programs"]
        text = (
            f"{registers:.0f} registers a thread are not enough: {spilled:,.0f} words a thread "
            f"are spilled, {amount(moved, 'B')} through L1 in all"
        )
        yield Finding("register pressure", text)
        return
    fits, by_registers = features["programs_per_sm"], features["programs_per_sm_by_registers"]
    limits = by_registers <= fits and by_registers < features["programs_per_sm_by_shared"]
    cost = subject.waiting_us()
    is_few = features["occupancy"] < 0.5 and features["waves"] > 1
    if limits and is_few and cost >= WAITING * subject.predicted_us:
        text = (
            f"{registers:.0f} registers a thread let {fits:.0f} programs run on an SM "
            f"({features['occupancy']:.0%} of its warps), where shared memory allows "
            f"{features['programs_per_sm_by_shared']:.0f}: {cost:.1f} of "
            f"{subject.predicted_us:.1f} us wait"
        )
        yield Finding("register pressure", text, None, cost)


def _tail(subject: ExaminedConfig) -> Iterator[Finding]:
    features, target = subject.features, subject.target
    cost = tail_us(features, target)
    if cost < TELLING * subject.predicted_us:
        return
    text = _spread(features, target.sms)
    longest, mean = features["longest_cycles"], features["latency_cycles"]
    if longest > 1.1 * mean:
        text += f", and the longest takes {longest / mean:.1f} times the mean"
    text += f": {cost:.1f} of {subject.predicted_us:.1f} us"
    yield Finding("tail", text, None, cost)


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
