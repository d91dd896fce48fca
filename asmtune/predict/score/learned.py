"""`learned`: a forest that predicts how far a candidate is behind the task's best.

Another forest orders the best ranked pair by pair. Both are fitted on timings of many kernels that
ship with the package, on first use, and kept in the user's cache as plain arrays. They see ratios
to the target's limits and to the task's other candidates, never a kernel's name. If they cannot be
used, `roofline` ranks and a note says why.

The slowdown of a config against its task's best carries the errors that all configs of the task
share. A pair of near ties does not: what differs between them is often one of `num_stages`,
`num_warps`, `maxnreg` or a tile, and the forest is fitted on such differences alone. A config's
place is the mean over all pairs with the others of the best ranked.

Ranked by pairs as well, 310 recorded tasks of 80 kernels (an H200, each kernel unseen in four
parts, half of the rows fitted) kept 0.965 and 0.924 of the best speed at the first pick (the 6
kernels of the oracle, 74 others); by slowdowns alone 0.952 and 0.916.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import ParseError, ProblemError
from asmtune.base.fingerprint import digest, version_of
from asmtune.base.settings import Settings
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.hardware.model import Target
from asmtune.predict.score.examples import Examples, TaskRows
from asmtune.predict.score.forest import Forest, Growth
from asmtune.predict.score.roofline import Roofline
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.vectors import (
    BASE,
    MICROSECONDS,
    NAMES,
    Scale,
    base_columns,
    schema,
    vectors,
)

DATA: Final = Path(__file__).with_name("data")
"""The training rows that ship with the package."""

GROWTH: Final = Growth(trees=48, least_in_leaf=3, columns_tried=0.33)
MOST_SLOWDOWN: Final = 1.5
"""Logarithm of the slowdown beyond which all configs count as equally bad."""

SLOW_WEIGHT: Final = 1.5
"""Rate at which a row's weight falls with its slowdown: ranking the fastest right matters most."""

ROOFLINE_SHARE: Final = 0.6
"""Share of the roofline's prediction that is added to the forest's; steadies unseen kernels."""

FEWEST: Final = 5
"""With fewer candidates `roofline` ranks: the task's least and median mean little then."""

MOST_MODELS: Final = 4
"""Models kept in the cache, some 20 MiB each."""


BEST_RANKED: Final = 40
"""Configs of a ranking that are compared pair by pair: 20 kept as much of the six kernels, less of
others. They take 1,560 predictions, some tens of milliseconds."""

SHARE: Final = 0.7
"""Share of the pairs' order in a score; the rest is the ranking before. 1 kept less of families."""

NEAR: Final = 0.5
"""Logarithm of the slowdown up to which configs are paired for the fit."""

PAIRS_OF_A_TASK: Final = 160
PAIR_GROWTH: Final = Growth(trees=32, least_in_leaf=5, columns_tried=0.33)

PAIRS: Final = (NEAR, PAIRS_OF_A_TASK, PAIR_GROWTH)
"""Everything beside the rows that a fit depends on."""


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """The fitted forests.

    Attributes:
        slowdown: predicts the logarithm of a config's time over the task's best.
        pairs: predicts that of one config over another's; None where there were no near ties.
    """

    slowdown: Forest
    pairs: Forest | None

    def save(self, path: Path) -> None:
        """Write a file a forest, `path` the last.

        Raises:
            OSError: one cannot be written.
        """
        if self.pairs is not None:
            self.pairs.save(_pairs_file(path))
        self.slowdown.save(path)

    @classmethod
    def load(cls, path: Path, identity: str) -> LearnedModel:
        """Read what `save` wrote.

        Raises:
            ParseError: a file is missing, damaged, or another's.
        """
        pairs = Forest.load(_pairs_file(path), columns_of_pairs(len(BASE)), identity)
        return cls(Forest.load(path, len(NAMES), identity), pairs)


def _pairs_file(path: Path) -> Path:
    return path.with_suffix(".pairs.npz")


