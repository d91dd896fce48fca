"""What a check is asked and what it finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.studies.regression.run import BenchSubject

VERDICTS: Final = ("slower", "failed", "faster", "unchanged", "new", "gone", "not judged")
"""In the order in which tables show them."""

_JUDGED: Final = ("slower", "failed", "faster", "unchanged")


@dataclass(frozen=True)
class Terms:
    """How a check judges.

    Attributes:
        threshold: relative slowdown that counts, such as 0.03; None for mean + 3 sd of the
            history.
        level: probability with which a check of unchanged kernels may call any of them slower.
        any_board: whether two boards of one model are taken for one.
    """

    threshold: float | None = 0.03
    level: float = 0.01
    any_board: bool = False

    @property
    def words(self) -> str:
        """`threshold 3%, level 1%`."""
        limit = "mean + 3 sd of the history"
        if self.threshold is not None:
            limit = f"{100 * self.threshold:.3g}%"
        return f"threshold {limit}, level {100 * self.level:.3g}%"


@dataclass(frozen=True)
class CheckFinding:
    """What is said of one subject.

    Attributes:
        subject: what it is of.
        verdict: one of `VERDICTS`.
        base_us, run_us: medians of the processes' medians; None where it was not timed.
        limit_us: what `run_us` must exceed to count as slower; None where nothing is judged.
        chance: of equal kernels to differ as much, before the correction; of the direction in
            which they do.
        remark: what a reader must know, such as another config.
    """

    subject: BenchSubject
    verdict: str
    base_us: float | None = None
    run_us: float | None = None
    limit_us: float | None = None
    chance: float | None = None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """The run's time over the baseline's; above 1 is slower."""
        if self.base_us is None or self.run_us is None:
            return None
        return self.run_us / self.base_us


@dataclass(frozen=True)
class Check:
    """All that a check finds.

    Attributes:
        terms: how it judged.
        base, run: names of the two runs.
        findings: one a subject.
        obstacles: why nothing was judged; empty where it was.
        remarks: what differs between the runs besides times.
    """

    terms: Terms
    base: str
    run: str
    findings: tuple[CheckFinding, ...]
    obstacles: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of each verdict, in the order of `VERDICTS`."""
        tally = Counter(finding.verdict for finding in self.findings)
        return {verdict: tally[verdict] for verdict in VERDICTS if tally[verdict]}

    @property
    def outcome(self) -> Literal["fine", "slower", "incomparable"]:
        """What it comes to: a kernel that fails counts as slower."""
        counts = self.counts
        if "slower" in counts or "failed" in counts:
            return "slower"
        return "fine" if any(verdict in counts for verdict in _JUDGED) else "incomparable"
