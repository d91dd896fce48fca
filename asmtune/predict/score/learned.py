"""`learned`: a forest that predicts how far a candidate is behind the task's best.

It is fitted on timings of many kernels that ship with the package, on first use, and kept in the
user's cache as plain arrays. It sees ratios to the target's limits and to the task's other
candidates, never a kernel's name. If it cannot be used, `roofline` ranks and a note says why.

A second forest that ordered the best ranked pair by pair was left out: on 439 recorded tasks, each
kernel unseen, the first pick kept 0.0025 more of the best speed with it (95% over kernels: -0.007
to 0.011), before compiling 0.0018 (-0.007 to 0.009), and 0.15 in place of 0.44 on the worst task.
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
from asmtune.predict.score.vectors import NAMES, Scale, base_columns, schema, vectors

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
    def _model(self) -> Forest | None:
        """Return the forest, from the cache or fitted anew."""
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
            return Forest.load(path, len(NAMES), identity)
        model = fit(tasks, self.settings.jobs, identity)
        with contextlib.suppress(OSError):  # It is fitted again in the next process.
            model.save(path)
            # Delete the oldest forests, of other versions or rows.
            files = sorted(path.parent.glob("*.npz"), key=lambda kept: -kept.stat().st_mtime)
            for old in files[MOST_MODELS:]:
                old.unlink(missing_ok=True)
        return model

    def _identity(self) -> str:
        """Return a digest of everything that the forest depends on."""
        how = (GROWTH, MOST_SLOWDOWN, SLOW_WEIGHT)
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


def fit(tasks: Sequence[TaskRows], jobs: int, identity: str) -> Forest:
    """Fit a forest on tasks; the result does not depend on the number of jobs."""
    rows = np.concatenate([task.vectors for task in tasks])
    slowdown = np.concatenate([task.slowdown for task in tasks])
    weights = np.exp(-SLOW_WEIGHT * np.minimum(slowdown, 3.0))
    slowdown = np.minimum(slowdown, MOST_SLOWDOWN)
    return Forest.fit(rows, slowdown, GROWTH, weights=weights, jobs=jobs, identity=identity)


def rank(forest: Forest, base: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return scores of all candidates of a task, from their `vectors.base_columns`."""
    return ranked_at(forest, base, Scale.of(base))


def ranked_at(forest: Forest, base: NDArray[np.float32], scale: Scale) -> NDArray[np.float64]:
    """Return scores of some candidates of a task, whose scale is that of all of them."""
    roofline = base[:, 0] - scale.least[0]
    return np.asarray(-forest.predict(vectors(base, scale)) - ROOFLINE_SHARE * roofline)
