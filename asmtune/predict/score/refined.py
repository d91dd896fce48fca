"""`learned`, refined by the user's own timings.

A small forest is fitted to what the shipped model gets wrong on the user's recordings. Rows of
the same kernel and the same device count most. The correction is used only where it ranks the
user's recordings better than the shipped model alone, each recording ranked without its own rows.
A fit with its check takes about a second, and as long to import scikit-learn: a search has a
worker do both while it sketches. Nothing is fitted before the first ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.hardware.model import Target
from asmtune.predict.score.forest import Forest, Growth
from asmtune.predict.score.history import History, RecordedTask
from asmtune.predict.score.learned import FEWEST, Learned
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.vectors import BASE, base_columns

if TYPE_CHECKING:
    from asmtune.compile.workers import Workers

Column = NDArray[np.float64]
Rank = Callable[[NDArray[np.float32]], Column]
"""Scores of a task's candidates by the shipped model, from their columns."""

SLOPE: Final = 0.5
"""True slowdown per predicted one, both logarithms: `learned` exaggerates."""

GROWTH: Final = Growth(trees=48, least_in_leaf=2, columns_tried=0.5)
SLOW_WEIGHT: Final = 1.0
"""Rate at which a row's weight falls with its slowdown."""

OTHER_KERNEL: Final = 0.25
OTHER_DEVICE: Final = 0.3
"""Weights of rows of another kernel, and of another device."""

FAR_SHAPE: Final = 0.6
UNSEEN_KERNEL: Final = 0.4
"""Share of the correction that is applied to a shape of the same kernel that is unlike any
recorded one, and to a kernel without recordings."""

NEAR: Final = 0.5
"""Distance of two tasks' columns, logarithms, at which a shape stops being the recorded one."""

STRENGTHS: Final = (1.0, 0.5)
"""Strengths of the correction that the check chooses from."""

BEST: Final = 10
"""Candidates that the columns of a task are compared with."""

FEWEST_ROWS: Final = 20
MOST_CHECKED: Final = 6
FOLDS: Final = 5
"""Recordings that the check ranks at most, and parts of a recording that is the only one."""

CUTS: Final = (1, 3)
DRAWS: Final = 64
"""Cuts of a ranking whose shares of the best speed the check averages, and halves drawn."""

_CLASS_SHARPNESS: Final = 8.0
"""Sharpness with which a config belongs to the unit that takes longest: 1 for it alone."""

_UNITS: Final = tuple(
    i for i, name in enumerate(BASE) if name.startswith("us_") and name != "us_roofline"
)


@dataclass(frozen=True, eq=False)
class Correction:
    """A forest of the shipped model's errors, and the recorded tasks that it was fitted on.

    Attributes:
        forest: predicts the logarithm of true over predicted time, from `_columns`.
        references: `_reference` of the recorded tasks of the kernel, a row a task.
        strength: share of it that is applied.
    """

    forest: Forest
    references: NDArray[np.float32]
    strength: float = 1.0

    def scores(self, base: NDArray[np.float32], scores: Column) -> Column:
        """Return the corrected scores of a task's candidates."""
        error = self.forest.predict(_columns(base, scores))
        share = self.strength * self._nearness(_reference(base, scores))
        return np.asarray(scores - share * error / SLOPE)

    def _nearness(self, reference: NDArray[np.float32]) -> float:
        if not len(self.references):
            return UNSEEN_KERNEL
        apart = ((self.references - reference) ** 2).mean(axis=1).min()
        return float(FAR_SHAPE + (1.0 - FAR_SHAPE) * np.exp(-apart / NEAR**2))


@dataclass(frozen=True)
class Checked:
    """Shares of the best speed kept on the user's own recordings, by each ranking.

    Attributes:
        refined, shipped: mean shares, in [0, 1].
        strength: strength of the correction that ranks better; 0 if none does.
    """

    refined: float
    shipped: float
    strength: float


@dataclass(frozen=True)
class Refinement:
    """The outcome of a check, and the correction if it ranks better."""

    checked: Checked
    correction: Correction | None


