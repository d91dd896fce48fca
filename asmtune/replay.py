"""Replay: the funnel over recorded timings, to know its regret without a GPU.

A scorer ranks the timed configs of a task; what matters is the best speed
among its first k, over the best speed of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from asmtune.config import Config
from asmtune.errors import OracleError
from asmtune.funnel import Funnel
from asmtune.guard import required
from asmtune.kernel_module import KernelModule, load_kernel_module
from asmtune.oracle import Oracle, Row, Task
from asmtune.problem import Problem
from asmtune.records import Verdict
from asmtune.score import Candidate, Scorer, without_kernel

CUTS: Final = ("top1", "top5", "top10", "top5pct", "top10pct")
"""How many of the ranked configs would be timed; of n, p percent are max(1, n p // 100)."""


@dataclass(frozen=True)
class TaskResult:
    """One scorer on one task.

    Attributes:
        task: the task.
        kept: share of the best speed kept, in (0, 1], by cut.
    """

    task: Task
    kept: Mapping[str, float]


@dataclass(frozen=True)
class ScorerResult:
    """One scorer on all tasks."""

    scorer: str
    tasks: tuple[TaskResult, ...]

    def summary(self, kernel: str | None = None) -> dict[str, float]:
        """Geometric means by cut, and the worst task at top 10, of one kernel or of all."""
        tasks = [r for r in self.tasks if kernel is None or r.task.kernel == kernel]
        means = {cut: geometric_mean(r.kept[cut] for r in tasks) for cut in CUTS}
        return {**means, "worst_top10": min(r.kept["top10"] for r in tasks)}

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels in the file's order."""
        return tuple(dict.fromkeys(r.task.kernel for r in self.tasks))


@dataclass(frozen=True)
class Agreement:
    """What was told without a GPU, against what was recorded on one.

    Attributes:
        failures: configs by (told, recorded), each "runs" or "fails".
        resources: configs by (name, "equal" or "differs"), of "regs", "spills", "shared".
    """

    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    resources: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, row: Row, verdict: Verdict) -> None:
        """Counts one config."""
        told = "runs" if verdict.kept else "fails"
        self.failures[told, "runs" if row.error is None else "fails"] += 1
        names = {"regs": "regs_per_thread", "spills": "spill_words", "shared": "shared_bytes"}
        if verdict.features is not None:
            for name, recorded in row.resources.items():
                same = verdict.features[names[name]] == recorded
                self.resources[name, "equal" if same else "differs"] += 1


@dataclass(frozen=True)
class ReplayReport:
    """Outcome of a replay: each scorer's regret, and the agreement of what needs no scorer."""

    device: str
    target: str
    scorers: tuple[ScorerResult, ...]
    agreement: Agreement

    def to_json(self) -> dict[str, object]:
        """`{"scorers": {NAME: {"all": {...}, "kernels": {KERNEL: {...}}}}, ...}`."""
        told = self.agreement.failures
        return {
            "scorers": {
                result.scorer: {
                    "all": _rounded(result.summary()),
                    "kernels": {k: _rounded(result.summary(k)) for k in result.kernels},
                }
                for result in self.scorers
            },
            "failures": {f"told {a}, recorded {b}": n for (a, b), n in sorted(told.items())},
            "resources": {f"{a} {b}": n for (a, b), n in sorted(self.agreement.resources.items())},
            "device": self.device,
            "target": self.target,
        }


def replay(
    oracle: Oracle, kernels: Path, funnel: Funnel, scorers: Sequence[Scorer]
) -> ReplayReport:
    """Ranks every task's recorded configs by every scorer.

    A scorer that was trained ranks each kernel as if it had never seen it.

    Args:
        oracle: recorded timings.
        kernels: folder with a module `KERNEL.py` for each kernel of the file.
        funnel: compiles and reads; its own scorer is not asked.
        scorers: to compare.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    agreement = Agreement()
    results: dict[str, list[TaskResult]] = {scorer.name: [] for scorer in scorers}
    unseen: dict[tuple[str, str], Scorer] = {}
    for task, verdicts in judged(oracle, kernels, funnel):
        for row, verdict in zip(task.rows, verdicts, strict=True):
            agreement.add(row, verdict)
        timed = [
            (row.ms, Candidate(row.config, funnel.target, features=verdict.features))
            for row, verdict in zip(task.rows, verdicts, strict=True)
            if row.ms is not None
        ]
        for scorer in scorers:
            key = (scorer.name, task.kernel)
            if key not in unseen:
                unseen[key] = without_kernel(scorer, task.kernel)
            results[scorer.name].append(TaskResult(task, _kept(timed, unseen[key])))
    return ReplayReport(
        device=oracle.device,
        target=funnel.target.name,
        scorers=tuple(ScorerResult(name, tuple(r)) for name, r in results.items()),
        agreement=agreement,
    )


def judged(
    oracle: Oracle, kernels: Path, funnel: Funnel
) -> Iterator[tuple[Task, Sequence[Verdict]]]:
    """Each task of a file with verdicts on its rows, as they are done.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    modules = {
        name: _module(kernels, name) for name in dict.fromkeys(t.kernel for t in oracle.tasks)
    }
    for task in oracle.tasks:
        module = modules[task.kernel]
        problem = _problem(module, task)
        yield task, funnel.judge(problem, _with_hooks(task, module, problem))


def _with_hooks(task: Task, module: KernelModule, problem: Problem) -> list[Config]:
    """The recorded configs; where the module's space has an equal one, that, with its hook.

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


def _kept(timed: Sequence[tuple[float, Candidate]], scorer: Scorer) -> dict[str, float]:
    """Share of the best speed kept by each cut, averaged over the scorer's draws."""
    times = [ms for ms, _ in timed]
    candidates = [candidate for _, candidate in timed]
    sums = dict.fromkeys(CUTS, 0.0)
    for draw in range(scorer.draws):
        for cut, share in kept_of(times, scorer.score(candidates, draw)).items():
            sums[cut] += share
    return {cut: total / scorer.draws for cut, total in sums.items()}


def kept_of(times: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Share of the best speed that each cut of a ranking keeps."""
    best = min(times)
    # sorted() is stable: ties keep the file's order.
    order = sorted(range(len(times)), key=lambda i: -scores[i])
    cuts = cut_sizes(len(times))
    return {cut: best / min(times[i] for i in order[:count]) for cut, count in cuts.items()}


def cut_sizes(timed: int) -> dict[str, int]:
    """How many configs each cut keeps of `timed`."""
    sizes = (1, 5, 10, max(1, timed * 5 // 100), max(1, timed * 10 // 100))
    return dict(zip(CUTS, sizes, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
