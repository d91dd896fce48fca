"""Replay of search strategies over a file of recorded timings.

    python -m benchmarks.replay_strategies ORACLE --kernels DIR [--efforts] [--output FILE]

Needs no GPU. The first run compiles every recorded config, as `replay_oracle` does; later ones read
the artifacts. With `--efforts` the efforts alone are replayed, without the strategies that they are
compared with.

The loop is the one that tunes; compiler and timer give what was recorded. A trial's timing is
the recorded one with noise, since few samples are taken then; finals are taken to be exact.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import EFFORTS, Effort
from asmtune.tuning.search.base import BatchSizes, Limits, Predictor
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.model import STRATEGIES, make_strategy
from asmtune.tuning.search.state import SearchState
from asmtune.workshop.replay.fitting import unseen_scorer
from asmtune.workshop.replay.flow import JudgedTask, judged_moments
from asmtune.workshop.replay.oracle import Oracle, Row, Task, load_oracle
from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import laid_out, parser, target_of, write

BUDGETS: Final = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Compiles at which it is read off what a search would keep."""


@dataclass(frozen=True)
class ReplayPlan:
    """A way to search by a strategy of `make_strategy`, with seeds for its draws and the noise."""

    name: str
    strategy: str = "model"
    pace: BatchSizes = field(default_factory=BatchSizes)
    limits: Limits = field(default_factory=Limits)
    seeds: int = 1


@dataclass(frozen=True)
class SearchPoint:
    """The compiles and timings that a search has spent after a trial, and what it would keep.

    `kept` is its finalists' share of the best speed, in [0, 1]; 0 for none.
    """

    compiles: int
    timings: int
    kept: float


@dataclass(frozen=True)
class Replayed:
    """A search of a task: a mark after each trial, the last for the outcome; why it ended."""

    task: Task
    marks: tuple[SearchPoint, ...]
    reason: str

    def within(self, budget: int) -> float | None:
        """Give the share kept within a number of compiles, None before a trial."""
        reached = [mark.kept for mark in self.marks if mark.compiles <= budget]
        return reached[-1] if reached else None


@dataclass(frozen=True)
class PlanResult:
    """Results of a plan on all tasks, with each seed."""

    plan: ReplayPlan
    searches: tuple[Replayed, ...]

    def summary(self, kernel: str | None = None) -> dict[str, float]:
        """Compute mean compiles and timings, and mean and worst share kept in the end."""
        last = [s.marks[-1] for s in self.searches if kernel in (None, s.task.kernel)]
        return _mean_costs(last) | _mean_and_worst(mark.kept for mark in last)

    def curve(self) -> dict[int, dict[str, float]]:
        """Compute the shares kept within each budget of compiles that gave every task a trial."""
        points = {}
        for budget in BUDGETS:
            shares = [search.within(budget) for search in self.searches]
            if None not in shares:
                points[budget] = _mean_and_worst(share for share in shares if share is not None)
        return points

    def to_json(self) -> dict[str, Any]:
        """Write all of it as JSON values."""
        kernels = dict.fromkeys(search.task.kernel for search in self.searches)
        tasks: dict[str, list[Replayed]] = {}
        for search in self.searches:
            tasks.setdefault(search.task.name, []).append(search)
        return {
            "strategy": self.plan.strategy,
            "seeds": self.plan.seeds,
            "all": self.summary(),
            "kernels": {kernel: self.summary(kernel) for kernel in kernels},
            "by_compiles": self.curve(),
            "tasks": [_task(searches) for searches in tasks.values()],
        }


def _mean_costs(marks: Sequence[SearchPoint]) -> dict[str, float]:
    return {
        "compiles": round(sum(mark.compiles for mark in marks) / len(marks), 1),
        "timings": round(sum(mark.timings for mark in marks) / len(marks), 1),
    }