@dataclass(frozen=True)
class Learned(Scorer):
    """Ranks by predicted slowdown; the score is minus its logarithm.

    Attributes:
        settings: where the fitted forest is kept, and how many processors fit it.
        sources: files of training rows.
        except_kernel: kernel whose rows are left out, so that it counts as never seen.
        unseen_dtype: a dtype of the problem that no row has, so that `roofline` ranks; None if
            all are known.
    """

    settings: Settings = field(default_factory=Settings.from_environment)
    sources: tuple[Path, ...] = tuple(sorted(DATA.glob("*.npz")))
    except_kernel: str | None = None
    unseen_dtype: str | None = None

    name = "learned"
    ranks_before_compiling = True

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Return minus the predicted slowdown; a config without features comes last."""
        compiled = [c.features for c in candidates if c.features is not None]
        if len(compiled) < FEWEST or self._model is None:
            return Roofline().score(candidates, draw)
        base = base_columns(compiled, candidates[0].target)
        scores = iter(self.rank_columns(base).tolist())
        return [float("-inf") if c.features is None else next(scores) for c in candidates]

    def rank_columns(self, base: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return scores of a task's candidates from their `base_columns`."""
        if self._model is None:
            return np.asarray(-base[:, 0], dtype=np.float64)  # the roofline's
        return rank(self._model, base)

    @property
    def effective_name(self) -> str:
        """Name of the scorer that ranks: roofline where there is no model."""
        return Roofline.name if self._model is None else self.name

    def notes(self, target: Target) -> tuple[str, ...]:
        """Return what a reader must know about a ranking for a target."""
        if isinstance(self._examples, str):
            return (f"ranked by roofline, since learned cannot be used: {self._examples}",)
        trained = list(dict.fromkeys(part.target for part in self._examples))
        if target.name in trained:
            return ()
        return (
            f"learned was trained and checked on timings of {' and '.join(trained)} alone; "
            f"{target.name} is ranked by the same ratios to the machine's limits",
        )

    def without_kernel(self, kernel: str) -> Learned:
        """Return the scorer trained without a kernel's rows; itself if the kernel has no rows."""
        if isinstance(self._examples, str):
            return self
        if not any(kernel in part.kernels for part in self._examples):
            return self
        return Learned(self.settings, self.sources, kernel)

    def for_dtypes(self, dtypes: Collection[str]) -> Learned:
        """Return the scorer for a problem with tensors of these dtypes."""
        if isinstance(self._examples, str):
            return self
        trained = {_number(task.dtype) for part in self._examples for task in part.tasks}
        unseen = sorted(dtype for dtype in dtypes if _number(dtype) not in {"", *trained})
        return replace(self, unseen_dtype=unseen[0]) if unseen else self

    @cached_property
    def _examples(self) -> tuple[Examples, ...] | str:
        """Return the training rows, or why they are missing."""
        if self.unseen_dtype is not None:
            return f"none of its training rows are of {self.unseen_dtype}"
        if not self.sources:
            return "no training rows are installed"
        try:
            return tuple(Examples.load(path) for path in self.sources)
        except ParseError as error:
            return str(error)

    @property
    def _tasks(self) -> list[TaskRows]:
        """Return the rows that it is trained on."""
        parts = () if isinstance(self._examples, str) else self._examples
        tasks = [task for part in parts for task in part.tasks]
        return [task for task in tasks if task.kernel != self.except_kernel]

    @cached_property
    def _model(self) -> LearnedModel | None:
        """Return the forests, from the cache or fitted anew."""
        if isinstance(self._examples, str):
            return None
        tasks = self._tasks
        if not tasks:
            return None
        if self.except_kernel is not None:
            # Many megabytes a kernel, for a replay alone: not worth keeping.
            return fit(tasks, self.settings.jobs, "")
        identity = self._identity()
        path = self.settings.cache_dir / "models" / f"{identity}.npz"
        with contextlib.suppress(ParseError):
            return LearnedModel.load(path, identity)
        model = fit(tasks, self.settings.jobs, identity)
        with contextlib.suppress(OSError):  # It is fitted again in the next process.
            model.save(path)
            # Delete the oldest forests, of other versions or rows.
            files = sorted(path.parent.glob("*.npz"), key=lambda kept: -kept.stat().st_mtime)
            for old in files[2 * MOST_MODELS :]:
                old.unlink(missing_ok=True)
        return model

    def _identity(self) -> str:
        """Return a digest of everything that the forest depends on."""
        how = (GROWTH, MOST_SLOWDOWN, SLOW_WEIGHT, PAIRS)
        rows = [path.read_bytes() for path in self.sources]
        versions = [f"{name} {version_of(name)}" for name in ("scikit-learn", "numpy")]
        return digest(schema(), repr(how), *versions, *rows)


