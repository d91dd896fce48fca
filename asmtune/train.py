"""Training rows from recorded timings, and what a model of them keeps of unseen kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from asmtune.fingerprint import version_of
from asmtune.funnel import Funnel
from asmtune.oracle import Oracle, Task
from asmtune.replay import ScorerResult, TaskResult, judged, kept_of
from asmtune.score.examples import Examples, TaskRows
from asmtune.score.learned import FEWEST, fit, rank
from asmtune.score.vectors import schema
from asmtune.target import Target


def task_rows(oracle: Oracle, kernels: Path, funnel: Funnel) -> Iterator[TaskRows]:
    """The timed configs of each task of a file that compile, as the learned scorer sees them.

    Tasks with fewer than five are left out.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    for task, verdicts in judged(oracle, kernels, funnel):
        timed = [
            (row.ms, verdict.features)
            for row, verdict in zip(task.rows, verdicts, strict=True)
            if row.ms is not None and verdict.features is not None
        ]
        if len(timed) >= FEWEST:
            times, features = zip(*timed, strict=True)
            about = (task.kernel, task.shape, task.dtype)
            yield TaskRows.of(about, features, times, funnel.target)


def examples(
    tasks: Iterable[TaskRows],
    target: Target,
    device: str,
    sources: Mapping[str, Mapping[str, str]],
) -> Examples:
    """Thinned rows with their provenance, to save; `sources` has each file's versions by name."""
    compiler = {name: version_of(name) for name in ("asmtune", "triton")}
    return Examples(
        tasks=tuple(task.thinned() for task in tasks),
        target=target.name,
        schema=schema(),
        provenance={"device": device, "measured": dict(sources), "compiled": compiler},
    )


def leave_one_kernel_out(tasks: Sequence[TaskRows], jobs: int) -> ScorerResult:
    """What a model keeps of each kernel's best speed when it has seen all the others.

    A kernel without others to learn from is left out.
    """
    results = []
    for kernel in dict.fromkeys(task.kernel for task in tasks):
        seen = [task.thinned() for task in tasks if task.kernel != kernel]
        if not seen:
            continue
        forest = fit(seen, jobs, "")
        for task in tasks:
            if task.kernel == kernel:
                times = np.exp(task.slowdown).tolist()
                kept = kept_of(times, rank(forest, task.base).tolist())
                name = Task(task.kernel, task.shape, task.dtype, ())
                results.append(TaskResult(name, kept))
    return ScorerResult("learned, each kernel unseen", tuple(results))
