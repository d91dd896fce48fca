"""From verdicts to what the surrogate sees: predictions, and places among the features.

What is compiled has the features of its assembly, everything else those of its sketch. A scorer
ranks relative to the other candidates, so that each moment is scored by itself, all sketches
among each other and all compiled configs among each other, and the two are levelled by the
configs that have both. (Scored as one set, a replay of 39 tasks kept 0.9970 of the best speed
with 103 compiles; by itself 0.9985 with 114; levelled 0.9984 with 105.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.scorers import Candidate
from asmtune.predict.score.vectors import BASE, base_columns
from asmtune.tuning.search.axes import Axes
from asmtune.tuning.search.base import Predictor
from asmtune.tuning.search.state import State
from asmtune.tuning.search.surrogate import Column, Matrix, Points

FEATURES_FAR: Final = 1.7
"""Root mean square of the features' distances, each in deviations over the space, that is one
length of the process. Of the greatest likelihood, as the constants of `surrogate`."""

AXES_FAR: Final = 8.0
"""Distance on the axes, each from 0 to 1, likewise: they tell apart what no feature does."""

AXES_ALONE_FAR: Final = 0.75
"""The same where there are no features."""


@dataclass(frozen=True)
class MomentReading:
    """What one moment tells of some configs; NaN where it tells nothing.

    Attributes:
        slowdown: logarithms of foreseen slowdowns.
        columns: `vectors.BASE`, a row a config.
    """

    slowdown: Column
    columns: Matrix

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], insight: Predictor | None) -> MomentReading:
        """Of verdicts of one moment."""
        slowdown = np.full(len(verdicts), np.nan)
        columns = np.full((len(verdicts), len(BASE)), np.nan)
        rows = [row for row, verdict in enumerate(verdicts) if verdict.features is not None]
        if rows and insight is not None:
            features = [v.features for v in verdicts if v.features is not None]
            columns[rows] = base_columns(features, insight.target)
            if insight.scorer.ranks_before_compiling:
                asked = [
                    Candidate(verdicts[r].config, insight.target, features=f)
                    for r, f in zip(rows, features, strict=True)
                ]
                slowdown[rows] = -np.array(insight.scorer.score(asked))
        return cls(slowdown, columns)


class ConfigPoints:
    """Points of all configs of a space; what does not change is worked out once.

    Args:
        state: its space as it is now; if configs join it, there is need of another outlook.
        insight: what predicts; without it all are foreseen alike, and lie on the axes alone.
    """

    def __init__(self, state: State, insight: Predictor | None) -> None:
        self.configs = tuple(state.configs)
        self._foreseen = state.foreseen
        self.row = {config: row for row, config in enumerate(self.configs)}
        self._insight = insight
        self._early = MomentReading.of([state.foreseen[config] for config in self.configs], insight)
        readable = self._early.columns[~np.isnan(self._early.columns).any(axis=1)]
        spread = readable.std(axis=0) if len(readable) else np.zeros(len(BASE))
        self._used = spread > 1e-6
        far = AXES_FAR if self._used.any() else AXES_ALONE_FAR
        self._axes = Axes(self.configs).coordinates(self.configs) / far
        self._middle = readable[:, self._used].mean(axis=0) if len(readable) else 0.0
        self._far = FEATURES_FAR * spread[self._used] * np.sqrt(max(1, self._used.sum()))

    def is_of(self, state: State) -> bool:
        """Whether it is of this very state, and no configs have joined it."""
        return self._foreseen is state.foreseen and len(self.configs) == len(state.configs)

    def points(self, state: State) -> Points:
        """All configs, with what is known of them now."""
        rows = np.array([self.row[config] for config in state.verdicts], dtype=np.intp)
        late = MomentReading.of(list(state.verdicts.values()), self._insight)
        columns = self._early.columns.copy()
        columns[rows] = _first_known(late.columns, columns[rows])
        # What has no features lies in the middle.
        places = np.nan_to_num((columns[:, self._used] - self._middle) / self._far)
        compiled = np.zeros(len(self.configs), dtype=np.bool_)
        compiled[rows] = True
        predicted = _levelled(self._early.slowdown, rows, late.slowdown)
        return Points(predicted, np.hstack([self._axes, places]), compiled)


def _levelled(early: Column, rows: NDArray[np.intp], late: Column) -> Column:
    """Slowdowns from 0 up: of `rows` the late ones, of the rest the early ones at their level."""
    slowdown = early.copy()
    if np.isfinite(apart := late - early[rows]).any():
        slowdown += np.nanmedian(apart)
    slowdown[rows] = _first_known(late, slowdown[rows])
    if not np.isfinite(slowdown).any():
        return np.zeros(len(slowdown))
    slowdown = _first_known(slowdown, np.full(len(slowdown), np.nanmedian(slowdown)))
    return np.asarray(slowdown - slowdown.min())


def _first_known(values: Matrix, others: Matrix) -> Matrix:
    return np.where(np.isnan(values), others, values)