def _number(dtype: str) -> str:
    """Return a name for dtypes of equal speed; "" for integers, which mostly are indices.

    Recordings may name dtypes freely; an unknown name counts as an integer.
    """
    with contextlib.suppress(ProblemError):
        dtype = canonical_dtype(dtype)
    if dtype.startswith("fp8"):
        return "fp8"
    return dtype if dtype.startswith(("fp", "bf")) else ""


def fit(tasks: Sequence[TaskRows], jobs: int, identity: str) -> LearnedModel:
    """Fit a model on tasks; the result does not depend on the number of jobs."""
    rows = np.concatenate([task.vectors for task in tasks])
    slowdown = np.concatenate([task.slowdown for task in tasks])
    weights = np.exp(-SLOW_WEIGHT * np.minimum(slowdown, 3.0))
    slowdown = np.minimum(slowdown, MOST_SLOWDOWN)
    forest = Forest.fit(rows, slowdown, GROWTH, weights=weights, jobs=jobs, identity=identity)
    return LearnedModel(forest, fit_pairs(tasks, jobs, identity))


def rank(model: LearnedModel, base: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return scores of all candidates of a task, from their `vectors.base_columns`."""
    scale = Scale.of(base)
    return ranked_at(model, base, scale)


def ranked_at(model: LearnedModel, base: NDArray[np.float32], scale: Scale) -> NDArray[np.float64]:
    """Return scores of some candidates of a task, whose scale is that of all of them."""
    roofline = base[:, 0] - scale.least[0]
    scores = np.asarray(-model.slowdown.predict(vectors(base, scale)) - ROOFLINE_SHARE * roofline)
    return scores if model.pairs is None else reordered(model.pairs, base, scale, scores)


def fit_pairs(tasks: Sequence[TaskRows], jobs: int, identity: str) -> Forest | None:
    """Fit a forest on pairs of near ties; None if no task has any."""
    draws = np.random.default_rng(0)
    rows, behind = [], []
    for task in tasks:
        near = np.flatnonzero(task.slowdown < NEAR)
        one, other = draws.choice(near, (2, PAIRS_OF_A_TASK))
        one, other = one[one != other], other[one != other]
        rows.append(_pair_columns(task.base, task.scale, one, other))
        behind.append(task.slowdown[one] - task.slowdown[other])
    if not sum(map(len, behind)):
        return None
    columns, values = np.concatenate(rows), np.concatenate(behind)
    return Forest.fit(columns, values, PAIR_GROWTH, jobs=jobs, identity=identity)


def columns_of_pairs(base_columns: int) -> int:
    """Return how many columns a pair has, for configs of a number of base columns."""
    return 2 * base_columns + MICROSECONDS


def reordered(
    forest: Forest, base: NDArray[np.float32], scale: Scale, scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the scores of a ranking, those of the best ranked moved by their pairs.

    Args:
        forest: what `fit_pairs` returned.
        base: `vectors.base_columns` of all candidates.
        scale: of all candidates.
        scores: higher is better; differences are logarithms of times.
    """
    best = np.argsort(-scores, kind="stable")[:BEST_RANKED]
    count = len(best)
    one, other = np.nonzero(~np.eye(count, dtype=np.bool_))
    behind = np.zeros((count, count))
    behind[one, other] = forest.predict(_pair_columns(base, scale, best[one], best[other]))
    # Each pair is asked both ways, and the answers differ in more than their sign. The sum is twice
    # the logarithm: the scores exaggerate as well.
    ahead = (behind.T - behind).mean(axis=1)
    moved = scores.copy()
    moved[best] += SHARE * (scores[best].mean() + ahead - scores[best])
    return moved


def _pair_columns(
    base: NDArray[np.float32], scale: Scale, one: NDArray[np.intp], other: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return a row a pair: its difference, and where its middle lies in the task and at all."""
    middle = (base[one] + base[other]) / 2
    parts = (base[one] - base[other], middle - scale.median, middle[:, :MICROSECONDS])
    return np.hstack(parts).astype(np.float32)
