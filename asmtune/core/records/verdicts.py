"""The funnel's records: the `Features` and the `Verdict` of a config, and a problem's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asmtune.core.config import ALTERNATIVE, OPTION_AXES, Config
from asmtune.core.records.artifacts import Failure

STORED: Final = "stored"
"""Rule of the last reason of the config that a record holds, in a report that is made with it."""

_COLUMNS: Final = (
    *("kept", "dropped_at", "rank", "score", "predicted_us"),
    *("bottleneck", "reasons", "target"),
)
"""Columns of every row of verdicts; those of an axis of such a name are called otherwise."""


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
        points: terms of the score by feature, of a scorer that sums such terms; else None.
        reasons: of the rule that dropped it, and of rules that only warn.
        features: of the compiled config; None if it did not compile.
        failure: why the compile failed, if it did.
        artifact: digest of the compiled artifact.
        predicted_us: microseconds of a launch by the roofline model, with any scorer; from
            the sketch if it was dropped there.
        bottleneck: the largest term of this time.
        terms_us: part of this time that each limit takes, by name, largest first; they sum to
            it. None if nothing was predicted, or an older version saved the report.
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
    points: Mapping[str, float] | None = None

    def row(self) -> dict[str, Any]:
        """Return the verdict as a row: axes of its config, decision, reasons, features."""
        row: dict[str, Any] = {
            **_axes(self.config),
            "kept": self.kept,
            "dropped_at": self.dropped_at,
            "rank": self.rank,
            "score": self.score,
            **{f"{name}_points": points for name, points in (self.points or {}).items()},
            "predicted_us": self.predicted_us,
            "bottleneck": self.bottleneck,
            "reasons": "; ".join(map(str, self.reasons)),
        }
        # A config's own num_warps is not overwritten by the feature of that name.
        return row | {n: value for n, value in (self.features or {}).items() if n not in row}


def _axes(config: Config) -> dict[str, Any]:
    """Return a config's values; an axis named like a column, as `rank`, becomes `config.rank`."""
    own = {f"config.{n}" if n in _COLUMNS else n: value for n, value in config.kwargs.items()}
    axes = {**own, **{option: getattr(config, option) for option in OPTION_AXES}}
    if config.ir_override is not None:
        axes["ir_override"] = config.to_dict()["ir_override"]
    if config.alternative is not None:
        axes[ALTERNATIVE] = config.alternative
    return axes


@dataclass(frozen=True)
class Selection:
    """The number of ranks kept, and the speed that they are expected to keep.

    Attributes:
        keep: the option's value: "auto", "20", "5%".
        ranks: number of ranks kept; the default config comes on top.
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
        of which a part was sketched has `estimated_only` as well.
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
