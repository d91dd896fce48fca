"""Replay of scorers over a file of recorded timings, and their regret.

    python -m benchmarks.replay_oracle ORACLE --kernels DIR [--scorer NAME ...] [--output FILE]

A scorer that ranks before compiling has results of its own for that, and for 10% and 25%
of the configs compiled.

Needs no GPU. The first run compiles every recorded config (about 6,200 distinct
ones of the shared oracle; 15 minutes on 2 cores), later ones read the artifacts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer, scorer_names
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import replay
from benchmarks.provenance import RESULTS, write


def main() -> None:
    """Replay and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--scorer", action="append", choices=scorer_names())
    parser.add_argument("--output", type=Path, default=RESULTS / "replay.json")
    options = parser.parse_args()
    oracle = load_oracle(options.oracle)
    target = match_device(oracle.device) or load_target(oracle.device)
    scorers = [make_scorer(name) for name in options.scorer or scorer_names()]
    start = time.perf_counter()
    with ProgressBar() as progress:
        funnel = Funnel(target, scorers[0], Settings.from_environment(), progress=progress)
        report = replay(oracle, options.kernels, funnel, scorers).to_json()
    seconds = round(time.perf_counter() - start, 1)
    tasks = len(oracle.tasks)
    rows = sum(len(task.rows) for task in oracle.tasks)
    write(options.output, {**report, "tasks": tasks, "rows": rows, "seconds": seconds})


if __name__ == "__main__":
    main()
