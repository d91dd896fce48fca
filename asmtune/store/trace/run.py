"""Records of one tuning run, as its trace holds them, and the folder of all traces."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest, versions
from asmtune.base.json_codec import to_json
from asmtune.base.trust import fault_line, trusted_folder
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import SampleStatistics, TuneKey


@dataclass(frozen=True)
class PredictionRow:
    """A prediction for a config before compiling; `dropped_at` as in `Verdict`."""

    config: Config
    rank: int | None
    score: float | None
    predicted_us: float | None
    dropped_at: str | None
    reason: str | None


@dataclass(frozen=True)
class DroppedRow:
    """Number of configs that a stage dropped for one reason, with the text for the first."""

    stage: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class InitialRanking:
    """The space as ranked before compiling.

    Attributes:
        count: number of configs.
        configs: the best by rank, and the default.
        dropped: configs dropped, by stage and reason.
    """

    count: int
    configs: tuple[PredictionRow, ...]
    dropped: tuple[DroppedRow, ...]

    @property
    def left_out(self) -> int:
        """Count the configs that are not listed."""
        return self.count - len(self.configs)


@dataclass(frozen=True)
class CompiledRow:
    """A config that was sent to the compiler; `spills` in words per thread, `shared` in bytes."""

    config: Config
    kept: bool
    dropped_at: str | None
    reason: str | None
    predicted_us: float | None
    rank: int | None
    regs: int | None
    spills: int | None
    shared: int | None


@dataclass(frozen=True)
class BatchRow:
    """Configs compiled together, `t` seconds after the start."""

    t: float
    number: int
    seconds: float
    rows: tuple[CompiledRow, ...]


@dataclass(frozen=True)
class Timing:
    """A timing of a config in microseconds; `samples` is the number of samples.

    p90, p99 and `rsd` are as `SampleStatistics` has them; None in traces written without. `error`
    is p99 of the relative error of the outputs; None where no bound was given.
    """

    median_us: float
    p20_us: float
    p80_us: float
    samples: int
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    rsd: float | None = None
    error: float | None = None

    @property
    def statistics(self) -> SampleStatistics | None:
        """Return the statistics of all samples; None in traces written without."""
        if self.p50_us is None or self.p90_us is None or self.p99_us is None:
            return None
        return SampleStatistics(self.samples, self.p50_us, self.p90_us, self.p99_us, self.rsd)

    @property
    def spread(self) -> float:
        """Compute (p80 - p20) / median."""
        return (self.p80_us - self.p20_us) / self.median_us


@dataclass(frozen=True)
class TimedRow:
    """A config that was launched, and its timing or failure."""

    config: Config
    outcome: Timing | Failure


@dataclass(frozen=True)
class TrialRow:
    """Configs timed together, `t` seconds after the start.

    Attributes:
        expected_gain: share of the best time that the next batch was expected to save.
        best_us: best time of the run so far.
    """

    t: float
    number: int
    seconds: float
    expected_gain: float | None
    best_us: float | None
    rows: tuple[TimedRow, ...]


@dataclass(frozen=True)
class Header:
    """The first line of a trace: the problem and the options of a run.

    Attributes:
        kernel: name of the problem.
        key: key of its record.
        reference: name or path of the kernel module; None without a module.
        target: name of the target.
        effort: values of the preset by name.
        strategy: name of the search strategy.
        seed: seed of everything random.
        default: default config, which the run has to beat.
        versions: versions of asmtune, triton and torch.
        date: ISO 8601, UTC.
        sizes: shape that the kernel module was given; the key may hold it in buckets. None
            where there is no module.
    """

    kernel: str
    key: TuneKey
    reference: str | None
    target: str
    effort: Mapping[str, Any]
    strategy: str
    seed: int
    default: Config
    versions: Mapping[str, str] = field(default_factory=versions)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    sizes: Mapping[str, Any] | None = None

    @property
    def shape(self) -> Mapping[str, Any]:
        """Return the sizes where they are known, else the key's shape."""
        return self.key.shape if self.sizes is None else self.sizes


@dataclass(frozen=True)
class Ending:
    """The last line of a trace: how a run ended.

    Attributes:
        winner: best config; None where no config could be timed.
        median_us, default_us: times of winner and default, from the last rounds.
        reason: why the search stopped, as a text.
        seconds: seconds by stage.
        compiled, timed: numbers of configs.
    """

    winner: Config | None
    median_us: float | None
    default_us: float | None
    reason: str
    seconds: Mapping[str, float]
    compiled: int
    timed: int

    @property
    def speedup(self) -> float | None:
        """Divide the default's time by the winner's; None where one is not known."""
        if self.median_us is None or self.default_us is None:
            return None
        return self.default_us / self.median_us


