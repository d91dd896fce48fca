"""A bench run: what a set of kernels took on stored configs, in several processes; and its file.

A file is a JSON document, `{"format": "asmtune-bench", "version": 1, ...}` with the fields of
`BenchRun`; times are in microseconds. It is read with every field checked, and written whole or
not at all. A name that ends in .gz is compressed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, get_args

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import parse_json, printable
from asmtune.base.limited_read import MIB, read_limited, unzipped
from asmtune.core.config import Config
from asmtune.core.records.tuned import SampleStatistics
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.statistics import summarise
from asmtune.store.trace.reader import decoded, encoded

POLICY: Final = TimingPolicy()
"""L2 cold, events, 20 samples of a config and up to 60 where they are not steady."""

_COMPARED_FIELDS: Final = ("mode", "flush_bytes", "launches", "warmup_us")

Explanation = Literal["failed", "unknown"]


def timing_words() -> dict[str, Any]:
    """Return the parts of the policy that two runs must share to be compared."""
    return {name: getattr(POLICY, name) for name in _COMPARED_FIELDS}


@dataclass(frozen=True)
class BenchSubject:
    """Kernel, shape and dtype that are timed; they identify a row in every run.

    Attributes:
        kernel: the kernel module's name; not the function's, which holds the file's path. A host
            function has its own name and the kernel's.
        shape: sizes as the module takes them; what it derives from them may change. A function has
            its arguments as texts.
        dtype: canonical name, as the module takes it.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str

    @cached_property
    def identity(self) -> str:
        """Return a text that is equal for equal subjects."""
        return canonical([self.kernel, dict(self.shape), self.dtype])


@dataclass(frozen=True)
class Environment:
    """Everything that timings depend on besides kernel and config.

    Attributes:
        gpu: the device's name, as its driver gives it.
        board: digest of the board's UUID, 12 hex digits; empty where it is not known.
        driver: its version.
        versions: of asmtune, triton, torch and of the CUDA that PyTorch was built with.
    """

    gpu: str
    board: str
    driver: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Process:
    """A process of a run: its end, ISO 8601, UTC, and `read_clocks` after its last launch."""

    date: str
    clocks: Mapping[str, Any]


@dataclass(frozen=True)
class LaunchLoad:
    """Operations and different bytes of a launch, as its IR tells; `unit` names their roof."""

    unit: str
    flops: float
    bytes: float


@dataclass(frozen=True)
class TimedSubject:
    """Samples of one subject.

    Samples of one process resemble each other more than those of two: memory lies elsewhere,
    the GPU is warmer. What is compared are therefore the processes' medians.

    Attributes:
        layer: where the config was stored: "store" or "shipped"; "launch" where a function
            gives it.
        remark: why the record no longer holds, such as another source; empty where it does.
        samples: microseconds a launch, in the order taken, by process.
        load: operations and bytes of a launch; None in files written without.
    """

    subject: BenchSubject
    config: Config
    layer: str
    remark: str
    samples: tuple[tuple[float, ...], ...]
    load: LaunchLoad | None = None

    @cached_property
    def statistics(self) -> SampleStatistics:
        """Compute the statistics of all samples of all processes."""
        found = SampleStatistics.of([us for samples in self.samples for us in samples])
        assert found is not None  # a process without samples is refused
        return found

    @cached_property
    def medians_us(self) -> tuple[float, ...]:
        """Compute the medians of the processes, without outliers."""
        return tuple(summarise(self.config, samples).median_us for samples in self.samples)

    @property
    def median_us(self) -> float:
        """Compute the median of the processes' medians."""
        return median(self.medians_us)


@dataclass(frozen=True)
class UntimedSubject:
    """A subject that was not timed: it "failed", or it is "unknown", without a stored config."""

    subject: BenchSubject
    why: str
    reason: str


@dataclass(frozen=True)
class BenchRow:
    """A row that can be timed, with all that another process needs to build it.

    Attributes:
        reference: the kernel module's name, or the absolute path of its file.
        layer: where it is stored: "store" or "shipped".
        remark: why the record is stale; empty if it is not.
        function: of a function's launch, the fields of `KernelArguments` that make it.
        place: of the launch, among those that the function makes.
        notes: what is assumed about the launch.
    """

    reference: str
    subject: BenchSubject
    config: Config
    layer: str
    remark: str
    function: Mapping[str, Any] = field(default_factory=dict)
    place: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchPlan:
    """The rows of a bench run before any is timed.

    Attributes:
        missed: shapes that were asked for and have no usable stored config.
    """

    device: str
    rows: tuple[BenchRow, ...]
    missed: tuple[UntimedSubject, ...]


