"""The funnel's records: the `Features` and the `Verdict` of a config, and a problem's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asmtune.core.config import OPTION_AXES, Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import SampleStatistics

if TYPE_CHECKING:
    import pandas as pd


STORED: Final = "stored"
"""Rule of the last reason of the config that a record holds, in a report that is made with it."""

_COLUMNS: Final[Mapping[str, str]] = {
    "kept": "bool",
    "dropped_at": "string",
    "rank": "Int64",
    "score": "float64",
    "predicted_us": "float64",
    "bottleneck": "string",
    "reasons": "string",
}
"""Pandas dtypes of the columns of verdicts; features are `float64`, axes are inferred."""

_MEASURED: Final = ("measured_us", "measured_p90_us", "measured_p99_us", "measured_rsd")
"""Columns of verdicts with measured times."""

_SHOWN: Final = ("regs_per_thread", "spill_words", "shared_bytes", "occupancy")
"""Features that a notebook shows of a report."""


class Features(Mapping[str, float]):
    """Numbers read off one compiled config, by registered feature name."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Features({len(self)} values)"

    def to_pandas(self) -> pd.Series[float]:
        """Return a series by feature name; `asmtune model features` explains the names.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from asmtune.core.records.rows import series

        return series(self._values, "value")

    def _repr_html_(self) -> str | None:
        from asmtune.core.records.rows import notebook_html

        lines = ("units are in the names; `asmtune model features` says what each means",)
        return notebook_html(lines, lambda: self.to_pandas().to_frame())


@dataclass(frozen=True)
class Unlisted:
    """A number of configs that were dropped at a stage for one reason, without a verdict each."""

    dropped_at: str
    reason: str
    configs: int


@dataclass(frozen=True)
class Reason:
    """A rule's name, and in numbers why it dropped a config or warns of it."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The funnel's decision on one config.

    Attributes:
        config: the config.
        kept: True if it is to be timed.
        dropped_at: "rules", "estimate", "sketch", "compile" or "score"; None if it is kept. A
            config dropped at "estimate" was not sketched, one dropped at "sketch" was not
            compiled: its predicted rank was too low.
        rank: 1 for the best score; None if it was not scored.
        score: higher is better; each scorer has its own scale.
        reasons: of the rule that dropped it, and of rules that only warn.
        features: of the compiled config; None if it did not compile.
        failure: why the compile failed, if it did.
        artifact: digest of the compiled artifact.
        predicted_us: microseconds of a launch by the roofline model, with any scorer; from
            the sketch if it was dropped there.
        bottleneck: the largest term of this time.
        terms_us: part of this time that each limit takes, by name, largest first; they sum to
            it. None if nothing was predicted, or an older version saved the report.
        measured_us: median microseconds of a launch, if `--timings` names some of this config.
        measured: statistics of all samples behind it, where these are known.
    """

    config: Config
    kept: bool
    dropped_at: str | None = None
    rank: int | None = None
    score: float | None = None
    reasons: tuple[Reason, ...] = ()
    features: Features | None = None
    failure: Failure | None = None
    artifact: str | None = None
    predicted_us: float | None = None
    bottleneck: str | None = None
    terms_us: Mapping[str, float] | None = None
    measured_us: float | None = None
    measured: SampleStatistics | None = None

    def row(self) -> dict[str, Any]:
        """Return the verdict as a row: axes of its config, decision, reasons, features."""
        from asmtune.core.records.rows import axes_row

        row: dict[str, Any] = {
            **axes_row(self.config, {*_COLUMNS, *_MEASURED, "target"}),
            "kept": self.kept,
            "dropped_at": self.dropped_at,
            "rank": self.rank,
            "score": self.score,
            "predicted_us": self.predicted_us,
            **self._times(),
            "bottleneck": self.bottleneck,
            "reasons": "; ".join(map(str, self.reasons)),
        }
        # A config's own num_warps is not overwritten by the feature of that name.
        return row | {n: value for n, value in (self.features or {}).items() if n not in row}

    def _times(self) -> dict[str, float | None]:
        own = self.measured
        cited = () if own is None else (own.p90_us, own.p99_us, own.rsd)
        times = () if self.measured_us is None else (self.measured_us, *cited)
        return dict(zip(_MEASURED, times, strict=False))


@dataclass(frozen=True)
class Selection:
    """The number of ranks kept, and the speed that they are expected to keep.

    Attributes:
        keep: the option's value: "auto", "20", "5%".
        ranks: number of ranks kept; near ties and the default config come on top.
        expected_share: average share of the best speed that the kept configs reach, in
            [0, 1]; None if the scorer's error was never measured.
        chance_dropped: probability that no kept config is within 1% of the best; None as above.
        source: the data that the two were measured on, in words; None as above.
        other_device: the device that the two were measured on, if that is another than the
            report's target; None where all are kept, which holds on any device.
        low_share: share of the best speed that nine in ten launches reach at least; None as
            `expected_share`, and in reports of older versions.
    """

    keep: str
    ranks: int
    expected_share: float | None = None
    chance_dropped: float | None = None
    source: str | None = None
    other_device: str | None = None
    low_share: float | None = None

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
        verdicts: one per config: the kept ones by rank, then the dropped ones.
        seconds: wall-clock seconds by stage.
        versions: of asmtune, triton and torch.
        notes: sentences that a reader of the report must know.
        selection: how many ranks were kept; None if all configs that can run were.
        compiled: how many ranks of a prediction before compiling were compiled; `selection` is
            among these. None if all were.
        unlisted: counts of the configs of a large space that have no verdict.
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
    unlisted: tuple[Unlisted, ...] = ()

    @property
    def kept(self) -> tuple[Verdict, ...]:
        """Return the configs worth timing, best first."""
        return tuple(v for v in self.verdicts if v.kept)

    @property
    def stored(self) -> Verdict | None:
        """Return the verdict on the record's config; None in a report that is made without one."""
        marked = (v for v in self.verdicts if any(reason.rule == STORED for reason in v.reasons))
        return next(marked, None)

    def counts(self) -> dict[str, int]:
        """Count the candidates by how far they came; the first number is the sum of the others.

        `ruled_out` counts what a rule dropped, whether by its config, its sketch or its assembly.
        `compiled` counts what can run and was ranked by its assembly, kept or not. A space that
        was ranked by tile arithmetic first has `estimated_only` as well.
        """
        names = {
            "rules": "ruled_out",
            "compile": "failed_to_compile",
            "estimate": "estimated_only",
            "sketch": "sketched_only",
            "score": "compiled",
            None: "compiled",
        }
        counts = {"candidates": 0, **dict.fromkeys(names.values(), 0)}
        stages = Counter(verdict.dropped_at for verdict in self.verdicts)
        for one in self.unlisted:
            stages[one.dropped_at] += one.configs
        for stage, count in stages.items():
            counts[names[stage]] += count
            counts["candidates"] += count
        if not counts["estimated_only"]:
            del counts["estimated_only"]
        return counts

    def summary(self) -> str:
        """Say `counts` in words; failures only where there are any."""
        counts = self.counts()
        total = counts.pop("candidates")
        parts = [
            f"{count} {name.replace('_', ' ')}"
            for name, count in counts.items()
            if count or name != "failed_to_compile"
        ]
        return f"{total} candidates: {', '.join(parts)}"

    def dropped(self) -> dict[tuple[str, str], int]:
        """Count the dropped configs by (stage, reason), in the order of the funnel."""
        counts = {(one.dropped_at, one.reason): one.configs for one in self.unlisted}
        for verdict in self.verdicts:
            if verdict.dropped_at is not None:
                reason = verdict.reasons[0].rule if verdict.reasons else verdict.dropped_at
                key = (verdict.dropped_at, reason)
                counts[key] = counts.get(key, 0) + 1
        order = {"rules": 0, "estimate": 1, "sketch": 2, "compile": 3, "score": 4}
        return dict(sorted(counts.items(), key=lambda item: (order[item[0][0]], -item[1])))

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per config with its axes, verdict and features; column names hold units.

        Kernel, shape, dtypes, target, scorer and versions are the frame's `attrs`.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from asmtune.base.json_codec import to_json
        from asmtune.core.records.rows import OPTION_DTYPES, frame

        facts = ("kernel", "shape", "dtypes", "target", "scorer", "versions", "notes")
        attrs: dict[str, Any] = {name: to_json(getattr(self, name)) for name in facts}
        features = dict.fromkeys(self._features(), "float64")
        dtypes = {**OPTION_DTYPES, **_COLUMNS, **features}
        return frame([verdict.row() for verdict in self.verdicts], dtypes, attrs)

    def _repr_html_(self) -> str | None:
        from asmtune.core.records.rows import notebook_html

        sizes = " ".join(f"{name}={value}" for name, value in self.shape.items())
        dtypes = "/".join(dict.fromkeys(self.dtypes.values()))
        lines = (
            f"{self.kernel} {sizes} on {self.target}",
            f"{dtypes}; ranked by {self.scorer}",
            self.summary(),
            *self.notes,
        )
        return notebook_html(lines, self._short_frame)

    def _features(self) -> list[str]:
        """Return the features of the verdicts; a config's own value has the name before one."""
        names = dict.fromkeys(n for verdict in self.verdicts for n in verdict.features or ())
        taken = {name for verdict in self.verdicts for name in verdict.config.kwargs}
        return [n for n in names if n not in {*taken, *OPTION_AXES, *_COLUMNS}]

    def _short_frame(self) -> pd.DataFrame:
        left_out = [name for name in self._features() if name not in _SHOWN]
        return self.to_pandas().drop(columns=left_out)
