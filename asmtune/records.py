"""What the stages hand to each other and to the user: plain frozen records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from asmtune.config import Config


@dataclass(frozen=True)
class Failure:
    """Why a config could not be compiled or launched; a value, never raised.

    Attributes:
        stage: where it failed: "rules", "lower", a stage of the compiler, "read", "launch", or
            "check" (its output is not what it should be).
        kind: what it was, as one word: "kernel" (the source is at fault), "options",
            "registers", "shared_memory", "memory" (the host's or the GPU's), "timeout",
            "override" (a hand-edited file cannot be used, or does not fit the kernel),
            "crash" (the process that compiled or launched it died), "fault" (it broke the CUDA
            context), "ptxas", "compiler" (any other error),
            "parse" (its output cannot be read), "lost" (the artifact is no longer
            cached), "capture" (a launch that cannot stand in a CUDA graph), at "check"
            "wrong_output", "unwritten" or "stray_write", and at "rules" the name of the rule
            that is broken.
        detail: the message of whoever refused it, shortened.
    """

    stage: str
    kind: str
    detail: str

    def __str__(self) -> str:
        first = self.detail.strip().splitlines()[0] if self.detail.strip() else ""
        return f"{self.kind} at {self.stage}: {first}"


@dataclass(frozen=True)
class Artifact:
    """What a compile gives: the stages' outputs, as text but for the cubin.

    Attributes:
        digest: of all that the outputs depend on; the artifact's name on disk.
        entry: name of the kernel in the PTX.
        arch: `sm_90`, as the target has it.
        outputs: text of "ttir", "ttgir" and "ptx".
        cubin: the ELF file.
        metadata: Triton's own, as JSON values.
        seconds: time spent by stage.
    """

    digest: str
    entry: str
    arch: str
    outputs: Mapping[str, str]
    cubin: bytes
    metadata: Mapping[str, Any]
    seconds: Mapping[str, float]

    @property
    def shared_bytes(self) -> int:
        """Shared memory a program, static and dynamic, as launched."""
        return int(self.metadata["shared"])


@dataclass(frozen=True)
class Sketch:
    """What a compile gives before LLVM: a tenth of its time, and no machine code.

    Attributes:
        digest: of the artifact that the whole compile would give.
        arch: `sm_90`, as the target has it.
        ttgir: Triton's second IR, loops and layouts in it.
        metadata: Triton's own as far as it is known, as JSON values: the options,
            `num_warps` with those of a warp-specialised kernel's partitions, `shared`.
    """

    digest: str
    arch: str
    ttgir: str
    metadata: Mapping[str, Any]

    @property
    def shared_bytes(self) -> int:
        """Shared memory a program, as launched."""
        return int(self.metadata["shared"])


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
class Reason:
    """Why a config was dropped, or what holds it back: a rule's name and its numbers."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What the funnel says of one config.

    Attributes:
        config: the config.
        kept: whether it is worth timing.
        dropped_at: "rules", "sketch", "compile" or "score"; None where it is kept. What fell
            at "sketch" was not compiled: a prediction before compiling left it out.
        rank: 1 for the scorer's favourite; None where it was not scored.
        score: higher is better; its scale is the scorer's own.
        reasons: why it was dropped, and remarks of the rules that only warn.
        features: of the compiled config; None where it did not compile.
        failure: of the compile, where it failed.
        artifact: digest of the compiled artifact.
        predicted_us: microseconds of the launch by the roofline, whatever ranked; before
            compiling where it fell at "sketch".
        bottleneck: what takes most of them.
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


@dataclass(frozen=True)
class Measurement:
    """Timing of one config on one problem.

    Attributes:
        config: the config.
        median_us, p20_us, p80_us: of the samples without outliers, microseconds.
        samples_us: every sample, in the order taken.
    """

    config: Config
    median_us: float
    p20_us: float
    p80_us: float
    samples_us: tuple[float, ...]

    @property
    def spread(self) -> float:
        """(p80 - p20) / median; under 0.05 the timing is called steady."""
        return (self.p80_us - self.p20_us) / self.median_us


Outcome = tuple[Config, Measurement | Failure]
"""What came of a config that was tried on the GPU."""


@dataclass(frozen=True)
class TuneKey:
    """What a tuned config is kept by.

    Attributes:
        kernel: `module.qualname` of the kernel.
        shape: key argument values by name.
        dtypes: canonical dtype of each tensor argument by name.
        device: the device's name, as the driver gives it ("NVIDIA H200").
    """

    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    device: str


@dataclass(frozen=True)
class Provenance:
    """Where a tuned config comes from; what must still hold for it to be used.

    Attributes:
        source: digest of the kernel's source and of what it calls.
        space: digest of the configs that were searched.
        triton, torch, asmtune: versions.
        driver: the GPU driver's version.
        date: ISO 8601, UTC.
    """

    source: str
    space: str
    triton: str
    torch: str
    asmtune: str
    driver: str
    date: str


@dataclass(frozen=True)
class TuneRecord:
    """The outcome of tuning one key.

    Attributes:
        key: what was tuned.
        winner: the config to launch.
        measurements: every config timed, the winner among them.
        failures: configs that did not compile or launch.
        provenance: what it was made with.
    """

    key: TuneKey
    winner: Config
    measurements: tuple[Measurement, ...]
    provenance: Provenance
    failures: tuple[tuple[Config, Failure], ...] = ()

    @property
    def median_us(self) -> float | None:
        """The winner's median time in microseconds; None where it was not timed."""
        return next((m.median_us for m in self.measurements if m.config == self.winner), None)


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
    """

    keep: str
    ranks: int
    expected_share: float | None = None
    chance_dropped: float | None = None
    source: str | None = None


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


def to_json(record: Any) -> Any:
    """A record as JSON values; configs become flat mappings."""
    if isinstance(record, Config):
        return record.to_dict()
    if hasattr(record, "__dataclass_fields__"):
        return {name: to_json(getattr(record, name)) for name in record.__dataclass_fields__}
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return record if isinstance(record, str | int | float | bool | None) else str(record)
