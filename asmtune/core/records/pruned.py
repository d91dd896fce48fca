"""The funnel's outcome for one problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from asmtune.core.records.verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Selection:
    """How many of a ranking are kept, and what that is worth.

    Attributes:
        keep: as it was asked for: "auto", "20", "5%".
        ranks: kept from the first on; near ties and the default come on top.
        expected_share: of the best speed that they keep, on average, in [0, 1]; None
            where the scorer's error was never measured.
        chance_dropped: that nothing within 1% of the best is among them, likewise.
        source: what the two were measured with, in words, likewise.
        other_device: the device that the two were measured on, if that is another than the
            report's target; None where all are kept, which holds on any device.
    """

    keep: str
    ranks: int
    expected_share: float | None = None
    chance_dropped: float | None = None
    source: str | None = None
    other_device: str | None = None

    @property
    def caveat(self) -> str:
        """Say that the two were measured on another device; empty if they were not."""
        if self.other_device is None:
            return ""
        return f", both measured on {self.other_device}, not on this target"


@dataclass(frozen=True)
class PruneReport:
    """The funnel's outcome for one problem on one target.

    Attributes:
        kernel, shape, dtypes: the problem.
        target: name of the target.
        scorer: name of the scorer that ranked.
        verdicts: one a config: kept ones first by rank, then the dropped.
        seconds: wall-clock seconds by stage.
        versions: of asmtune, triton and torch.
        notes: what a reader must know of how it was made.
        selection: how many ranks were kept; None where all that can run were.
        compiled: how many ranks of a prediction before compiling were compiled, so that
            `selection` is of these; None where all were.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    target: str
    scorer: str
    verdicts: tuple[Verdict, ...]
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = field(default_factory=tuple)
    selection: Selection | None = None
    compiled: Selection | None = None

    @property
    def kept(self) -> tuple[Verdict, ...]:
        """The configs worth timing, best first."""
        return tuple(v for v in self.verdicts if v.kept)

    def dropped(self) -> dict[tuple[str, str], int]:
        """How many configs fell, by (stage, reason), in order of the funnel."""
        tally: dict[tuple[str, str], int] = {}
        for verdict in self.verdicts:
            if verdict.dropped_at is not None:
                reason = verdict.reasons[0].rule if verdict.reasons else verdict.dropped_at
                key = (verdict.dropped_at, reason)
                tally[key] = tally.get(key, 0) + 1
        order = {"rules": 0, "sketch": 1, "compile": 2, "score": 3}
        return dict(sorted(tally.items(), key=lambda item: (order[item[0][0]], -item[1])))

    def to_pandas(self) -> pd.DataFrame:
        """A row a config with its axes, verdict and features; units are in the columns' names.

        Kernel, shape, dtypes, target, scorer and versions are the frame's `attrs`.

        Raises:
            MissingPackageError: there is no pandas.
        """
        from asmtune.core.records.frames import report_frame

        return report_frame(self)

    def _repr_html_(self) -> str:
        from asmtune.core.records.display import report_html

        return report_html(self)
