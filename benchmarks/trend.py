"""Output of `asmtune check` for a pull request.

    python -m benchmarks.trend

Needs no GPU: reads the processes that `python -m benchmarks.bench_samples` has recorded on one,
makes runs of 8 consecutive ones, and in the last run makes the times of the kernel `PLANTED` 5%
longer. Writes the Markdown into docs/regression.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asmtune.workshop.regression.check_page import check_markdown
from asmtune.workshop.regression.compare import Terms, compare
from asmtune.workshop.regression.run import BenchRun, TimedSubject
from benchmarks.false_alarms import PROCESSES, part, recorded
from benchmarks.harness import between

PLANTED = "softmax"
FACTOR = 1.05
DOCUMENT = Path(__file__).parents[1] / "docs" / "regression.md"
BEGIN, END = "<!-- pull request -->\n", "<!-- end of the pull request -->\n"


def runs(pool: BenchRun) -> list[BenchRun]:
    """Make runs of consecutive processes; the last one's rows of a kernel are slower."""
    starts = range(0, len(pool.processes) - PROCESSES + 1, PROCESSES)
    runs_ = [
        replace(
            part(pool, range(start, start + PROCESSES)),
            date=pool.processes[start + PROCESSES - 1].date,
            label=f"run {number}",
        )
        for number, start in enumerate(starts, 1)
    ]
    rows = tuple(map(_slower, runs_[-1].rows))
    return [*runs_[:-1], replace(runs_[-1], rows=rows)]


def _slower(row: TimedSubject) -> TimedSubject:
    if row.subject.kernel != PLANTED:
        return row
    return replace(row, samples=tuple(tuple(us * FACTOR for us in one) for one in row.samples))


def rewritten(text: str, markdown: str) -> str:
    """Return the document with this Markdown."""
    shown = f"In the pull request:\n\n```text\n{markdown}\n```\n"
    return between(text, BEGIN, END, f"\n{shown}\n", DOCUMENT.name)


def main() -> None:
    """Write the Markdown."""
    pool, _ = recorded()
    every = runs(pool)
    check = compare(every[-2], every[-1], Terms())
    slower = [f.subject.identity for f in check.findings if f.verdict == "slower"]
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(), check_markdown(check)))
    print(f"{len(every)} runs; slower in the last: {', '.join(slower)}")


if __name__ == "__main__":
    main()
