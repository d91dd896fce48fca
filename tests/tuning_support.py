"""Whole tuning runs without a GPU: all is real but launches and clock.

Configs are compiled for an H200, PyTorch does on the host what the kernel would do, and a
function of the config tells the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.store.safe_store import SafeStore
from asmtune.tuning.options import EFFORTS, Choices, TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult, key_of
from asmtune.tuning.tuner import Tuner

DEVICE = "NVIDIA H200"
DEFAULT = Config({"BLOCK": 256, "FLAW": 0}, num_warps=4)
BEST = Config({"BLOCK": 1024, "FLAW": 0}, num_warps=8)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Add; with a flaw, do something else."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + tl.load(y_ptr + at, mask=inside) + FLAW, mask=inside)


def problem(n: int = 4096) -> Problem:
    """Add two vectors on the host; the sum holds sevens before."""
    x, y = torch.arange(float(n)), torch.ones(n)
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.full((n,), 7.0), "n": n}
    return Problem(add, arguments, lambda v: (triton.cdiv(n, v["BLOCK"]),), {"n": n})


def space(flaws: Sequence[int] = (0,), warps: Sequence[int] = (1, 2, 4, 8)) -> Space:
    """Blocks, warps and flaws."""
    axes = {"BLOCK": (128, 256, 512, 1024, 2048), "FLAW": flaws, "num_warps": warps}
    return Space(axes, default=DEFAULT)


def usual_us(config: Config) -> float:
    """Least at `BEST`, and no two alike: 10 us, and a fifth more for each step away."""
    block, warps = config.kwargs["BLOCK"], config.num_warps
    steps = abs(block.bit_length() - 11) + 1.3 * abs(warps.bit_length() - 4)
    return 10.0 * (1 + 0.2 * steps)


@dataclass
class HostMachine:
    """Launches on the host; takes the times that it is told.

    Attributes:
        us: time of a config.
        timed: configs in the order in which samples were taken.
        interrupt_after: samples after which Ctrl-C is pressed; None for never.
    """

    us: Callable[[Config], float] = usual_us
    timed: list[Config] = field(default_factory=list)
    interrupt_after: int | None = None
    name: str = DEVICE

    def clock(self, policy: TimingPolicy) -> HostMachine:  # noqa: ARG002 - the protocol's
        """It is its own clock."""
        return self

    def launch(
        self,
        binary: Binary,  # noqa: ARG002 - the protocol's
        values: Mapping[str, Any],
        pre_hook: Callable[..., Any] | None,
    ) -> LoadedLaunch:
        """Do what the kernel would do."""

        def run() -> None:
            # A kernel writes to memory, also of a tensor that inference has made.
            values["out_ptr"].data.copy_(values["x_ptr"] + values["y_ptr"] + values["FLAW"])

        def prepare() -> None:
            if pre_hook is not None:
                pre_hook(values)

        return LoadedLaunch(prepare, run)

    def synchronize(self) -> None:
        """A host is never lost."""

    def warm_up(self, subject: Subject) -> Failure | None:
        """Run a subject once."""

        def once() -> None:
            subject.prepare()
            subject.run()
            subject.finish()

        outcome = guarded("launch", once)
        return outcome if isinstance(outcome, Failure) else None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Run each once; tell the time that each would take."""
        for subject in subjects:
            if self.interrupt_after is not None and len(self.timed) >= self.interrupt_after:
                raise KeyboardInterrupt
            subject.prepare()
            subject.run()
            subject.finish()
            self.timed.append(subject.config)
        return [self.us(subject.config) for subject in subjects]


def workshop(folder: Path, machine: HostMachine, effort: str = "balanced", **choices: Any) -> Tuner:
    """A workshop with a store and traces of its own in a folder, over a machine.

    Artifacts are those of the test session, and roofline ranks: it needs no fit.
    """
    settings = Settings(cache_dir=folder, jobs=1)
    folder.mkdir(exist_ok=True)
    if not settings.artifacts_dir.exists():
        shared = Settings.from_environment().artifacts_dir
        shared.mkdir(parents=True, exist_ok=True)
        settings.artifacts_dir.symlink_to(shared)
    made_effort = replace(EFFORTS[effort], scorer="roofline")
    options = TuneOptions.of(Choices(effort=made_effort, **choices))

    def opener(setup: BenchSetup) -> Any:
        return DedupBench(setup.lowering.problem, LocalBench(setup, machine))

    made = Tuner.open(DEVICE, options, settings)
    made.store = SafeStore(str(settings.store_path))  # its own: warnings are told once a shelf
    made.opener = opener
    return made


def request(
    tuner: Tuner, made: Problem | None = None, searched: Space | None = None
) -> TuningRequest:
    """A request of a problem, as a tuner makes it."""
    made = made or problem()
    return tuner.request(made, key_of(made, DEVICE), searched or space())


def resolved(
    tuner: Tuner, searched: Space | None = None, made: Problem | None = None
) -> TuningResult:
    """What a tuner answers to a request."""
    return tuner.resolve(request(tuner, made, searched))
