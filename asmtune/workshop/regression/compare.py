"""Compares a bench run with a baseline: which kernels have become slower, at a stated level.

A kernel is slower if both hold:

- The medians of its processes lie above the baseline's by more than chance explains: one-sided
  Mann-Whitney, with Holm's correction over all rows of the check, so that a check in which
  nothing has changed calls any row slower with a probability of `level` at most.
- Its median is beyond a threshold, a factor of the baseline's.

The first alone would report every half percent by which one quarter of an hour differs from the
next; the second alone, every unlucky run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from asmtune.base.fingerprint import digest, versions
from asmtune.core.records.tuned import SampleStatistics
from asmtune.measure.timing.nvml import device_name, driver_version
from asmtune.measure.timing.statistics import pairs_won, share_of_orders
from asmtune.workshop.regression.run import (
    BenchRun,
    BenchSubject,
    Environment,
    TimedSubject,
    UntimedSubject,
)

VERDICTS: Final = ("slower", "failed", "faster", "unchanged", "new", "gone", "not judged")
"""In the order in which tables show them."""

_JUDGED: Final = ("slower", "failed", "faster", "unchanged")


@dataclass(frozen=True)
class Terms:
    """Threshold and level of a check.

    Attributes:
        threshold: relative slowdown that counts, such as 0.03.
        level: probability with which a check of unchanged kernels may call any of them slower.
        any_board: whether two boards of one model are taken for one.
    """

    threshold: float = 0.03
    level: float = 0.01
    any_board: bool = False

    @property
    def words(self) -> str:
        """Format as `threshold 3%, level 1%`."""
        return f"threshold {100 * self.threshold:.3g}%, level {100 * self.level:.3g}%"


@dataclass(frozen=True)
class CheckFinding:
    """The verdict on one subject.

    Attributes:
        verdict: one of `VERDICTS`.
        base_us, run_us: medians of the processes' medians; None where it was not timed.
        limit_us: what `run_us` must exceed to count as slower; None where nothing is judged.
        chance: of equal kernels to differ as much, before the correction; of the direction in
            which they do.
        remark: what a reader must know, such as another config.
        run_statistics: of all samples of all processes.
    """

    subject: BenchSubject
    verdict: str
    base_us: float | None = None
    run_us: float | None = None
    limit_us: float | None = None
    chance: float | None = None
    remark: str = ""
    run_statistics: SampleStatistics | None = None

    @property
    def ratio(self) -> float | None:
        """Return the run's time over the baseline's; above 1 is slower."""
        if self.base_us is None or self.run_us is None:
            return None
        return self.run_us / self.base_us


@dataclass(frozen=True)
class Check:
    """The findings of a check of two runs, by their names, one a subject.

    Obstacles are why nothing was judged;
    remarks are what differs besides times.
    """

    terms: Terms
    base: str
    run: str
    findings: tuple[CheckFinding, ...]
    obstacles: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Count the verdicts, in the order of `VERDICTS`."""
        tally = Counter(finding.verdict for finding in self.findings)
        return {verdict: tally[verdict] for verdict in VERDICTS if tally[verdict]}

    @property
    def outcome(self) -> Literal["fine", "slower", "incomparable"]:
        """Sum the check up; a kernel that fails counts as slower."""
        counts = self.counts
        if "slower" in counts or "failed" in counts:
            return "slower"
        return "fine" if any(verdict in counts for verdict in _JUDGED) else "incomparable"


_CLOCKS_APART: Final = 0.02
"""Relative difference of two runs' SM clocks that is said."""

_MOST_MHZ: Final = 1e6
"""Whatever a file has beyond is no clock."""


