"""Training rows from recorded timings, and what a model of them keeps of unseen kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import version_of
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.error import Errors
from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.learned import FEWEST, fit, ranked_at
from asmtune.predict.score.vectors import schema
from asmtune.workshop.replay.flow import judged_moments
from asmtune.workshop.replay.measured_error import RankedTask, error_table
from asmtune.workshop.replay.oracle import Oracle, Task
from asmtune.workshop.replay.results import ScorerResult, TaskResult, kept_of


@dataclass(frozen=True)
class MomentRows:
    """The timed configs of one task, as the learned scorer sees them, compiled and sketched.

    No sketch where it was not asked for, or fewer than five can be read.
    """

    assembly: TaskRows
    sketch: TaskRows | None = None


Unseen = Sequence[tuple[TaskRows, Sequence[float]]]
"""Tasks, and the scores of a model that has not seen their kernel."""


def moment_rows(
    oracle: Oracle, kernels: Path, funnel: Funnel, *, early: bool
) -> Iterator[MomentRows]:
    """Yield the timed configs of each task that compile; if `early`, before compiling as well.

    Tasks with fewer than five are left out.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    for judged_task in judged_moments(oracle, kernels, funnel, early=early):
        assembly = _rows(judged_task.task, judged_task.compiled, funnel.target)
        if assembly is not None:
            sketched = judged_task.sketched
            sketch = _rows(judged_task.task, sketched, funnel.target) if sketched else None
            yield MomentRows(assembly, sketch)


def _rows(task: Task, verdicts: Sequence[Verdict], target: Target) -> TaskRows | None:
    timed = [
        (row.ms, verdict.features)
        for row, verdict in zip(task.rows, verdicts, strict=True)
        if row.ms is not None and verdict.features is not None
    ]
    if len(timed) < FEWEST:
        return None
    times, features = zip(*timed, strict=True)
    return TaskRows.of((task.kernel, task.shape, task.dtype), features, times, target)


def examples(
    tasks: Iterable[TaskRows],
    target: Target,
    device: str,
    sources: Mapping[str, Mapping[str, str]],
) -> Examples:
    """Thin rows and add their provenance; `sources` has each file's versions by name."""
    return Examples(
        tasks=tuple(task.thinned() for task in tasks),
        target=target.name,
        schema=schema(),
        provenance={"device": device, "measured": dict(sources), "compiled": _compiler()},
    )


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
        model = fit(others, jobs, "")
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
    about = {"measured": dict(sources), "compiled": _compiler(), "unlike": sorted(unlike)}
    return Errors(tuple(devices), about, tables)


def _compiler() -> dict[str, str]:
    return {name: version_of(name) for name in ("asmtune", "triton")}
