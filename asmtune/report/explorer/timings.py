"""Measured times of configs, from a tuning run or from a file of timings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import InputError, OracleError, ProblemError
from asmtune.base.settings import Settings
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import Oracle, load_oracle
from asmtune.core.records.tuned import SampleStatistics, TuneRecord
from asmtune.core.records.verdicts import PruneReport
from asmtune.report.cells import dtype_words, words
from asmtune.runtime.offline.kernel_sources import LoadedKernel, tuned_of
from asmtune.store import interchange
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import TracedRun, find_run, names_run

Timed = tuple[float, SampleStatistics | None]
"""Median microseconds of a config, and statistics of its samples where they are known."""


@dataclass(frozen=True)
class LaunchKey:
    """A launch that times are looked for: kernel, shape, dtypes of the tensors, and target."""

    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    target: str

    def __str__(self) -> str:
        launch = f"{self.kernel} {words(self.shape)} {dtype_words(self.dtypes)}"
        return f"{launch} on {self.target}"


@dataclass(frozen=True)
class KernelTimings:
    """Times of one kernel on one shape and device, by the config in words.

    The kernel's name may include its module's; the shape has what else a key may hold; the device
    is as the driver or a target names it.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtypes: frozenset[str]
    device: str
    times: Mapping[str, Timed]

    def fits(self, launch: LaunchKey) -> bool:
        """Say if the times are of a launch's kernel, shape, dtypes and device.

        A key with buckets names no size, so that its times are nobody's.
        """
        sizes = {name: str(value) for name, value in self.shape.items()}
        same_shape = all(sizes.get(name) == str(value) for name, value in launch.shape.items())
        return (
            launch.kernel.rpartition(".")[2] in self.kernel.split(".")
            and same_shape
            and bool(launch.shape or not self.shape)
            and self.dtypes <= set(launch.dtypes.values())
            and self._is_on(launch.target)
        )

    def _is_on(self, target: str) -> bool:
        model = match_device(self.device)
        return target in (self.device, None if model is None else model.name)

    def __str__(self) -> str:
        return f"{self.kernel} {words(self.shape)} {'/'.join(sorted(self.dtypes))} on {self.device}"


@dataclass(frozen=True)
class Timings:
    """Measured times that `--timings` names: where they come from, and a part for each task."""

    source: str
    parts: tuple[KernelTimings, ...]

    def of(self, launch: LaunchKey) -> Mapping[str, Timed]:
        """Return times by config in words; empty where none were taken of the launch."""
        return next((part.times for part in self.parts if part.fits(launch)), {})

    def check(self, launches: Sequence[LaunchKey]) -> None:
        """Hold it to what is asked for, before any work.

        Raises:
            InputError: it fits none of the launches.
        """
        if any(map(self.of, launches)):
            return
        have = "; ".join(map(str, self.parts[:3]))
        more = f" and {len(self.parts) - 3} more" if len(self.parts) > 3 else ""
        raise InputError(
            f"--timings: {self.source} is of {have}{more}; the report is of {launches[0]}: give "
            "the same kernel, shape, dtype and target"
        )


def read_timings(text: str, runs: Path) -> Timings:
    """Read times from a run (id or `.jsonl`), an exported store, or a file of recordings.

    Raises:
        InputError: there is no such thing, or it cannot be read.
    """
    if names_run(text):
        return _of_run(read_trace(find_run(runs, text)))
    path = Path(text)
    if not path.is_file():
        raise InputError(
            f"--timings {text}: no such run or file; `asmtune runs` lists the runs, "
            "`asmtune export` writes a file"
        )
    try:
        return _of_oracle(load_oracle(path), path)
    except OracleError as not_recorded:
        try:
            return Timings(path.name, tuple(map(_of_record, interchange.read(path))))
        except InputError as error:
            raise InputError(f"--timings {not_recorded}; nor an export: {error}") from error