def environment_here() -> Environment:
    """Describe PyTorch's current CUDA device, driver and versions."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(getattr(properties, "uuid", ""))
    return Environment(
        gpu=device_name(),
        board=digest(uuid)[:12] if uuid else "",
        driver=driver_version(),
        versions={**versions(), "cuda": str(torch.version.cuda)},
    )


def obstacles(base: BenchRun, run: BenchRun, *, any_board: bool) -> list[str]:
    """List why two runs may not be compared; empty if they may.

    With `any_board` two boards of one model are taken for one.
    """
    reasons = []
    old, new = base.environment, run.environment
    if old.gpu != new.gpu:
        reasons.append(f"another GPU: the baseline is of {old.gpu}, this run of {new.gpu}")
    if old.driver != new.driver:
        reasons.append(f"another driver: the baseline is of {old.driver}, this run of {new.driver}")
    if old.gpu == new.gpu and not any_board and _other_board(base, run):
        reasons.append(
            f"another board: the baseline is of {old.gpu} {old.board}, this run of {new.board}; "
            "measure both on one, or give --any-board"
        )
    for name in sorted({*base.timing, *run.timing}):
        before, now = base.timing.get(name), run.timing.get(name)
        if before != now:
            reasons.append(f"timed otherwise: {name} was {before}, and is {now}")
    return reasons


def remarks(base: BenchRun, run: BenchRun) -> list[str]:
    """List differences that may explain a change and still allow a comparison."""
    old, new = base.environment, run.environment
    names = sorted({*old.versions, *new.versions})
    pairs = ((n, old.versions.get(n, "none"), new.versions.get(n, "none")) for n in names)
    differences = [
        f"{name}: {before} before, {now} now" for name, before, now in pairs if before != now
    ]
    if old.gpu == new.gpu and _other_board(base, run):
        differences.append(f"board: {old.board} before, {new.board} now; boards of a model differ")
    before_mhz, now_mhz = _sm_mhz(base), _sm_mhz(run)
    if before_mhz and now_mhz and abs(now_mhz / before_mhz - 1) > _CLOCKS_APART:
        differences.append(f"SM clock: {before_mhz:.0f} MHz before, {now_mhz:.0f} MHz now")
    for what, one in (("baseline", base), ("run", run)):
        if reasons := sorted(set(_hindrances(one))):
            differences.append(f"the {what}'s clocks were held back by {', '.join(reasons)}")
    return differences


def _other_board(base: BenchRun, run: BenchRun) -> bool:
    boards = {base.environment.board, run.environment.board}
    return len(boards) > 1 and "" not in boards


def _sm_mhz(run: BenchRun) -> float | None:
    clocks = [process.clocks.get("sm_mhz") for process in run.processes]
    known = [float(mhz) for mhz in clocks if isinstance(mhz, int | float) and 0 < mhz < _MOST_MHZ]
    return median(known) if known else None


def _hindrances(run: BenchRun) -> Iterator[str]:
    for process in run.processes:
        reasons = process.clocks.get("throttled_by")
        yield from map(str, reasons if isinstance(reasons, list) else ())


def compare(base: BenchRun, run: BenchRun, terms: Terms) -> Check:
    """Judge a run against a baseline."""
    reasons = obstacles(base, run, any_board=terms.any_board)
    notes = remarks(base, run)
    if reasons:
        before = {row.subject.identity: row.median_us for row in base.rows}
        rows = [
            CheckFinding(
                row.subject,
                "not judged",
                base_us=before.get(row.subject.identity),
                run_us=row.median_us,
                remark="environments differ",
            )
            for row in run.rows
        ]
        return Check(terms, base.name, run.name, tuple(rows), tuple(reasons), tuple(notes))
    rows = _judged(base, run, terms)
    return Check(terms, base.name, run.name, tuple(rows), (), tuple(notes))


def needed(rows: int, level: float) -> int:
    """Count the processes of a run from which on any row of a check can be judged at a level."""
    count = 1
    while 1 / math.comb(2 * count, count) > level / max(1, rows):
        count += 1
    return count


@dataclass(frozen=True)
class _Pair:
    """A subject in both runs, with the band in which its median counts as unchanged."""

    old: TimedSubject
    new: TimedSubject
    least_us: float
    most_us: float
    remark: str


def _judged(base: BenchRun, run: BenchRun, terms: Terms) -> list[CheckFinding]:
    old = {row.subject.identity: row for row in base.rows}
    new = {row.subject.identity: row for row in run.rows}
    missed = {one.subject.identity: one for one in run.missed}
    pairs = {name: _pair(old[name], new[name], terms) for name in old if name in new}
    verdicts = _verdicts(pairs, terms)
    findings = [
        verdicts[name] if name in new else _gone(row, missed.get(name)) for name, row in old.items()
    ]
    fresh = [row for name, row in new.items() if name not in old]
    return findings + [
        CheckFinding(row.subject, "new", run_us=row.median_us, run_statistics=row.statistics)
        for row in fresh
    ]


def _verdicts(pairs: dict[str, _Pair], terms: Terms) -> dict[str, CheckFinding]:
    """Judge what both runs have, corrected for how many rows there are."""
    # A row of too few processes could never be found: it is reported, and tests nothing.
    able = [name for name, pair in pairs.items() if _able(pair, len(pairs), terms.level)]
    slower = chances([(pairs[n].new.medians_us, pairs[n].old.medians_us) for n in able])
    faster = chances([(pairs[n].old.medians_us, pairs[n].new.medians_us) for n in able])
    is_slower = dict(zip(able, holm(slower, terms.level), strict=True))
    is_faster = dict(zip(able, holm(faster, terms.level), strict=True))
    findings = {}
    for name, pair in pairs.items():
        if name not in is_slower:
            had = f"{len(pair.old.samples)} and {len(pair.new.samples)} processes"
            count = needed(len(pairs), terms.level)
            advice = f"{had} show nothing at this level: asmtune bench --processes {count}"
            findings[name] = _finding(pair, "not judged", None, advice)
            continue
        chance = min(slower[able.index(name)], faster[able.index(name)])
        verdict = "unchanged"
        if is_slower[name] and pair.new.median_us > pair.most_us:
            verdict = "slower"
        elif is_faster[name] and pair.new.median_us < pair.least_us:
            verdict = "faster"
        findings[name] = _finding(pair, verdict, chance, pair.remark)
    return findings


def _able(pair: _Pair, rows: int, level: float) -> bool:
    """Say if the runs have enough processes: the test's least chance is within the level."""
    old, new = len(pair.old.samples), len(pair.new.samples)
    return 1 / math.comb(old + new, new) <= level / rows


