"""Replay of scorers over a file of recorded timings, and their regret.

    python -m benchmarks.replay_oracle ORACLE --kernels DIR [--scorer NAME ...] [--output FILE]
        [--packaged asmtune/predict/score/data/replayed.json]

A scorer that ranks before compiling has results of its own for that, and for 10% and 25%
of the configs compiled.

Needs no GPU. The first run compiles every recorded config (about 6,200 distinct
ones of the shared oracle; 15 minutes on 2 cores), later ones read the artifacts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer, scorer_names
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import replay
from asmtune.workshop.replay.oracle import load_oracle
from benchmarks.harness import SHARES, laid_out, parser, ranked_by, table, target_of, write


def document(content: Mapping[str, Any]) -> str:
    """Tabulate the share of the best speed that each scorer keeps, the weakest first."""
    scorers = content["scorers"]
    names = sorted(scorers, key=lambda name: float(scorers[name]["all"]["top10pct"]))
    rows = ({"ranked": ranked_by(name), **scorers[name]["all"]} for name in names)
    return laid_out({"ranked by": "{ranked}", **SHARES}, rows)


def packaged(content: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return what `--scorer weights` says of itself: the shares that ten configs kept."""
    scorers = content["scorers"]
    top10 = {name: scorers[name]["all"]["top10"] for name in ("weights", "roofline", "learned")}
    about = {name: content["provenance"][name] for name in ("commit", "date")}
    return {"device": device, **about, "tasks": content["tasks"], "top10": top10}


def main() -> None:
    """Replay and write the result."""
    arguments = parser(__doc__, "replay.json")
    arguments.add_argument("oracle", type=Path)
    arguments.add_argument("--kernels", type=Path, required=True)
    arguments.add_argument("--scorer", action="append", choices=scorer_names())
    arguments.add_argument("--packaged", type=Path, help="a file for what the package says of it")
    options = arguments.parse_args()
    oracle = load_oracle(options.oracle)
    target = target_of(oracle.device)
    scorers = [make_scorer(name) for name in options.scorer or scorer_names()]
    start = time.perf_counter()
    with ProgressBar() as progress:
        funnel = Funnel(target, scorers[0], Settings.from_environment(), progress=progress)
        report = replay(oracle, options.kernels, funnel, scorers).to_json()
    seconds = round(time.perf_counter() - start, 1)
    tasks = len(oracle.tasks)
    rows = sum(len(task.rows) for task in oracle.tasks)
    content = write(options.output, {**report, "tasks": tasks, "rows": rows, "seconds": seconds})
    if options.packaged is not None:
        options.packaged.write_text(json.dumps(packaged(content, oracle.device)) + "\n")
    print(document(content))


def exact(*files: Mapping[str, Any]) -> str:
    """Count what is predicted exactly: failures and resources."""
    lines = [
        ["failures told, of those recorded", *(_told(data, "fails") for data in files)],
        ["configs told to run, of those that ran", *(_told(data, "runs") for data in files)],
    ]
    labels = {"regs": "registers", "spills": "spilled words", "shared": "shared memory"}
    for name, label in labels.items():
        equal = (f"{data['resources'][f'{name} equal']:,}" for data in files)
        lines.append([f"configs whose {label} are equal", *equal])
    kernels = (f"{len(data['scorers']['learned']['kernels'])} kernels" for data in files)
    return table(("", *kernels), lines)


def _told(data: Mapping[str, Any], what: str) -> str:
    counts = data["failures"]
    recorded = sum(n for name, n in counts.items() if name.endswith(f"recorded {what}"))
    return f"{counts[f'told {what}, recorded {what}']:,} of {recorded:,}"


if __name__ == "__main__":
    main()