def _of_run(run: TracedRun) -> Timings:
    header, timings = run.header, run.timings()
    if not timings:
        raise InputError(f"--timings: run {run.run} timed no config")
    times = {str(config): (one.median_us, one.statistics) for config, one in timings.items()}
    dtypes = frozenset(header.key.dtypes.values())
    part = KernelTimings(header.kernel, header.shape, dtypes, header.target, times)
    return Timings(f"run {run.run}", (part,))


def _of_oracle(oracle: Oracle, path: Path) -> Timings:
    parts = []
    for task in oracle.tasks:
        times = {str(row.config): (row.ms * 1000, None) for row in task.rows if row.ms is not None}
        dtypes = frozenset({_canonical(task.dtype)})
        parts.append(KernelTimings(task.kernel, task.shape, dtypes, oracle.device, times))
    return Timings(f"{path.name} ({oracle.device})", tuple(parts))


def _of_record(record: TuneRecord) -> KernelTimings:
    key, times = record.key, _times(record)
    return KernelTimings(key.kernel, key.shape, frozenset(key.dtypes.values()), key.device, times)


def _times(record: TuneRecord) -> dict[str, Timed]:
    return {str(m.config): (m.median_us, m.statistics) for m in record.config_timings}


def _canonical(dtype: str) -> str:
    try:
        return canonical_dtype(dtype)
    except ProblemError:
        return dtype


def with_timings(reports: Sequence[PruneReport], timings: Timings | None) -> list[PruneReport]:
    """Add the measured times that fit to the verdicts, with a note of where they come from."""
    return list(reports) if timings is None else [_timed(report, timings) for report in reports]


def _timed(report: PruneReport, timings: Timings) -> PruneReport:
    times = timings.of(LaunchKey(report.kernel, report.shape, report.dtypes, report.target))
    if not times:
        return report
    found = [times.get(str(verdict.config), (None, None)) for verdict in report.verdicts]
    verdicts = tuple(
        replace(verdict, measured_us=median_us, measured=statistics)
        for verdict, (median_us, statistics) in zip(report.verdicts, found, strict=True)
    )
    count = sum(median_us is not None for median_us, _ in found)
    note = f"measured: {timings.source}, {count} of {len(verdicts)} configs"
    return replace(report, verdicts=verdicts, notes=(*report.notes, note))


STORE: Final = "store"
"""The value of `--timings` that names the record that launches would find."""


def measured_times(
    given: str | None, subject: LoadedKernel | Sequence[PruneReport], targets: Sequence[str]
) -> Timings | None:
    """Read what `--timings` names, and make sure that it fits the reports.

    `given` is a run, a file, or `STORE`; `subject` the kernel that reports will be made of for
    `targets`, or reports that are there.

    Raises:
        InputError: it cannot be read, or is of none of the launches.
    """
    if given is None:
        return None
    if isinstance(subject, LoadedKernel):
        if given == STORE:
            return _stored(subject, targets)
        problem, names = subject.problem, [load_target(name).name for name in targets]
        launches = [LaunchKey(problem.name, problem.shape, problem.dtypes, name) for name in names]
    else:
        launches = [LaunchKey(r.kernel, r.shape, r.dtypes, r.target) for r in subject]
    timings = read_timings(given, Settings.from_environment().runs_dir)
    timings.check(launches)
    return timings


def _stored(loaded: LoadedKernel, targets: Sequence[str]) -> Timings:
    problem, parts, missed = loaded.problem, [], []
    settings = Settings.from_environment()
    for target in map(load_target, targets):
        lookup = tuned_of(loaded, target, settings)
        if lookup.outcome == "hit" and lookup.record is not None:
            launch = (problem.name, problem.shape, frozenset(problem.dtypes.values()), target.name)
            parts.append(KernelTimings(*launch, _times(lookup.record)))
        else:
            missed.append(f"{target.name}: {lookup.outcome} {lookup.detail}".rstrip())
    if not parts:
        raise InputError(
            f"--timings store: no record of {problem.name} is for this ({'; '.join(missed)}): "
            "`asmtune tune` makes one"
        )
    return Timings("the store", tuple(parts))
