"""Search strategies over recorded timings: what they keep, for how many compiles and timings.

The loop is the one that tunes; compiler and timer give what was recorded. A trial's timing is
the recorded one with noise, since few samples are taken then; finals are taken to be exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from asmtune.core.config import Config
from asmtune.core.oracle import Oracle, Row
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProgressListener
from asmtune.predict.score.scorers import Scorer
from asmtune.studies.replay.judging import Judged, judged_moments
from asmtune.studies.replay.plans import PlanResult, Replayed, ReplayPlan, SearchPoint
from asmtune.tuning.search.base import Predictor
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.state import State
from asmtune.tuning.search.strategies import make_strategy

NOISE: Final = 0.02
"""Standard deviation of a trial's timing, relative. Two recordings of one config, each the
median of 3 to 21 samples on another machine, differ by 3%, so that one has 2%."""


def replay_strategies(
    oracle: Oracle, kernels: Path, funnel: Funnel, plans: Sequence[ReplayPlan]
) -> list[PlanResult]:
    """Searches every task of a file by every plan.

    The funnel's scorer predicts, as if it had never seen the task's kernel. A task's default
    is its first config.

    Args:
        oracle: recorded timings.
        kernels: folder with a module `KERNEL.py` for each kernel of the file.
        funnel: compiles and reads.
        plans: ways to search.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
        InputError: a plan names no strategy that there is.
    """
    unseen: dict[str, Scorer] = {}
    searches: dict[int, list[Replayed]] = {number: [] for number in range(len(plans))}
    for found in judged_moments(oracle, kernels, funnel, early=True):
        kernel = found.task.kernel
        if kernel not in unseen:
            unseen = {kernel: funnel.scorer.without_kernel(kernel)}
        scorer = unseen[kernel].for_dtypes((found.task.dtype,))
        predictor = Predictor(scorer, funnel.target)
        for number, plan in enumerate(plans):
            for seed in range(plan.seeds):
                searches[number].append(searched(found, plan, predictor, seed))
    return [PlanResult(plan, tuple(searches[number])) for number, plan in enumerate(plans)]


def searched(found: Judged, plan: ReplayPlan, predictor: Predictor, seed: int) -> Replayed:
    """One search of one task."""
    rows = {v.config: row for row, v in zip(found.task.rows, found.compiled, strict=True)}
    compiler = RecordedCompiler({verdict.config: verdict for verdict in found.compiled})
    state = State(found.sketched, found.sketched[0].config)
    marks = _Marks(state, rows, plan.limits.finalists)
    strategy = make_strategy(plan.strategy, seed, predictor, plan.pace)
    ended = run(strategy, state, compiler, RecordedTimer(rows, seed), plan.limits, marks)
    return Replayed(found.task, (*marks.made, marks.now()), ended.reason)


class RecordedCompiler:
    """Gives verdicts that were made before.

    Args:
        verdicts: by config.
    """

    def __init__(self, verdicts: Mapping[Config, Verdict]) -> None:
        self._verdicts = verdicts
        self._batch: Sequence[Config] = ()

    def start(self, configs: Sequence[Config]) -> None:
        """Takes a batch."""
        self._batch = tuple(configs)

    def collect(self) -> list[Verdict]:
        """The batch's verdicts."""
        return [self._verdicts[config] for config in self._batch]


class RecordedTimer:
    """Gives recorded timings with noise, the same for a config whenever it is asked.

    Args:
        rows: what was recorded, by config.
        seed: of the noise.
    """

    def __init__(self, rows: Mapping[Config, Row], seed: int) -> None:
        self._rows = rows
        self._seed = seed

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """A timing, or the recorded failure, of each."""
        return [(verdict.config, self._outcome(verdict.config)) for verdict in verdicts]

    def _outcome(self, config: Config) -> Measurement | Failure:
        row = self._rows[config]
        if row.ms is None:
            return Failure("launch", "recorded", row.error or "")
        noise = random.Random(f"{self._seed} {config}").gauss(0.0, NOISE)
        us = row.ms * 1e3 * math.exp(noise)
        return Measurement(config, us, us, us, (us,))


class _Marks(ProgressListener):
    """Notes how far a search is after each trial."""

    def __init__(self, state: State, rows: Mapping[Config, Row], finalists: int) -> None:
        self._state = state
        self._ms = {config: row.ms for config, row in rows.items() if row.ms is not None}
        self._finalists = finalists
        self.made: list[SearchPoint] = []

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:  # noqa: ARG002
        """Adds a mark."""
        self.made.append(self.now())

    def now(self) -> SearchPoint:
        """The mark of this moment; what is being compiled counts."""
        state = self._state
        named = [self._ms[verdict.config] for verdict in state.finalists(self._finalists)]
        kept = min(self._ms.values()) / min(named) if named else 0.0
        return SearchPoint(state.compiles, state.trials, kept)