@dataclass(frozen=True)
class TracedRun:
    """Everything that the trace of a run holds.

    Attributes:
        path: path of the file.
        run: id of the run.
        header: problem and options.
        stages: (name, seconds) in their order.
        ranking: the space as ranked before compiling; None where the run did not come so far.
        batches, trials: in their order.
        finals: finalists and default, timed again in interleaved rounds.
        notes: notes for the reader of the run.
        ending: how it ended; None where it was killed or goes on.
        seconds: seconds from the start to the last line.
    """

    path: Path
    run: str
    header: Header
    stages: tuple[tuple[str, float], ...] = ()
    ranking: InitialRanking | None = None
    batches: tuple[BatchRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    finals: tuple[TimedRow, ...] = ()
    notes: tuple[str, ...] = ()
    ending: Ending | None = None
    seconds: float = 0.0

    def compiled(self) -> dict[Config, CompiledRow]:
        """Return the configs sent to the compiler, with their rows."""
        return {row.config: row for batch in self.batches for row in batch.rows}

    def failures(self) -> dict[Config, Failure]:
        """Return the configs that could not be launched or gave a wrong output."""
        return {c: o for c, o in self.outcomes().items() if isinstance(o, Failure)}

    def timings(self) -> dict[Config, Timing]:
        """Return the timings by config, fastest first; the last rounds replace earlier ones."""
        timed = {c: o for c, o in self.outcomes().items() if isinstance(o, Timing)}
        return dict(sorted(timed.items(), key=lambda item: item[1].median_us))

    def outcomes(self) -> dict[Config, Timing | Failure]:
        """Return timings and failures by config; the last rounds replace earlier ones."""
        rows = [row for trial in self.trials for row in trial.rows]
        return {row.config: row.outcome for row in (*rows, *self.finals)}


SUFFIX: Final = ".jsonl"
MOST_RUNS: Final = 200
MOST_BYTES: Final = 256 << 20
"""Bytes of the whole folder; a run of 674 configs, all timed, takes 0.3 MB."""

_RUN: Final = re.compile(r"\d{8}-\d{6}-\w+-[0-9a-f]{4}(-\d+)?", re.ASCII)
_BEGINNING: Final = re.compile(r"\d[\w-]*", re.ASCII)
_NAME_LENGTH: Final = 24
_SHOWN: Final = 4


def run_id(header: Header) -> str:
    """Name a run by date, kernel and 4 hex digits of the key, so that names sort by date."""
    when = datetime.fromisoformat(header.date).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"\W+", "_", header.kernel.rpartition(".")[2], flags=re.ASCII)[:_NAME_LENGTH]
    return f"{when}-{name or 'kernel'}-{_key_digits(header.key)}"


def _key_digits(key: TuneKey) -> str:
    return digest(canonical(to_json(key)))[:4]


def names_run(text: str) -> bool:
    """Tell whether an argument names a run, not a kernel or another file.

    A run is a path that ends in .jsonl, or an id or the beginning of an id: a digit, then letters,
    digits, "_" and "-". No kernel's name begins with a digit, and a file's has a "." or a "/".
    """
    return text.endswith(SUFFIX) or _BEGINNING.fullmatch(text) is not None


def find_run(folder: Path, text: str) -> Path:
    """Find the file of a run by its path, its id or the beginning of its id.

    Raises:
        InputError: no run, or more than one, begins so.
    """
    if text.endswith(SUFFIX):
        path = Path(text)
        return folder / path if len(path.parts) == 1 and not path.exists() else path
    files = run_files(folder)
    matches = [path for path in files if path.stem == text]
    matches = matches or [path for path in files if path.stem.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(f"no run {text!r} in {folder}; `asmtune runs` lists them")
    names = ", ".join(path.stem for path in matches[-_SHOWN:])
    raise InputError(f"run {text!r}: {len(matches)} begin so, the last {names}; give more of it")


def run_files(folder: Path) -> list[Path]:
    """List the traces of a folder, oldest first; none where there is no such folder.

    Raises:
        InputError: it cannot be listed.
    """
    try:
        trusted_folder(folder)
        files = [path for path in folder.iterdir() if path.suffix == SUFFIX]
        return sorted(path for path in files if _RUN.fullmatch(path.stem))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(fault_line("folder of runs", folder, error)) from error


def create(folder: Path, name: str) -> tuple[Path, int]:
    """Make a file for a run, private and open for appending; return its path and descriptor.

    Raises:
        OSError: it cannot be made.
    """
    trusted_folder(folder, make=True)
    for number in range(1, 1000):
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}{SUFFIX}"
        try:
            return path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        except FileExistsError:
            continue
    raise FileExistsError(17, "a thousand runs of this name and second")


def prune(folder: Path, most: int = MOST_RUNS, most_bytes: int = MOST_BYTES) -> None:
    """Delete the oldest runs beyond a number and beyond a total size, as far as possible."""
    total = 0
    # Another process may be faster, or the folder may be another user's: neither fails this run.
    with suppress(OSError, InputError):
        for count, path in enumerate(reversed(run_files(folder))):
            total += path.stat().st_size
            if count >= most or (count and total > most_bytes):
                path.unlink()