@dataclass(frozen=True)
class Fitter:
    """Fits and checks the correction for one kernel on one target.

    Attributes:
        rank: the shipped model.
        kernel: name of the kernel that is ranked.
        target: name of its target.
        known: scores of the tasks that are ranked already: each fit of a check takes most of them.
    """

    rank: Rank
    kernel: str
    target: str
    known: dict[RecordedTask, Column] = field(default_factory=dict, repr=False, compare=False)

    def refine(self, tasks: Sequence[RecordedTask]) -> Refinement:
        """Check whether recordings refine the shipped model; fit the correction if they do."""
        checked = self.check(tasks)
        if not checked.strength:
            return Refinement(checked, None)
        return Refinement(checked, replace(self.fit(tasks), strength=checked.strength))

    def fit(self, tasks: Sequence[RecordedTask]) -> Correction:
        """Fit a correction to recorded tasks, at least one."""
        scores = [self._scores(task) for task in tasks]
        pairs = list(zip(tasks, scores, strict=True))
        rows = np.concatenate([_columns(task.rows.base, each) for task, each in pairs])
        errors = np.concatenate([_errors(task, each) for task, each in pairs])
        weights = np.concatenate([self._weights(task) for task in tasks])
        own = [_reference(task.rows.base, each) for task, each in pairs if task.is_of(self.kernel)]
        references = np.stack(own) if own else np.zeros((0, len(BASE)), dtype=np.float32)
        return Correction(Forest.fit(rows, errors, GROWTH, weights=weights), references)

    def check(self, tasks: Sequence[RecordedTask]) -> Checked:
        """Rank recordings by corrections that have not seen them; compare with the shipped model.

        The recordings of the kernel are left out one task at a time. Without any, those of each
        other kernel are left out together, as this kernel's are: it takes two kernels. A recording
        that is the kernel's only one is ranked in parts, each by the other parts.
        """
        own = [task for task in tasks if task.is_of(self.kernel)]
        fitter = self if own else replace(self, kernel="")
        parts = _groups(own or tasks, by_kernel=not own)
        if len(parts) > 1:
            shares = [
                fitter.shares(task, [t for t in tasks if t not in part])
                for part in parts[:MOST_CHECKED]
                for task in part[:1]
            ]
        else:
            rest = [task for task in tasks if task not in parts[0]]
            shares = [fitter.shares_in_parts(task, rest) for task in parts[0][:1]]
        before, *after = np.mean(shares, axis=0).tolist()
        best = int(np.argmax(after))
        return Checked(after[best], before, STRENGTHS[best] if after[best] > before else 0.0)

    def shares(self, held: RecordedTask, others: Sequence[RecordedTask]) -> list[float]:
        """Rank a task by the shipped model, and by corrections fitted on others."""
        correction = self.fit(others)
        scores = self._scores(held)
        corrected = [
            replace(correction, strength=s).scores(held.rows.base, scores) for s in STRENGTHS
        ]
        return [_kept(held.rows.slowdown, each) for each in (scores, *corrected)]

    def shares_in_parts(self, task: RecordedTask, others: Sequence[RecordedTask]) -> list[float]:
        """Rank a task as `shares`, each part of it by corrections fitted on the other parts."""
        count = task.count
        fold = np.random.default_rng(0).permutation(count) % FOLDS
        scores = self._scores(task)
        corrected = np.zeros((len(STRENGTHS), count))
        for number in range(FOLDS):
            correction = self.fit([*others, task.at(fold != number)])
            for row, strength in enumerate(STRENGTHS):
                whole = replace(correction, strength=strength).scores(task.rows.base, scores)
                corrected[row, fold == number] = whole[fold == number]
        return [_kept(task.rows.slowdown, each) for each in (scores, *corrected)]

    def _scores(self, task: RecordedTask) -> Column:
        if task not in self.known:
            self.known[task] = self.rank(task.rows.base)
        return self.known[task]

    def _weights(self, task: RecordedTask) -> Column:
        weights = np.exp(-SLOW_WEIGHT * task.rows.slowdown.astype(np.float64))
        weights *= 1.0 if task.is_of(self.kernel) else OTHER_KERNEL
        weights *= 1.0 if task.target == self.target else OTHER_DEVICE
        return np.asarray(weights)


def _errors(task: RecordedTask, scores: Column) -> Column:
    """Return the logarithms of true over predicted time, those of a task about 0."""
    errors = task.rows.slowdown + SLOPE * scores
    return np.asarray(errors - errors.mean())


def _groups(tasks: Sequence[RecordedTask], *, by_kernel: bool) -> list[list[RecordedTask]]:
    """Group runs of one task, or of one kernel."""
    groups: dict[str, list[RecordedTask]] = {}
    for task in tasks:
        groups.setdefault(task.rows.kernel if by_kernel else task.identity, []).append(task)
    return list(groups.values())


def _columns(base: NDArray[np.float32], scores: Column) -> NDArray[np.float32]:
    """Return a row a candidate: the unit that limits it, its place in the task, and its score."""
    units = base[:, _UNITS]
    belongs = np.exp(_CLASS_SHARPNESS * (units - units.max(axis=1, keepdims=True)))
    belongs /= belongs.sum(axis=1, keepdims=True)
    behind = (scores.max() - scores)[:, None]
    return np.hstack([belongs, base - _reference(base, scores), behind]).astype(np.float32)


def _reference(base: NDArray[np.float32], scores: Column) -> NDArray[np.float32]:
    """Return the median columns of the candidates that the shipped model ranks best.

    A run compiles and times the best ranked alone, so that the task's own median would move.
    """
    best = np.argsort(-scores, kind="stable")[:BEST]
    return np.asarray(np.median(base[best], axis=0), dtype=np.float32)


