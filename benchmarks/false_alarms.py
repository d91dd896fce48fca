"""Rates at which `asmtune check` reports a slowdown: without a slowdown, and with a planted one.

    python -m benchmarks.false_alarms [--draws 2000]

Needs no GPU: reads the processes that `python -m benchmarks.bench_samples` has recorded on one,
writes `results/false_alarms.json`. Runs are put together of 8 processes each:
drawn at random, each process in one run at most (equal by construction, so that the stated level
must hold), or one after another, as runs are made (a GPU drifts during them).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, stdev
from typing import Any

from asmtune.workshop.regression.check_page import check_markdown
from asmtune.workshop.regression.compare import Terms, compare
from asmtune.workshop.regression.run import BenchRun, TimedSubject, run_from_json
from benchmarks.bench_samples import FILE as RECORDED
from benchmarks.harness import RESULTS, table, write

FILE = RESULTS / "false_alarms.json"
SLOWED, FACTOR = "softmax", 1.05
"""The kernel of the sample that is made slower by hand, and by how much."""

PROCESSES = 8
LEVEL = 0.01
PLANTED = (1.01, 1.02, 1.03, 1.04, 1.05, 1.08, 1.10)
THRESHOLDS = {"none": 1e-9, "1%": 0.01, "2%": 0.02, "3%": 0.03}

Pair = tuple[BenchRun, BenchRun]


def recorded() -> tuple[BenchRun, dict[str, Any]]:
    """Read all processes as one run, with their provenance and the seconds that each took."""
    document: Any = json.loads(gzip.decompress(RECORDED.read_bytes()))
    seconds = round(document["ended_s"][-1] / len(document["ended_s"]), 2)
    origin = {**document["provenance"], "seconds_a_process": seconds}
    return run_from_json(document["run"], RECORDED.name), origin


def part(pool: BenchRun, places: Sequence[int]) -> BenchRun:
    """Make a run of some processes, each with its median as its sample."""
    rows = []
    for row in pool.rows:
        every = tuple((us,) for us in row.medians_us)
        rows.append(replace(row, samples=tuple(every[place] for place in places)))
    return replace(pool, rows=tuple(rows), processes=())


def drawn(pool: BenchRun, count: int) -> Iterable[Pair]:
    """Draw pairs of runs from processes of one distribution."""
    source = random.Random(0)
    for _ in range(count):
        places = source.sample(range(len(pool.processes)), 2 * PROCESSES)
        yield part(pool, places[:PROCESSES]), part(pool, places[PROCESSES:])


def in_order(pool: BenchRun) -> list[BenchRun]:
    """Make runs of consecutive processes, each with the date of its last process."""
    starts = range(0, len(pool.processes) - PROCESSES + 1, PROCESSES)
    return [
        replace(
            part(pool, range(start, start + PROCESSES)),
            date=pool.processes[start + PROCESSES - 1].date,
            label=f"run {number}",
        )
        for number, start in enumerate(starts, 1)
    ]


def consecutive(pool: BenchRun) -> Iterable[Pair]:
    """Pair each run of consecutive processes with each other one, both ways."""
    runs = in_order(pool)
    return [(base, run) for base in runs for run in runs if base is not run]


def alarms(pairs: Iterable[Pair]) -> dict[str, Any]:
    """Compute the share of checks that report a slowdown, by threshold."""
    slower: dict[str, list[bool]] = {name: [] for name in THRESHOLDS}
    for base, run in pairs:
        for name, threshold in THRESHOLDS.items():
            check = compare(base, run, Terms(threshold, LEVEL))
            slower[name].append(check.outcome == "slower")
    return {
        "checks": len(slower["none"]),
        "slower": {name: round(fmean(those), 5) for name, those in slower.items()},
    }


def planted(pool: BenchRun, count: int) -> dict[str, float]:
    """Compute the share of slowdowns of one row that are reported, by factor; usual threshold."""
    shares = {}
    for factor in PLANTED:
        hits = []
        for number, (base, run) in enumerate(drawn(pool, count)):
            place = number % len(run.rows)
            rows = list(run.rows)
            rows[place] = _slowed(rows[place], factor)
            check = compare(base, replace(run, rows=tuple(rows)), Terms(level=LEVEL))
            name = rows[place].subject.identity
            slower = {f.subject.identity for f in check.findings if f.verdict == "slower"}
            hits.append(name in slower)
        shares[f"{factor - 1:.0%}"] = round(fmean(hits), 4)
    return shares


def noise(pool: BenchRun) -> list[dict[str, Any]]:
    """Compute how far samples of a process, and processes, lie apart, relative to the median."""
    rows = []
    for row in pool.rows:
        inner = (stdev(one) / median(one) for one in row.samples if len(one) > 1)
        rows.append(
            {
                "kernel": row.subject.kernel,
                "shape": dict(row.subject.shape),
                "median_us": round(row.median_us, 3),
                "sd_in_a_process": round(median(inner), 5),
                "sd_of_processes": round(stdev(row.medians_us) / row.median_us, 5),
            }
        )
    return rows


def results(draws: int) -> dict[str, Any]:
    """Compute all results."""
    pool, origin = recorded()
    return {
        "recorded": origin,
        "processes": len(pool.processes),
        "rows": len(pool.rows),
        "a_run": PROCESSES,
        "level": LEVEL,
        "drawn": alarms(drawn(pool, draws)),
        "consecutive": alarms(consecutive(pool)),
        "planted": planted(pool, draws // 2),
        "noise": noise(pool),
    }


def document(content: Mapping[str, Any]) -> str:
    """Write the page's tables."""
    origin, spread = content["recorded"], [row["sd_of_processes"] for row in content["noise"]]
    kinds = {"drawn": "processes drawn at random", "consecutive": "runs one after another"}
    said = (
        f"{content['processes']} processes one after another on one {origin['device']} "
        f"(driver {origin['driver']}, triton {origin['triton']}, torch {origin['torch']}, "
        f"{origin['date'][:10]}), {content['rows']} rows, "
        f"{origin['seconds_a_process']:.1f} s a process; "
        f"runs of {content['a_run']} processes; level "
        f"{content['level']:.0%}. Medians of processes of one row differ by "
        f"{min(spread):.2%} to {max(spread):.2%} (standard deviation). Checks of unchanged kernels "
        "that find one slower, by threshold:"
    )
    rows = []
    for kind, words in kinds.items():
        shares = [f"{share:.2%}" for share in content[kind]["slower"].values()]
        rows.append([words, str(content[kind]["checks"]), *shares])
    found = ["found", *(f"{share:.1%}" for share in content["planted"].values())]
    parts = [
        said,
        table(("runs", "checks", *THRESHOLDS), rows),
        "A check at the threshold of 3% finds this share of slowdowns planted in one row:",
        table(("planted", *content["planted"]), [found]),
    ]
    return "\n\n".join(parts)


def pull_request() -> str:
    """Write what a check prints for a pull request that made a kernel slower."""
    base, run = in_order(recorded()[0])[-2:]
    rows = tuple(_slowed(row, FACTOR) if row.subject.kernel == SLOWED else row for row in run.rows)
    printed = check_markdown(compare(base, replace(run, rows=rows), Terms()))
    return f"In the pull request:\n\n```text\n{printed}\n```"


def _slowed(row: TimedSubject, factor: float) -> TimedSubject:
    return replace(row, samples=tuple(tuple(us * factor for us in one) for one in row.samples))


def main() -> None:
    """Count, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    options = parser.parse_args()
    if not RECORDED.is_file():
        parser.error(f"no {RECORDED.name}: on an H200, python -m benchmarks.bench_samples")
    content = results(options.draws)
    write(FILE, content)
    print(document(content))


if __name__ == "__main__":
    main()
