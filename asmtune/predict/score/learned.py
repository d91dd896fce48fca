"""`learned`: boosted trees that predict how far a candidate is behind the task's best.

They are fitted on timings of many kernels (`asmtune model train`) and ship as plain arrays. They
see ratios to the target's limits and to the task's other candidates, never a kernel's name. If
they cannot be used, `roofline` ranks and a note says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import InputError, ParseError, ProblemError
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.hardware.model import Target
from asmtune.predict.score.roofline import Roofline
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.trees import Trees
from asmtune.predict.score.vectors import NAMES, Scale, base_columns, schema, vectors

SHIPPED: Final = Path(__file__).with_name("data") / "learned.npz"
"""The trees that ship with the package."""

ROOFLINE_SHARE: Final = 0.6
"""Share of the roofline's prediction that is added to the trees'; steadies unseen kernels."""

FEWEST: Final = 5
"""With fewer candidates `roofline` ranks: the task's least and median mean little then."""


@dataclass(frozen=True)
class Learned(Scorer):
    """Ranks by predicted slowdown; the score is minus its logarithm.

    Attributes:
        name: "learned", or "learned:FILE.npz" with trees of one's own.
        fitted: trees in the place of the file's; None to read it.
        unseen_dtype: a dtype of the problem that no training row has, so that `roofline` ranks;
            None if all are known.

    Raises:
        InputError: a file of one's own cannot be read, or its trees see other features.
    """

    name: str = "learned"
    fitted: Trees | None = None
    unseen_dtype: str | None = None

    ranks_before_compiling = True

    def __post_init__(self) -> None:
        """Read a file of one's own, which must be usable."""
        _, colon, own = self.name.partition(":")
        if colon and self.fitted is None:
            try:
                object.__setattr__(self, "fitted", load_trees(Path(own)))
            except ParseError as error:
                raise InputError(f"--scorer {self.name}: {error}") from error

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Return minus the predicted slowdown; a config without features comes last."""
        compiled = [c.features for c in candidates if c.features is not None]
        if len(compiled) < FEWEST or isinstance(self._trees, str):
            return Roofline().score(candidates, draw)
        base = base_columns(compiled, candidates[0].target)
        scores = iter(ranked_at(self._trees, base, Scale.of(base)).tolist())
        return [float("-inf") if c.features is None else next(scores) for c in candidates]

    @property
    def effective_name(self) -> str:
        """Name of the scorer that ranks: roofline where there are no trees.

        Nobody has measured the error of trees of one's own: they have a name of their own.
        """
        return Roofline.name if isinstance(self._trees, str) else self.name

    @property
    def trained_kernels(self) -> frozenset[str]:
        """Return the kernels that its trees have seen."""
        trees = self._trees
        return frozenset() if isinstance(trees, str) else frozenset(trees.about["kernels"])

    def notes(self, target: Target) -> tuple[str, ...]:
        """Return what a reader must know about a ranking for a target."""
        if isinstance(self._trees, str):
            return (f"ranked by roofline, since learned cannot be used: {self._trees}",)
        trained = self._trees.about["targets"]
        if target.name in trained:
            return ()
        return (
            f"learned was trained and checked on timings of {' and '.join(trained)} alone; "
            f"{target.name} is ranked by the same ratios to the machine's limits",
        )

    def for_dtypes(self, dtypes: Collection[str]) -> Learned:
        """Return the scorer for a problem with tensors of these dtypes."""
        if isinstance(self._trees, str):
            return self
        trained = {"", *self._trees.about["dtypes"]}
        unseen = sorted(dtype for dtype in dtypes if number_name(dtype) not in trained)
        return replace(self, unseen_dtype=unseen[0]) if unseen else self

    @cached_property
    def _trees(self) -> Trees | str:
        """Return the trees, or why they are missing."""
        if self.unseen_dtype is not None:
            return f"none of its training rows are of {self.unseen_dtype}"
        if self.fitted is not None:
            return self.fitted
        try:
            return _shipped()
        except ParseError as error:
            return str(error)


@cache
def _shipped() -> Trees:
    return load_trees(SHIPPED)


def load_trees(path: Path) -> Trees:
    """Read trees that see this version's features.

    Raises:
        ParseError: there is no such file, it is damaged, or its trees see other features.
    """
    trees = Trees.load(path)
    about = trees.about
    lists = [about.get(name) for name in ("targets", "dtypes", "kernels")]
    named = all(isinstance(each, list) and all(map(_is_name, each)) for each in lists)
    if about.get("schema") != schema() or trees.columns != len(NAMES) or not named:
        raise ParseError(f"trees {path}: fitted on other features; run asmtune model train")
    return trees


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def number_name(dtype: str) -> str:
    """Return a name for dtypes of equal speed; "" for integers, which mostly are indices.

    Recordings may name dtypes freely; an unknown name counts as an integer.
    """
    with contextlib.suppress(ProblemError):
        dtype = canonical_dtype(dtype)
    if dtype.startswith("fp8"):
        return "fp8"
    return dtype if dtype.startswith(("fp", "bf")) else ""


def ranked_at(trees: Trees, base: NDArray[np.float32], scale: Scale) -> NDArray[np.float64]:
    """Return scores of some candidates of a task from their `vectors.base_columns`.

    The scale is that of all candidates of the task.
    """
    roofline = base[:, 0] - scale.least[0]
    return np.asarray(-trees.predict(vectors(base, scale)) - ROOFLINE_SHARE * roofline)
