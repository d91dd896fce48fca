"""A bench run: what a set of kernels took on stored configs, in several processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Literal

from asmtune.base.fingerprint import canonical, digest
from asmtune.core.config import Config
from asmtune.measure.timing.statistics import summarise

Why = Literal["failed", "unknown"]


@dataclass(frozen=True)
class BenchSubject:
    """Kernel, shape and dtype that are timed; they identify a row in every run.

    Attributes:
        kernel: the kernel module's name; not the function's, which holds the file's path.
        shape: sizes as the module takes them; what it derives from them may change.
        dtype: canonical name, as the module takes it.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str

    @cached_property
    def identity(self) -> str:
        """Text that is equal for equal subjects."""
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
    """A process of a run.

    Attributes:
        date: when it ended, ISO 8601, UTC.
        clocks: of the GPU right after its last launch, as `read_clocks` gives them.
    """

    date: str
    clocks: Mapping[str, Any]


@dataclass(frozen=True)
class TimedSubject:
    """Samples of one subject.

    Samples of one process resemble each other more than those of two: memory lies elsewhere,
    the GPU is warmer. What is compared are therefore the processes' medians.

    Attributes:
        subject: what was timed.
        config: with which config.
        layer: where the config was stored: "store" or "shipped".
        remark: why the record no longer holds, such as another source; empty where it does.
        samples: microseconds a launch, in the order taken, by process.
    """

    subject: BenchSubject
    config: Config
    layer: str
    remark: str
    samples: tuple[tuple[float, ...], ...]

    @cached_property
    def medians_us(self) -> tuple[float, ...]:
        """Medians of the processes, without outliers."""
        return tuple(summarise(self.config, samples).median_us for samples in self.samples)

    @property
    def median_us(self) -> float:
        """Median of the processes' medians."""
        return median(self.medians_us)


@dataclass(frozen=True)
class Missed:
    """A subject that was asked for and not timed.

    Attributes:
        subject: what it is.
        why: "failed" (it cannot run) or "unknown" (no config is stored for it).
        reason: in one line.
    """

    subject: BenchSubject
    why: str
    reason: str


@dataclass(frozen=True)
class BenchRun:
    """A bench run.

    Attributes:
        date: when it ended, ISO 8601, UTC.
        label: the user's own, such as a commit; may be empty.
        environment: where it ran.
        timing: how, as the fields of a `TimingPolicy` that matter to a sample.
        processes: in the order in which they ran.
        rows: what was timed, each subject once.
        missed: what was not.
    """

    date: str
    label: str
    environment: Environment
    timing: Mapping[str, Any]
    processes: tuple[Process, ...]
    rows: tuple[TimedSubject, ...]
    missed: tuple[Missed, ...]

    @cached_property
    def identity(self) -> str:
        """Digest of when it ran and of all samples, 12 hex digits."""
        samples = [[row.subject.identity, row.samples] for row in self.rows]
        return digest(canonical([self.date, self.label, samples]))[:12]

    @property
    def name(self) -> str:
        """Its label, or else its date."""
        return self.label or self.date
