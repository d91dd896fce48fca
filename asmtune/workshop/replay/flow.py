"""The funnel over recorded timings.

A scorer ranks the timed configs of a task; what matters is the best speed
among its first k, over the best speed of all. One that can rank before
compiling is judged there too, and where it says what to compile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from asmtune.base.errors import OracleError
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.learned import FEWEST
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.workshop.replay.fitting import unseen_scorer
from asmtune.workshop.replay.oracle import Oracle, Task
from asmtune.workshop.replay.results import (
    CUTS,
    Agreement,
    ReplayReport,
    ScorerResult,
    TaskResult,
    kept_of,
)
from asmtune.workshop.replay.training_rows import TaskRows


@dataclass(frozen=True)
class JudgedTask:
    """A task with verdicts on its rows, in their order: by the assembly, and by sketches if asked.

    A sketch is what a compile has before LLVM.
    """

    task: Task
    compiled: Sequence[Verdict]
    sketched: Sequence[Verdict]


def judged_moments(
    oracle: Oracle, kernels: Path, funnel: Funnel, *, early: bool
) -> Iterator[JudgedTask]:
    """Yield each task of a file with verdicts on its rows; if `early`, of sketches too.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    modules = {
        name: _module(kernels, name) for name in dict.fromkeys(t.kernel for t in oracle.tasks)
    }
    for task in oracle.tasks:
        module = modules[task.kernel]
        problem, configs = recorded_configs(module, task)
        front = funnel.front(problem)
        compiled = front.verdicts(configs, "assembly", funnel.known)
        # Sketches come off the artifacts that were just made, so that they cost a reading.
        sketched = front.verdicts(configs, "sketch", funnel.sketches) if early else ()
        yield JudgedTask(task, compiled, sketched)


@dataclass(frozen=True)
class MomentRows:
    """The timed configs of one task, as the learned scorer sees them, compiled and sketched.

    No sketch where it was not asked for, or fewer than five can be read.
    """

    assembly: TaskRows
    sketch: TaskRows | None = None


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


def recorded_configs(module: KernelModule, task: Task) -> tuple[Problem, list[Config]]:
    """Return the problem of a task, and the configs of its rows in their order.

    Raises:
        ProblemError: the module's arguments do not fit the task.
    """
    problem = _problem(module, task)
    return problem, _with_hooks(task, module, problem)


def _with_hooks(task: Task, module: KernelModule, problem: Problem) -> list[Config]:
    """Replace recorded configs by the space's own equal ones, which have hooks.

    A file holds no `pre_hook`; without it a tensor descriptor has another block shape.
    """
    hooked = {
        str(config): config
        for config in module.space().configs(**problem.shape)
        if config.pre_hook is not None
    }
    return [hooked.get(str(row.config), row.config) for row in task.rows]


def _problem(module: KernelModule, task: Task) -> Problem:
    # A module of one dtype makes no other, whatever the file calls it.
    one = len(module.dtypes) == 1
    dtype = module.dtypes[0] if one else module.check_dtype(task.dtype)
    return required(task.name, lambda: module.problem(task.shape, dtype, "meta"))


def _module(folder: Path, kernel: str) -> KernelModule:
    path = folder / f"{kernel}.py"
    if not path.is_file():
        raise OracleError(
            f"kernel {kernel!r} of the oracle: no {path}; give its folder by --kernels"
        )
    return load_kernel_module(str(path))


BEFORE: Final = "{}, before compiling"
"""Name of a scorer's result on sketches."""

BUDGETS: Final = (10, 25)
"""Percent of a task's configs that are compiled, the best by sketch, in further results."""

WITHIN: Final = "{}, {}% compiled"
"""Name of a scorer's result where it chose what to compile, and ranked that alone."""


