"""From launches to their points: which config is the tuned one, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from asmtune.base.errors import AsmtuneError, CompileError
from asmtune.base.fingerprint import canonical, versions
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.picking import first_pick
from asmtune.predict.work_counts import WorkCounts
from asmtune.store.lookup import StoreLookup
from asmtune.workshop.roofline.chart import Chart, ChartEntry, Load, Point, TimeKind, roofs_of

MODEL: Final = "roofline"
"""Source of predicted times: the scorer of that name."""


@dataclass(frozen=True)
class Time:
    """A time of a launch, as `Point` has it."""

    us: float
    how: TimeKind
    source: str


Times = Mapping[str, Time]
"""Times by `config_key`."""


def recorded(lookup: StoreLookup) -> Times:
    """Return the times of a record that is a hit; empty otherwise."""
    if lookup.outcome != "hit" or lookup.record is None:
        return {}
    return {
        config_key(m.config): Time(m.median_us, "measured", lookup.layer)
        for m in lookup.record.config_timings
        if m.median_us > 0
    }


def times_of(verdicts: Sequence[Verdict], measured: Times, least_us: float = 0.0) -> list[Time]:
    """Give each verdict a time: measured if there is one, else predicted.

    Between configs of one kernel a prediction is wrong by much the same factor (what the model
    is held to is their order): beside a measured time, predicted ones are multiplied by what
    that time is of its own prediction. As they stand, the two would not compare. Predicted
    times are no less than `least_us`.
    """
    known = [measured.get(config_key(verdict.config)) for verdict in verdicts]
    pairs = zip(verdicts, known, strict=True)
    factors = [time.us / predicted(v) for v, time in pairs if time is not None and predicted(v)]
    factor = factors[-1] if factors else 1.0
    source = f"{MODEL} x {factor:.3g}" if factors else MODEL
    return [
        time or _predicted(predicted(verdict) * factor, source, least_us)
        for verdict, time in zip(verdicts, known, strict=True)
    ]


def slowest(lookup: StoreLookup) -> float:
    """Return the slowest time of a record, which configs left out exceed; 0 without one.

    Tuning times the default in every run, and shipping a record leaves the slower ones out.
    """
    return max((time.us for time in recorded(lookup).values()), default=0.0)


def _predicted(us: float, source: str, least_us: float) -> Time:
    if us >= least_us:
        return Time(us, "predicted", source)
    return Time(least_us, "predicted", f"{source}, but no less than what the record keeps")


def config_key(config: Config) -> str:
    """Return a key of a config that ignores the order of its axes and its hooks."""
    return canonical(config.to_dict())


def predicted(verdict: Verdict) -> float:
    """Return microseconds by the model, which every config that compiled has."""
    return verdict.predicted_us or 0.0


@dataclass(frozen=True)
class RooflineSubject:
    """A launch to look at.

    Attributes:
        problem: on tensors without memory.
        shape: as it was asked for; a problem's may name more.
        lookup: what is stored for its key on the target; the winner is the space's own config,
            with its hooks.
        sized: whether the times of what is stored are of this shape, and not of another one that
            its key covers as well, in a bucket.
        notes: what is assumed about the launch, a sentence each.
    """

    problem: Problem
    shape: Mapping[str, Any]
    space: Space
    lookup: StoreLookup
    sized: bool
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name the launch: `matmul M=4096 N=4096`."""
        shape = " ".join(f"{name}={value}" for name, value in self.shape.items())
        return f"{self.problem.name} {shape}".strip()


_UNKNOWN: Final = StoreLookup("miss")