def _mean_and_worst(shares: Iterable[float]) -> dict[str, float]:
    shares = list(shares)
    worst = min(shares)
    mean = geometric_mean(shares) if worst else 0.0
    return {"kept": round(mean, 4), "worst": round(worst, 4)}


def _task(searches: Sequence[Replayed]) -> dict[str, Any]:
    last = [search.marks[-1] for search in searches]
    return {
        "task": searches[0].task.name,
        **_mean_costs(last),
        "worst": round(min(mark.kept for mark in last), 4),
        "ended": searches[0].reason,
    }


NOISE: Final = 0.02
"""Standard deviation of a trial's timing, relative. Two recordings of one config, each the
median of 3 to 21 samples on another machine, differ by 3%, so that one has 2%."""


def replay_strategies(
    oracle: Oracle, kernels: Path, funnel: Funnel, plans: Sequence[ReplayPlan]
) -> list[PlanResult]:
    """Search every task of a file by every plan.

    The funnel's scorer predicts, as if it had never seen the task's kernel. A task's default
    is its first config. The folder `kernels` has a module `KERNEL.py` for each kernel.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
        InputError: a plan names no strategy that there is.
    """
    unseen: dict[str, Scorer] = {}
    searches: dict[int, list[Replayed]] = {number: [] for number in range(len(plans))}
    for judged_task in judged_moments(oracle, kernels, funnel, early=True):
        kernel = judged_task.task.kernel
        if kernel not in unseen:
            unseen = {kernel: unseen_scorer(funnel.scorer, kernel, funnel.settings.jobs)}
        scorer = unseen[kernel].for_dtypes((judged_task.task.dtype,))
        predictor = Predictor(scorer, funnel.target)
        for number, plan in enumerate(plans):
            for seed in range(plan.seeds):
                searches[number].append(searched(judged_task, plan, predictor, seed))
    return [PlanResult(plan, tuple(searches[number])) for number, plan in enumerate(plans)]


def searched(task: JudgedTask, plan: ReplayPlan, predictor: Predictor, seed: int) -> Replayed:
    """Search a task."""
    rows = {v.config: row for row, v in zip(task.task.rows, task.compiled, strict=True)}
    compiler = RecordedCompiler({verdict.config: verdict for verdict in task.compiled})
    state = SearchState(task.sketched, task.sketched[0].config)
    marks = _Marks(state, rows, plan.limits.finalists)
    strategy = make_strategy(plan.strategy, seed, predictor, plan.pace)
    ended = run(strategy, state, compiler, RecordedTimer(rows, seed), plan.limits, marks)
    return Replayed(task.task, (*marks.made, marks.now()), ended.reason)


class RecordedCompiler:
    """Gives verdicts that were made before."""

    def __init__(self, verdicts: Mapping[Config, Verdict]) -> None:
        self._verdicts = verdicts
        self._batch: Sequence[Config] = ()

    def start(self, configs: Sequence[Config]) -> None:
        """Take a batch."""
        self._batch = tuple(configs)

    def collect(self) -> list[Verdict]:
        """Return the batch's verdicts."""
        return [self._verdicts[config] for config in self._batch]


