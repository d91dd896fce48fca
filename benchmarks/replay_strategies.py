"""Replay of search strategies over a file of recorded timings: a JSON of results and a figure.

    python -m benchmarks.replay_strategies ORACLE --kernels DIR [--efforts] [--output FILE]
    python -m benchmarks.replay_strategies --draw

Needs no GPU, and matplotlib for the figure (`pip install '.[figures]'`). The first run
compiles every recorded config, as `replay_oracle` does; later ones read the artifacts. With --draw
the committed results are drawn as they are.

Curves are of searches that go on as long as anything may be gained; efforts end sooner. With
`--efforts` the efforts alone are replayed, and nothing is drawn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.base.settings import Settings
from asmtune.core.oracle import load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.figures import (
    COLOURS,
    INK,
    MARKERS,
    RULE,
    WIDTH,
    fitted_legend,
    look,
    saved,
)
from asmtune.report.progress import ProgressBar
from asmtune.tuning.options import EFFORTS, Effort
from asmtune.tuning.search.base import BatchSizes, Limits
from asmtune.tuning.search.strategies import STRATEGIES
from benchmarks.harness import parser, target_of, write
from benchmarks.strategy_replay import BUDGETS, NOISE, ReplayPlan, replay_strategies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINE = BatchSizes(first=32, batch=16, trial=16, gain=0.001)
"""Curves have a mark every 16 compiles, and end where less than 0.1% is expected."""

ALL = replace(FINE, trial=FINE.first)
"""For strategies that do not choose what to time: all that is compiled is timed, at once."""

SEEDS = 3
"""Random draws of the noise of all timings."""


def main() -> None:
    """Replay, write, and draw."""
    arguments = parser(__doc__, "replay_strategies.json")
    arguments.add_argument("oracle", type=Path, nargs="?")
    arguments.add_argument("--kernels", type=Path)
    arguments.add_argument("--scorer", default="learned")
    arguments.add_argument(
        "--draw", action="store_true", help="draw the results in the output file"
    )
    arguments.add_argument("--efforts", action="store_true", help="no curves and no figure")
    options = arguments.parse_args()
    if options.draw:
        draw(json.loads(options.output.read_text())["plans"], options.output.with_suffix(".svg"))
        return
    if options.oracle is None or options.kernels is None:
        arguments.error("give ORACLE and --kernels, or --draw")
    oracle = load_oracle(options.oracle)
    target = target_of(oracle.device)
    start = time.perf_counter()
    with ProgressBar() as progress:
        scorer = make_scorer(options.scorer)
        funnel = Funnel(target, scorer, Settings.from_environment(), progress=progress)
        results = replay_strategies(
            oracle, options.kernels, funnel, plans(curves=not options.efforts)
        )
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
    if not options.efforts:
        draw(plans_json, options.output.with_suffix(".svg"))


def plans(*, curves: bool) -> list[ReplayPlan]:
    """List the plans: if asked, a curve of each strategy; and each effort as it is."""
    most = Limits(compiles=max(BUDGETS))
    strategies = [
        ReplayPlan(name, name, FINE if name == "model" else ALL, most, SEEDS)
        for name in (STRATEGIES if curves else ())
    ]
    return [*strategies, *map(effort_plan, efforts().values())]


def efforts() -> Mapping[str, Effort]:
    """List the efforts that end by themselves."""
    return {name: effort for name, effort in EFFORTS.items() if effort.strategy == "model"}


def effort_plan(effort: Effort) -> ReplayPlan:
    """Make the plan of the search that an effort runs."""
    return ReplayPlan(f"effort {effort.name}", effort.strategy, effort.pace, effort.limits, SEEDS)


LEAST = 0.01
"""Percent; a loss too small to show is drawn here."""

CURVES = {
    "model": "model: compiled and timed in the order of predictions",
    "exhaustive": "exhaustive: in the order of the space",
    "random": "random order",
    "hierarchical": "hierarchical: coarse steps first",
}
"""The legend's words for each strategy; the committed results have two that asmtune has no more."""

TITLE = "Speed lost against the best config, by strategy"
_TALL, _LEFT, _RIGHT, _BOTTOM, _GAP = 200.0, 58.0, 10.0, 40.0, 18.0
"""Points: height of the panels, and room beside, below and between them."""


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the figure as SVG."""
    with look():
        path.write_bytes(saved(drawn(results), "svg", TITLE))


def drawn(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw regret against compiles and against timings: a curve a strategy, a point an effort."""
    from matplotlib.figure import Figure

    across, up = 72 * WIDTH, _BOTTOM + _TALL + 14.5 * len(results) + 44
    figure = Figure(figsize=(WIDTH, up / 72))
    width = (across - _LEFT - _RIGHT - _GAP) / 2
    handles: list[Any] = []
    for order, spent in enumerate(("compiles", "timings")):
        left = _LEFT + order * (width + _GAP)
        axis = figure.add_axes((left / across, _BOTTOM / up, width / across, _TALL / up))
        handles = draw_on(axis, results, spent)
        axis.set(xscale="log", yscale="log", xlabel=f"{spent} a task", ylim=(0.6 * LEAST, 80))
        least = min(float(line.get_xdata()[0]) for line in handles)
        axis.set_xlim(0.8 * least, 1.2 * BUDGETS[-1])
        shown = [budget for budget in BUDGETS[::2] if budget > 0.8 * least]
        axis.set_xticks(shown, list(map(str, shown)))
        numbers = ("≤0.01", "0.1", "1", "10") if order == 0 else [""] * 4
        axis.set_yticks((LEAST, 0.1, 1, 10), numbers)
        axis.minorticks_off()
        axis.grid(alpha=0.3, linewidth=0.6)
    figure.axes[0].set_ylabel("speed lost, % (geometric mean)")
    place = {"loc": "lower left", "bbox_to_anchor": (8 / across, (_BOTTOM + _TALL + 10) / up)}
    fitted_legend(figure, handles, 0, **place)
    figure.text(8 / across, 1 - 8 / up, TITLE, va="top", weight="bold", size=11)
    return figure


def draw_on(axis: Any, results: Mapping[str, Mapping[str, Any]], spent: str) -> list[Any]:
    """Draw regret by "compiles" or by "timings"; return what a legend names."""
    efforts_ = [name for name in results if name.startswith("effort ")]
    curves = [name for name in results if name not in efforts_]
    handles: list[Any] = []
    for name, colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
        curve = results[name][f"by_{spent}"]
        lost = regret([at["kept"] for at in curve.values()])
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5}
        label = CURVES.get(name, name)
        handles += axis.plot([int(n) for n in curve], lost, **style, linewidth=1.4, label=label)
    for name, marker in zip(efforts_, "*Xp", strict=False):
        end = results[name]["all"]
        style = {"color": INK, "marker": marker, "markersize": 10, "linestyle": "none"}
        style |= {"markeredgecolor": RULE, "markeredgewidth": 0.5, "zorder": 4}
        handles += axis.plot(end[spent], *regret([end["kept"]]), **style, label=f"asmtune, {name}")
    return handles


def regret(shares: Sequence[float]) -> list[float]:
    """Give percent lost, at least what can be shown."""
    return [max(100.0 * (1.0 - share), LEAST) for share in shares]


if __name__ == "__main__":
    main()