@dataclass(frozen=True)
class Survey:
    """Makes a chart of launches: compiles their configs, and finds or predicts their times."""

    funnel: Funnel

    def chart(self, subjects: Sequence[RooflineSubject]) -> Chart:
        """Make the chart of all subjects; one that fails stops no other."""
        entries: list[ChartEntry] = []
        failures: list[tuple[str, str]] = []
        for subject in subjects:
            try:
                entries.append(self.entry(subject))
            except AsmtuneError as error:
                failures.append((subject.name, str(error)))
        points = [p for entry in entries for p in (entry.before, entry.after) if p is not None]
        units = dict.fromkeys(point.counts.unit for point in points)
        return Chart(
            target=self.funnel.target.name,
            roofs=roofs_of(self.funnel.target, units),
            entries=tuple(entries),
            failures=tuple(failures),
            versions=versions(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def entry(self, subject: RooflineSubject) -> ChartEntry:
        """Make the points of a subject before tuning and after.

        Raises:
            SpaceError: the space has no feasible point, or names what is not there.
            ProblemError: the configs do not fit the kernel.
            CompileError: the tuned config cannot run on the target, or no config can; or what
                a launch asks for cannot be read.
            StoreError: the artifacts' folder cannot be written.
        """
        problem = subject.problem
        default, tuned = subject.space.first(**problem.shape), self._tuned(subject)
        front = self.funnel.front(problem)
        verdicts = front.verdicts(
            list(dict.fromkeys([default, tuned])), "assembly", self.funnel.known
        )
        running = [verdict for verdict in verdicts if verdict.kept]
        if not verdicts[-1].kept:
            raise CompileError(f"the tuned config ({tuned}) cannot run: {verdicts[-1].reasons[0]}")
        notes: tuple[str, ...] = ()
        if not verdicts[0].kept:
            notes = (f"the default config ({default}) cannot run: {verdicts[0].reasons[0]}",)
        points = self._points(front, running, subject.lookup if subject.sized else _UNKNOWN)
        record = subject.lookup.record if subject.lookup.outcome == "hit" else None
        provenance = None if record is None else record.provenance
        made = ("triton", "driver", "date") if provenance is not None else ()
        return ChartEntry(
            kernel=problem.name,
            shape=subject.shape,
            dtypes=problem.dtypes,
            before=points[0] if verdicts[0].kept else None,
            after=points[-1],
            tuned_by="model" if record is None else subject.lookup.layer,
            made={name: getattr(provenance, name) for name in made},
            notes=(
                *subject.notes,
                *filter(None, (self.funnel.target.caution,)),
                *_lookup_notes(subject, steered=bool(points[-1].counts.steering)),
                *notes,
                *_count_notes(points[-1]),
            ),
        )

    def _tuned(self, subject: RooflineSubject) -> Config:
        lookup = subject.lookup
        if lookup.outcome == "hit" and lookup.record is not None:
            return lookup.record.winner.plain
        return first_pick(self.funnel, subject.problem, subject.space).config

    def _points(
        self, front: ProblemAnalysis, running: Sequence[Verdict], lookup: StoreLookup
    ) -> list[Point]:
        counted = [self._counts(front, verdict.config) for verdict in running]
        times = times_of(running, recorded(lookup), slowest(lookup))
        work = Load.common(counted)
        if not work.flops and not work.bytes:
            raise CompileError(f"{front.problem.name}: its IR tells neither FLOPs nor bytes")
        return [
            Point(
                config=verdict.config,
                counts=counts,
                work=work,
                us=time.us,
                how=time.how,
                source=time.source,
                predicted_us=predicted(verdict),
                bottleneck=verdict.bottleneck or "",
            )
            for verdict, counts, time in zip(running, counted, times, strict=True)
        ]

    def _counts(self, front: ProblemAnalysis, config: Config) -> WorkCounts:
        (work,) = front.works([config])
        return WorkCounts.of(work, front.target, front.problem.dtypes.values())


_OTHER_VALUES: Final = "times are the record's, whose index tensors may have held other values"


def _lookup_notes(subject: RooflineSubject, *, steered: bool) -> tuple[str, ...]:
    lookup = subject.lookup
    if lookup.outcome == "hit" and lookup.record is not None:
        if subject.sized:
            return (_OTHER_VALUES,) if steered else ()
        key = " ".join(f"{name}={value}" for name, value in lookup.record.key.shape.items())
        return (f"times are predicted: those of the record may be of another size with {key}",)
    why = "" if lookup.outcome == "miss" else f" that holds ({lookup.outcome}: {lookup.detail})"
    return (f"no tuned config is stored{why}: after is the model's first pick",)


def _count_notes(point: Point) -> tuple[str, ...]:
    notes = tuple(f"counts are a guess: {doubt}" for doubt in point.counts.assumed)
    notes += point.counts.steering
    if not point.work.flops:
        notes += ("no FLOPs: the picture leaves it out",)
    return notes