def replay(
    oracle: Oracle, kernels: Path, funnel: Funnel, scorers: Sequence[Scorer]
) -> ReplayReport:
    """Rank every task's recorded configs by every scorer.

    A scorer that was trained ranks each kernel as if it had never seen it. One that
    ranks before compiling has further results: `BEFORE`, and one a budget, `WITHIN`. The folder
    `kernels` has a module `KERNEL.py` for each kernel; the funnel's own scorer is not asked.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    agreement = Agreement()
    results: dict[str, list[TaskResult]] = {
        name: [] for scorer in scorers for name in _names(scorer)
    }
    unseen: dict[tuple[str, str], Scorer] = {}
    early = any(scorer.ranks_before_compiling for scorer in scorers)
    for judged_task in judged_moments(oracle, kernels, funnel, early=early):
        task = judged_task.task
        for row, verdict in zip(task.rows, judged_task.compiled, strict=True):
            agreement.add(row, verdict)
        timed = _Timed.of(judged_task, funnel)
        for scorer in scorers:
            key = (scorer.name, task.kernel)
            if key not in unseen:
                unseen[key] = unseen_scorer(scorer, task.kernel, funnel.settings.jobs)
            able = unseen[key].for_dtypes((task.dtype,))
            shares = _kept_shares(timed, able, early=scorer.ranks_before_compiling)
            for name, share in zip(_names(scorer), shares, strict=True):
                results[name].append(TaskResult(task, share))
    return ReplayReport(
        device=oracle.device,
        target=funnel.target.name,
        scorers=tuple(ScorerResult(name, tuple(r)) for name, r in results.items()),
        agreement=agreement,
    )


@dataclass(frozen=True)
class _Timed:
    """The timed configs of a task: milliseconds, and what is known of them at each moment."""

    times: Sequence[float]
    compiled: Sequence[Candidate]
    sketched: Sequence[Candidate]

    @classmethod
    def of(cls, judged_task: JudgedTask, funnel: Funnel) -> _Timed:
        rows = judged_task.task.rows
        at = [index for index, row in enumerate(rows) if row.ms is not None]
        candidates = [
            [
                Candidate(rows[i].config, funnel.target, features=verdicts[i].features)
                for i in (at if verdicts else ())
            ]
            for verdicts in (judged_task.compiled, judged_task.sketched)
        ]
        return cls([ms for row in rows if (ms := row.ms) is not None], *candidates)


def _names(scorer: Scorer) -> tuple[str, ...]:
    if not scorer.ranks_before_compiling:
        return (scorer.name,)
    budgets = (WITHIN.format(scorer.name, budget) for budget in BUDGETS)
    return (scorer.name, BEFORE.format(scorer.name), *budgets)


def _kept_shares(timed: _Timed, scorer: Scorer, *, early: bool) -> list[dict[str, float]]:
    shares = [_averaged(timed.times, timed.compiled, scorer)]
    if early:
        before = scorer.score(timed.sketched)
        shares.append(kept_of(timed.times, before))
        best_first = sorted(range(len(before)), key=lambda i: -before[i])
        for percent in BUDGETS:
            count = math.ceil(len(before) * percent / 100)
            shares.append(_within(timed, scorer, best_first[:count]))
    return shares


def _averaged(
    times: Sequence[float], candidates: Sequence[Candidate], scorer: Scorer
) -> dict[str, float]:
    sums = dict.fromkeys(CUTS, 0.0)
    for draw in range(scorer.draws):
        for cut, share in kept_of(times, scorer.score(candidates, draw)).items():
            sums[cut] += share
    return {cut: total / scorer.draws for cut, total in sums.items()}


def _within(timed: _Timed, scorer: Scorer, chosen: Sequence[int]) -> dict[str, float]:
    """Rank some configs by their assembly, as if there were no others."""
    scores = [float("-inf")] * len(timed.times)
    ranked = scorer.score([timed.compiled[i] for i in chosen])
    for index, score in zip(chosen, ranked, strict=True):
        scores[index] = score
    return kept_of(timed.times, scores, frozenset(chosen))
