"""The timing policy: how often to time, with which caches, and what counts as slower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from asmtune.base.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TimingPolicy:
    """Says how candidates are timed against each other.

    Attributes:
        coarse_rounds: samples of every candidate before it may be dropped; two if it is hopeless.
        most_rounds: samples of those still in contention in a trial.
        fine_rounds: new interleaved samples of each finalist.
        contention: a candidate whose fastest sample is beyond this factor of the best median is
            clearly slower.
        hopeless: a candidate is given up after two samples if both are beyond this factor.
        significance: a candidate is slower if equal ones would differ as much with less than this
            probability (one-sided Mann-Whitney).
        spread: (p80 - p20) / median, without outliers, above which a timing is not steady, so that
            finalists get more samples, up to three times `fine_rounds`. Of normal noise 5% are a
            relative standard deviation (RSD) of 3%.
        rsd: RSD of all samples, outliers among them, above which a timing is called unsteady.
            More samples would not calm it, and take in more of the clock's drift: where outliers
            prolonged finals, 6 of 100 simulated searches with one sample in ten interrupted missed
            the best by over 1%, where none does.
        near_tie: finalists this close to the best, and not significantly slower, are
            tied: fewer registers, then less shared memory, win.
        entrant_us: device time of one candidate in a trial, after which it gets no more samples
            once it has two: a kernel of milliseconds needs few. Finalists get five times that,
            and five samples.
        warmup_us: time for which a candidate is launched before its first sample, each time that
            it enters a trial or a final; one launch at 0.
        flush_bytes: bytes written before each launch, so that inputs come from DRAM; 256 MiB is
            over four times the L2 of an H200. At 0 the caches stay warm.
        mode: "events" times single launches by events around them. "graph" times
            several launches in a CUDA graph, against the same graph without them, for
            kernels of a few microseconds; launches that cannot be captured fail.
        launches: launches of a subject in one CUDA graph.

    Raises:
        InputError: a figure is below its minimum, or the mode is unknown.
    """

    coarse_rounds: int = 3
    most_rounds: int = 12
    fine_rounds: int = 20
    contention: float = 1.15
    hopeless: float = 2.0
    significance: float = 0.01
    spread: float = 0.05
    rsd: float = 0.05
    near_tie: float = 0.01
    entrant_us: float = 30_000.0
    warmup_us: float = 0.0
    flush_bytes: int = 256 << 20
    mode: Literal["events", "graph"] = "events"
    launches: int = 10

    def __post_init__(self) -> None:
        least = {"coarse_rounds": 1, "most_rounds": 1, "fine_rounds": 1, "launches": 1}
        least |= {"contention": 1, "hopeless": 1, "significance": 0, "spread": 0, "rsd": 0}
        least |= {"near_tie": 0, "entrant_us": 0, "warmup_us": 0, "flush_bytes": 0}
        for name, minimum in least.items():
            value = getattr(self, name)
            # Not `value < minimum`, which lets NaN pass.
            if not value >= minimum:
                raise InputError(f"TimingPolicy: {name} is {value}, and must be {minimum} or more")
        if self.mode not in ("events", "graph"):
            raise InputError(f'TimingPolicy: mode is {self.mode!r}; take "events" or "graph"')
