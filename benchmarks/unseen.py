"""Rank kernels by models of training rows that lack them, and measure what is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from asmtune.base.errors import InputError
from asmtune.predict.score.error import Errors
from asmtune.predict.score.learned import ranked_at
from asmtune.workshop.replay.fitting import fit
from asmtune.workshop.replay.oracle import Task
from asmtune.workshop.replay.results import ScorerResult, TaskResult, kept_of
from asmtune.workshop.replay.training_rows import TaskRows, compiler
from benchmarks.measured_error import RankedTask, error_table

Unseen = Sequence[tuple[TaskRows, Sequence[float]]]
"""Tasks, and the scores of a model that has not seen their kernel."""


def rank_unseen(
    seen: Sequence[TaskRows],
    tasks_of: Mapping[str, Sequence[TaskRows]],
    jobs: int,
    parts: int | None = None,
) -> dict[str, Unseen]:
    """Score tasks, by moment, by models that have `seen` all kernels but theirs.

    A kernel without others to learn from is left out. A fit on `jobs` processors takes seconds,
    and each kernel asks for one, whatever the number of moments. With `parts`, kernels are drawn
    into so many, each of which is left out together and asks for one fit.
    """
    ranked: dict[str, list[tuple[TaskRows, Sequence[float]]]] = {moment: [] for moment in tasks_of}
    kernels = list(dict.fromkeys(task.kernel for tasks in tasks_of.values() for task in tasks))
    drawn = np.random.default_rng(0).permutation(kernels) if parts else kernels
    count = min(parts or len(kernels), len(kernels))
    for part in (set(drawn[start::count]) for start in range(count)):
        others = [task.thinned() for task in seen if task.kernel not in part]
        if not others:
            continue
        model = fit(others, jobs)
        for moment, tasks in tasks_of.items():
            ranked[moment] += [
                (task, ranked_at(model, task.base, task.scale).tolist())
                for task in tasks
                if task.kernel in part
            ]
    return dict(ranked)


def by_roofline(tasks: Iterable[TaskRows]) -> Unseen:
    """Score tasks by the time that the roofline predicts: their first column, a logarithm."""
    return [(task, (-task.base[:, 0]).tolist()) for task in tasks]


def unseen_result(ranked: Unseen) -> ScorerResult:
    """Compute the shares of the best speed that rankings of `rank_unseen` keep."""
    results = [
        TaskResult(
            Task(task.kernel, task.shape, task.dtype, ()),
            kept_of(np.exp(task.slowdown).tolist(), scores),
        )
        for task, scores in ranked
    ]
    return ScorerResult("learned", tuple(results))


def scorer_errors(
    ranked: Mapping[str, Unseen],
    devices: Sequence[str],
    sources: Mapping[str, Mapping[str, str]],
    unlike: Collection[str] = (),
) -> Errors:
    """Measure `learned` and `roofline` at each moment of `rank_unseen`'s rankings.

    Kernels `unlike` the others have most of the weight (`error.UNLIKE_WEIGHT`).

    Raises:
        InputError: nothing was ranked, since there is but one kernel.
    """
    if not any(ranked.values()):
        raise InputError("a scorer's error takes timings of at least two kernels, not of one")
    tables = {}
    for moment, tasks in ranked.items():
        roofline = by_roofline(task for task, _ in tasks)
        for scorer, scored in (("learned", tasks), ("roofline", roofline)):
            if scored:
                outcomes = [
                    RankedTask(task.kernel, own, task.slowdown.tolist()) for task, own in scored
                ]
                tables[scorer, moment] = error_table(outcomes, unlike)
    about = {"measured": dict(sources), "compiled": compiler(), "unlike": sorted(unlike)}
    return Errors(tuple(devices), about, tables)
