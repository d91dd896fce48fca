"""A run against a baseline: which kernels have become slower, at a stated level.

A kernel is slower if both hold:

- The medians of its processes lie above the baseline's by more than chance explains: one-sided
  Mann-Whitney, with Holm's correction over all rows of the check, so that a check in which
  nothing has changed calls any row slower with a probability of `level` at most.
- Its median is beyond a threshold: a factor of the baseline's, or mean + 3 sd of the history.

The first alone would tell of every half percent by which one quarter of an hour differs from the
next; the second alone, of every unlucky run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.measure.timing.statistics import chances, holm
from asmtune.studies.regression.environment import obstacles, remarks
from asmtune.studies.regression.findings import Check, CheckFinding, Terms
from asmtune.studies.regression.history import LEAST_RUNS, HistoryEntry, band_of, comparable
from asmtune.studies.regression.run import BenchRun, Missed, TimedSubject

FALLBACK: Final = 0.03
"""The threshold of a row whose history is too short."""


def compare(
    base: BenchRun, run: BenchRun, terms: Terms, history: Sequence[HistoryEntry] = ()
) -> Check:
    """Judges a run.

    Args:
        base: the baseline.
        run: what is judged.
        terms: at which threshold and level.
        history: earlier runs, oldest first; those of another environment do not count.
    """
    by_history = terms.threshold is None
    found = obstacles(base, run, any_board=terms.any_board or by_history)
    said = remarks(base, run)
    if found:
        rows = [_not_judged(base, row, "environments differ") for row in run.rows]
        return Check(terms, base.name, run.name, tuple(rows), tuple(found), tuple(said))
    known = comparable(history, run)
    if by_history and len(known) < LEAST_RUNS:
        had = f"{len(known)} comparable runs in the history, and {LEAST_RUNS} are needed"
        said.append(f"{had}: judged by a threshold of {FALLBACK:.0%}")
    rows = _judged(base, run, terms, known)
    return Check(terms, base.name, run.name, tuple(rows), (), tuple(said))


def needed(rows: int, level: float) -> int:
    """Processes of each run from which on every row of a check could be found at a level."""
    count = 1
    while 1 / math.comb(2 * count, count) > level / max(1, rows):
        count += 1
    return count


@dataclass(frozen=True)
class _Pair:
    """One subject in both runs, and between what its median may lie."""

    old: TimedSubject
    new: TimedSubject
    least_us: float
    most_us: float
    remark: str


def _judged(
    base: BenchRun, run: BenchRun, terms: Terms, known: Sequence[HistoryEntry]
) -> list[CheckFinding]:
    old = {row.subject.identity: row for row in base.rows}
    new = {row.subject.identity: row for row in run.rows}
    missed = {one.subject.identity: one for one in run.missed}
    pairs = {name: _pair(old[name], new[name], terms, known) for name in old if name in new}
    verdicts = _verdicts(pairs, terms)
    findings = []
    for name, row in old.items():
        findings.append(verdicts[name] if name in new else _gone(row, missed.get(name)))
    fresh = [row for name, row in new.items() if name not in old]
    findings += [CheckFinding(row.subject, "new", run_us=row.median_us) for row in fresh]
    return findings


def _verdicts(pairs: dict[str, _Pair], terms: Terms) -> dict[str, CheckFinding]:
    """Findings of what both runs have, corrected for how many there are."""
    # A row of too few processes could never be found: it is told, and tests nothing.
    able = [name for name, pair in pairs.items() if _able(pair, len(pairs), terms.level)]
    slower = chances([(pairs[n].new.medians_us, pairs[n].old.medians_us) for n in able])
    faster = chances([(pairs[n].old.medians_us, pairs[n].new.medians_us) for n in able])
    is_slower = dict(zip(able, holm(slower, terms.level), strict=True))
    is_faster = dict(zip(able, holm(faster, terms.level), strict=True))
    found = {}
    for name, pair in pairs.items():
        if name not in is_slower:
            had = f"{len(pair.old.samples)} and {len(pair.new.samples)} processes"
            wanted = needed(len(pairs), terms.level)
            advice = f"{had} show nothing at this level: asmtune bench --processes {wanted}"
            found[name] = _finding(pair, "not judged", None, advice)
            continue
        chance = min(slower[able.index(name)], faster[able.index(name)])
        verdict = "unchanged"
        if is_slower[name] and pair.new.median_us > pair.most_us:
            verdict = "slower"
        elif is_faster[name] and pair.new.median_us < pair.least_us:
            verdict = "faster"
        found[name] = _finding(pair, verdict, chance, pair.remark)
    return found


def _able(pair: _Pair, rows: int, level: float) -> bool:
    """Whether the test can tell at all: its least value, all of one side above the other."""
    old, new = len(pair.old.samples), len(pair.new.samples)
    return 1 / math.comb(old + new, new) <= level / rows


def _pair(
    old: TimedSubject, new: TimedSubject, terms: Terms, known: Sequence[HistoryEntry]
) -> _Pair:
    remark = "" if old.config == new.config else f"config was {old.config}, is {new.config}"
    remark = "; ".join(filter(None, [remark, new.remark]))
    band = band_of(known, new.subject) if terms.threshold is None else None
    if band is not None:
        return _Pair(old, new, band.least_us, band.most_us, remark)
    if terms.threshold is None and len(known) >= LEAST_RUNS:
        had = f"fewer than {LEAST_RUNS} runs of the history have it"
        remark = "; ".join(
            filter(None, [remark, f"{had}: judged by a threshold of {FALLBACK:.0%}"])
        )
    factor = 1 + (FALLBACK if terms.threshold is None else terms.threshold)
    return _Pair(old, new, old.median_us / factor, old.median_us * factor, remark)


def _finding(pair: _Pair, verdict: str, chance: float | None, remark: str) -> CheckFinding:
    return CheckFinding(
        pair.new.subject,
        verdict,
        base_us=pair.old.median_us,
        run_us=pair.new.median_us,
        limit_us=pair.most_us,
        chance=chance,
        remark=remark,
    )


def _gone(row: TimedSubject, missed: Missed | None) -> CheckFinding:
    """What the run does not have; a failure is one of the kernel's."""
    failed = missed is not None and missed.why == "failed"
    remark = "not in this run" if missed is None else missed.reason
    return CheckFinding(
        row.subject, "failed" if failed else "gone", base_us=row.median_us, remark=remark
    )


def _not_judged(base: BenchRun, row: TimedSubject, remark: str) -> CheckFinding:
    old = {one.subject.identity: one.median_us for one in base.rows}
    before = old.get(row.subject.identity)
    return CheckFinding(
        row.subject, "not judged", base_us=before, run_us=row.median_us, remark=remark
    )