def _kept(slowdown: NDArray[np.float32], scores: Column) -> float:
    """Return the mean share of the best speed that the first picks of random halves keep.

    One ranking of some hundred rows says little: its first pick is right or wrong by chance.
    """
    generator = np.random.default_rng(0)
    count = len(slowdown)
    shares = []
    for _ in range(DRAWS):
        drawn = generator.permutation(count)[: (count + 1) // 2]
        order = drawn[np.argsort(-scores[drawn], kind="stable")]
        best = slowdown[drawn].min()
        shares += [np.exp(best - slowdown[order[:cut]].min()) for cut in CUTS]
    return float(np.mean(shares))


@dataclass(frozen=True)
class RefinedLearned(Scorer):
    """`learned` for a user: corrected by the user's timings where that ranks them better.

    Attributes:
        base: the shipped model, which ranks alone where it is told to leave a kernel out.
        history: the user's recordings.
        target: the machine that is ranked for.
        kernel: full name of the kernel that is ranked; empty if it is not known.
    """

    base: Learned
    history: History
    target: Target
    kernel: str = ""

    name = Learned.name
    ranks_before_compiling = Learned.ranks_before_compiling

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Return minus the predicted slowdown; a config without features comes last."""
        compiled = [c.features for c in candidates if c.features is not None]
        if len(compiled) < FEWEST or self._correction is None:
            return self.base.score(candidates, draw)
        columns = base_columns(compiled, candidates[0].target)
        corrected = self._correction.scores(columns, self.base.rank_columns(columns))
        scores = iter(corrected.tolist())
        return [float("-inf") if c.features is None else next(scores) for c in candidates]

    def distance(self, candidates: Sequence[Candidate]) -> float | None:
        """Return how far the best candidates lie from the rows that the base is trained on."""
        return self.base.distance(candidates)

    @property
    def effective_name(self) -> str:
        """Name of the scorer whose ranking is corrected."""
        return self.base.effective_name

    def score_terms(
        self, score: float, predicted_us: float, ranked_us: Sequence[float]
    ) -> Mapping[str, float]:
        """Return the base's terms."""
        return self.base.score_terms(score, predicted_us, ranked_us)

    def notes(self, target: Target) -> tuple[str, ...]:
        """Return what a reader must know: the base's notes, and what the history was worth."""
        return (*self.base.notes(target), *self.history.faults, *self._used)

    def for_dtypes(self, dtypes: Collection[str]) -> RefinedLearned:
        """Return the scorer for a problem with tensors of these dtypes."""
        base = self.base.for_dtypes(dtypes)
        return self if base is self.base else replace(self, base=base)

    def for_kernel(self, kernel: str) -> RefinedLearned:
        """Return the scorer for a kernel by its full name."""
        return self if kernel == self.kernel else replace(self, kernel=kernel)

    def without_kernel(self, kernel: str) -> Scorer:
        """Return the shipped model alone, without a kernel's rows: it replays what it never saw."""
        return self.base.without_kernel(kernel)

    @cached_property
    def _tasks(self) -> tuple[RecordedTask, ...]:
        return self.history.nearest(self.kernel, self.target.name)

    def prepare(self, workers: Workers) -> None:
        """Have a worker fit the correction, and load the shipped model here."""
        if not self._is_ready:
            # A copy of the model, without what it has loaded: a worker reads its file.
            fitted = workers.call(self._fitter(replace(self.base)).refine, self._tasks)
            if fitted is not None:
                self.__dict__["_refinement"] = fitted  # as the property would
        self.base.prepare(workers)

    def at_once(self) -> Scorer:
        """Return the shipped model while the correction is not fitted, which takes seconds."""
        return self if self._is_ready else self.base

    @property
    def _is_ready(self) -> bool:
        """Return whether nothing is left to be fitted."""
        return bool(self._unusable) or "_refinement" in self.__dict__

    @property
    def _unusable(self) -> str:
        """Return why the recordings cannot be checked; "" if they can."""
        if sum(task.count for task in self._tasks) < FEWEST_ROWS:
            return f"at least {FEWEST_ROWS} are needed"
        kernels = {task.rows.kernel for task in self._tasks}
        if len(kernels) == 1 and not self._tasks[0].is_of(self.kernel):
            # Of one recorded kernel alone a first pick of others kept 0.90 in place of 0.91.
            return f"all are of {kernels.pop()}, and another kernel takes those of two"
        return ""

    def _fitter(self, base: Learned) -> Fitter:
        return Fitter(base.rank_columns, self.kernel, self.target.name)

    @cached_property
    def _refinement(self) -> Refinement:
        return self._fitter(self.base).refine(self._tasks)

    @property
    def _correction(self) -> Correction | None:
        return None if self._unusable else self._refinement.correction

    @property
    def _used(self) -> tuple[str, ...]:
        """Return a line on how the ranking uses the history; nothing without timings."""
        count = sum(task.count for task in self._tasks)
        if not count:
            return ()
        if unusable := self._unusable:
            return (f"your {count} timings were not used: {unusable}",)
        checked = self._refinement.checked
        shares = f"({checked.refined:.3f} of the best speed against {checked.shipped:.3f})"
        if checked.strength:
            origin = self.history.origin(self._tasks)
            return (f"refined by {count} timings of {origin}; they rank your recordings {shares}",)
        worse = "worse" if checked.refined < checked.shipped else "no better"
        return (
            f"your {count} timings were not used: they rank your own recordings {worse} {shares}",
        )