class RecordedTimer:
    """Gives recorded timings with noise, which is the same for a config at each trial."""

    def __init__(self, rows: Mapping[Config, Row], seed: int) -> None:
        self._rows, self._seed = rows, seed

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Return the recorded timing or failure of each."""
        return [(verdict.config, self._outcome(verdict.config)) for verdict in verdicts]

    def _outcome(self, config: Config) -> Measurement | Failure:
        row = self._rows[config]
        if row.ms is None:
            return Failure("launch", "recorded", row.error or "")
        noise = random.Random(f"{self._seed} {config}").gauss(0.0, NOISE)
        us = row.ms * 1e3 * math.exp(noise)
        return Measurement(config, us, us, us, (us,))


class _Marks(TuningListener):
    """Notes how far a search is after each trial."""

    def __init__(self, state: SearchState, rows: Mapping[Config, Row], finalists: int) -> None:
        self._state = state
        self._ms = {config: row.ms for config, row in rows.items() if row.ms is not None}
        self._finalists = finalists
        self.made: list[SearchPoint] = []

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:  # noqa: ARG002
        self.made.append(self.now())

    def now(self) -> SearchPoint:
        """Mark this moment; what is being compiled counts."""
        state = self._state
        named = [self._ms[verdict.config] for verdict in state.finalists(self._finalists)]
        share = min(self._ms.values()) / min(named) if named else 0.0
        return SearchPoint(state.compiles, state.trials, share)


ALL = BatchSizes(first=32, batch=16, trial=32, gain=0.001)
"""Batches of strategies that do not choose what to time: all that is compiled is timed, at once."""

SEEDS = 3
"""Random draws of the noise of all timings."""


def main() -> None:
    """Replay and write."""
    arguments = parser(__doc__, "replay_strategies.json")
    arguments.add_argument("oracle", type=Path)
    arguments.add_argument("--kernels", type=Path, required=True)
    arguments.add_argument("--scorer", default="learned")
    arguments.add_argument("--efforts", action="store_true", help="efforts alone")
    options = arguments.parse_args()
    oracle = load_oracle(options.oracle)
    target = target_of(oracle.device)
    start = time.perf_counter()
    with ProgressBar() as progress:
        scorer = make_scorer(options.scorer)
        funnel = Funnel(target, scorer, Settings.from_environment(), progress=progress)
        chosen = plans(others=not options.efforts)
        results = replay_strategies(oracle, options.kernels, funnel, chosen)
    about = {
        "device": oracle.device,
        "scorer": f"{options.scorer}, which never saw the task's kernel",
        "noise": NOISE,
        "tasks": len(oracle.tasks),
        "efforts": {name: asdict(effort_plan(effort).pace) for name, effort in efforts().items()},
        "seconds": round(time.perf_counter() - start, 1),
    }
    plans_json = {result.plan.name: result.to_json() for result in results}
    print(document(write(options.output, {**about, "plans": plans_json})))


def document(content: Mapping[str, Any]) -> str:
    """Tabulate what each search compiles, times and keeps."""
    found = content["plans"]
    searches = {
        f"effort `{effort}`": found[f"effort {effort}"]["all"]
        for effort in ("quick", "balanced", "thorough")
    }
    if "random" in found:
        fewer = found["random"]["by_compiles"]["192"] | {"compiles": 192, "timings": 192}
        searches["`hierarchical`"] = found["hierarchical"]["all"]
        searches["`random`, as many compiles as `thorough`"] = fewer
        searches["all configs, up to 512"] = found["exhaustive"]["all"]
    columns = {
        f"{content['tasks']} tasks": "{search}",
        "compiles a task": "{compiles:.0f}",
        "timings a task": "{timings:.0f}",
        "share of the best speed kept": "{kept:.4f}",
        "worst task": "{worst:.3f}",
    }
    return laid_out(columns, ({"search": name, **end} for name, end in searches.items()))


def plans(*, others: bool) -> list[ReplayPlan]:
    """List the plans: each effort as it is and, if asked, each other strategy."""
    most = Limits(compiles=max(BUDGETS))
    names = [name for name in STRATEGIES if name != "model"] if others else []
    strategies = [ReplayPlan(name, name, ALL, most, SEEDS) for name in names]
    return [*strategies, *map(effort_plan, efforts().values())]


def efforts() -> Mapping[str, Effort]:
    """List the efforts that end by themselves."""
    return {name: effort for name, effort in EFFORTS.items() if effort.strategy == "model"}


def effort_plan(effort: Effort) -> ReplayPlan:
    """Make the plan of the search that an effort runs."""
    return ReplayPlan(f"effort {effort.name}", effort.strategy, effort.pace, effort.limits, SEEDS)


if __name__ == "__main__":
    main()
