"""Replay of search strategies over a file of recorded timings: a JSON of results and a figure.

    python -m benchmarks.replay_strategies ORACLE --kernels DIR [--output FILE]

Needs no GPU, and matplotlib for the figure (`pip install '.[figures]'`). The first run
compiles every recorded config, as `replay_oracle` does; later ones read the artifacts.

Curves are of searches that go on as long as anything may be gained; efforts end sooner.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.studies.replay.strategies import BUDGETS, NOISE, ReplayPlan, replay_strategies
from asmtune.tuning.options import EFFORTS, Effort
from asmtune.tuning.search.base import BatchSizes, Limits
from asmtune.tuning.search.strategies import strategy_names
from benchmarks.provenance import RESULTS, write

FINE = BatchSizes(first=32, batch=16, trial=16, gain=0.001)
"""Curves have a mark every 16 compiles, and end where less than 0.1% is expected."""

ALL = replace(FINE, trial=FINE.first)
"""For strategies that do not choose what to time: all that is compiled is timed, at once."""

SEEDS = 3
"""Random draws: the order of `random`, and the noise of all timings."""


def main() -> None:
    """Replay, write, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--scorer", default="learned")
    parser.add_argument("--output", type=Path, default=RESULTS / "replay_strategies.json")
    options = parser.parse_args()
    oracle = load_oracle(options.oracle)
    target = match_device(oracle.device) or load_target(oracle.device)
    start = time.perf_counter()
    with ProgressBar() as progress:
        scorer = make_scorer(options.scorer)
        funnel = Funnel(target, scorer, Settings.from_environment(), progress=progress)
        results = replay_strategies(oracle, options.kernels, funnel, plans())
    plans_json = {result.plan.name: result.to_json() for result in results}
    about = {
        "device": oracle.device,
        "scorer": f"{options.scorer}, which never saw the task's kernel",
        "noise": NOISE,
        "tasks": len(oracle.tasks),
        "efforts": {name: asdict(effort_plan(effort).pace) for name, effort in efforts().items()},
        "seconds": round(time.perf_counter() - start, 1),
    }
    write(options.output, {**about, "plans": plans_json})
    draw(plans_json, options.output.with_suffix(".svg"))


def plans() -> list[ReplayPlan]:
    """List the plans: a curve of each strategy, and each effort as it is."""
    most = Limits(compiles=max(BUDGETS))
    curves = [
        ReplayPlan(name, name, FINE if name == "model" else ALL, most, SEEDS)
        for name in strategy_names()
    ]
    return [*curves, *map(effort_plan, efforts().values())]


def efforts() -> Mapping[str, Effort]:
    """List the efforts that end by themselves."""
    return {name: effort for name, effort in EFFORTS.items() if effort.strategy == "model"}


def effort_plan(effort: Effort) -> ReplayPlan:
    """Make the plan of the search that an effort runs."""
    return ReplayPlan(f"effort {effort.name}", effort.strategy, effort.pace, effort.limits, SEEDS)


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw regret against compiles and against timings: a curve a strategy, a point an effort."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and equal results make equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "asmtune", "font.size": 9}):
        figure = Figure(figsize=(9.0, 3.8), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for axis, spent in zip(axes, ("compiles", "timings"), strict=True):
            draw_on(axis, results, spent)
            axis.set(xscale="log", yscale="log", xlabel=f"{spent} a task")
            axis.set_xticks(BUDGETS[::2], [str(budget) for budget in BUDGETS[::2]])
            axis.set_yticks((0.01, 0.1, 1, 10), ("0.01", "0.1", "1", "10"))
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("speed lost, % (geometric mean)")
        axes[0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def draw_on(axis: Any, results: Mapping[str, Mapping[str, Any]], spent: str) -> None:
    """Draw regret by "compiles" or by "timings"."""
    for name, result in results.items():
        if name.startswith("effort "):
            end = result["all"]
            point = (end[spent], *regret([end["kept"]]))
            axis.plot(*point, "k*", markersize=9)
            label = name.removeprefix("effort ")
            axis.annotate(label, point, (5, 4), textcoords="offset points")
        else:
            curve = result[f"by_{spent}"]
            lost = regret([at["kept"] for at in curve.values()])
            axis.plot(list(curve), lost, marker=".", label=name)


def regret(shares: Sequence[float]) -> list[float]:
    """Give percent lost; a loss too small to show is drawn at a hundredth."""
    return [max(100.0 * (1.0 - share), 0.01) for share in shares]


if __name__ == "__main__":
    main()