@dataclass(frozen=True)
class BenchRun:
    """A bench run.

    Attributes:
        date: when it ended, ISO 8601, UTC.
        label: the user's own, such as a commit; may be empty.
        timing: how, as the fields of a `TimingPolicy` that matter to a sample.
        processes: in the order in which they ran.
        rows: what was timed, each subject once; `missed` has what was not.
    """

    date: str
    label: str
    environment: Environment
    timing: Mapping[str, Any]
    processes: tuple[Process, ...]
    rows: tuple[TimedSubject, ...]
    missed: tuple[UntimedSubject, ...]

    @cached_property
    def identity(self) -> str:
        """Return a digest of when it ran and of all samples, 12 hex digits."""
        samples = [[row.subject.identity, row.samples] for row in self.rows]
        return digest(canonical([self.date, self.label, samples]))[:12]

    @property
    def name(self) -> str:
        """Return its label, or else its date."""
        return self.label or self.date


FORMAT: Final = "asmtune-bench"
VERSION: Final = 1

LEAST_US: Final = 1e-6
MOST_US: Final = 1e12
"""Twelve days."""

_MADE_BY: Final = "give a file that `asmtune bench` has written"
_COMPRESSED: Final = ".gz"


def read_run(path: Path, what: str = "run") -> BenchRun:
    """Read the run of a file; messages call it `what`, "run" or "--baseline".

    Raises:
        InputError: it cannot be read, is no run, of a newer version, or holds no timing; names
            file and field.
    """
    where = f"{what} {path}"
    text = _read_text(path, where)
    if not text.strip():
        raise InputError(f"{where}: the file is empty; {_MADE_BY}")
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error}); {_MADE_BY}") from error
    return run_from_json(document, where)


def run_from_json(document: Any, where: str) -> BenchRun:
    """Read the run of a JSON document.

    Raises:
        InputError: as `read_run`.
    """
    run = decoded(BenchRun, _of_format(document, where), f"{where}, run")
    if not run.rows:
        raise InputError(f"{where}: it holds no timing of any kernel; {_MADE_BY}")
    for place, row in enumerate(run.rows):
        field = f"{where}, rows[{place}], samples"
        if not row.samples or not all(row.samples):
            raise InputError(f"{field}: a process without samples; {_MADE_BY}")
        # Beyond, ratios have no number.
        if not all(LEAST_US <= us <= MOST_US for samples in row.samples for us in samples):
            span = f"from {LEAST_US:g} to {MOST_US:g} us"
            raise InputError(f"{field}: expected times above 0, {span}; {_MADE_BY}")
    for place, one in enumerate(run.missed):
        if one.why not in get_args(Explanation):
            known = " or ".join(get_args(Explanation))
            raise InputError(f"{where}, missed[{place}], why: expected {known}; {_MADE_BY}")
    (subject, often), *_ = Counter(row.subject.identity for row in run.rows).most_common(1)
    if often > 1:
        raise InputError(f"{where}: {printable(subject)} is there {often} times; {_MADE_BY}")
    return run


def write_run(path: Path, run: BenchRun) -> None:
    """Write a run, a line a row; the file appears whole or stays as it was.

    Raises:
        InputError: it cannot be written.
    """
    document = run_to_json(run)
    lines = []
    for name, value in document.items():
        listed = isinstance(value, list) and value
        items = ",\n".join(f"  {json.dumps(item)}" for item in value) if listed else ""
        lines.append(f" {json.dumps(name)}: " + (f"[\n{items}]" if listed else json.dumps(value)))
    data = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    try:
        write_whole(path, gzip.compress(data, mtime=0) if path.suffix == _COMPRESSED else data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; name a file to write") from error


def run_to_json(run: BenchRun) -> dict[str, Any]:
    """Convert a run to JSON values, which `run_from_json` reads."""
    return {"format": FORMAT, "version": VERSION, **encoded(run)}


def _of_format(document: Any, where: str) -> Mapping[str, Any]:
    """Return a document if its format and version are known.

    Raises:
        InputError: it does not.
    """
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or document.get("format") != FORMAT or version < 1:
        raise InputError(f'{where}: expected a document of format "{FORMAT}"; {_MADE_BY}')
    if version > VERSION:
        raise InputError(
            f"{where}: written by a newer asmtune (form {version}, this one knows {VERSION}); "
            "upgrade asmtune"
        )
    checked: Mapping[str, Any] = document
    return checked


def _read_text(path: Path, where: str) -> str:
    """Read the text of a file, decompressed if its name ends in .gz.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        data = read_limited(path)
        return (unzipped(data, 1024 * MIB) if path.suffix == _COMPRESSED else data).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: no text: {error.reason}; {_MADE_BY}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{where}: not whole, or not compressed; {_MADE_BY}") from error
    except OSError as error:
        raise InputError(f"{where}: {error.strerror or error}; {_MADE_BY}") from error