def _pair(old: TimedSubject, new: TimedSubject, terms: Terms) -> _Pair:
    parts = ["" if old.config == new.config else f"config was {old.config}, is {new.config}"]
    parts.append(new.remark)
    factor = 1 + terms.threshold
    least_us, most_us = old.median_us / factor, old.median_us * factor
    return _Pair(old, new, least_us, most_us, "; ".join(filter(None, parts)))


def _finding(pair: _Pair, verdict: str, chance: float | None, remark: str) -> CheckFinding:
    return CheckFinding(
        pair.new.subject,
        verdict,
        base_us=pair.old.median_us,
        run_us=pair.new.median_us,
        limit_us=pair.most_us,
        chance=chance,
        remark=remark,
        run_statistics=pair.new.statistics,
    )


def _gone(row: TimedSubject, missed: UntimedSubject | None) -> CheckFinding:
    verdict = "failed" if missed is not None and missed.why == "failed" else "gone"
    remark = "not in this run" if missed is None else missed.reason
    return CheckFinding(row.subject, verdict, base_us=row.median_us, remark=remark)


def chances(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Return the probability that equal sides show each first one so far above its second.

    The one-sided test of Mann and Whitney (1947), exact. Timers tick, so medians of short kernels
    tie; samples of the side that may be greater are then taken to be less. If ties were broken at
    random, the table without ties would hold. This order is the least favourable one, so equal
    sides show a chance of p or less with a probability of at most p. It differs from the share of
    all orders that rank as high, which counts a tie as half. A side has one sample at least, and
    some tens at most.
    """
    return [
        share_of_orders(len(above), len(below), pairs_won(above, below)) for above, below in pairs
    ]


def holm(values: Sequence[float], level: float) -> list[bool]:
    """Return which p-values are significant at a level that holds for all of them together.

    Holm (1979), A simple sequentially rejective multiple test procedure: whatever holds
    between the tests, at least one is reported by mistake with a probability of `level` at most.
    """
    significant = [False] * len(values)
    order = sorted(range(len(values)), key=lambda place: values[place])
    for done, place in enumerate(order):
        if values[place] > level / (len(values) - done):
            break
        significant[place] = True
    return significant
