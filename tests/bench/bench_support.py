"""A problem on the host's memory, and entrants whose launches do what their MODE says."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

CHILD = (sys.executable, str(Path(__file__).with_name("cpu_child.py")))


@triton.jit
def double(x_ptr, y_ptr, n, MODE: tl.constexpr, US: tl.constexpr):
    """Double; never compiled here: `CpuMachine` does what it is for."""
    tl.store(y_ptr, tl.load(x_ptr) * 2)


def problem(**more: Any) -> Problem:
    """Double eight numbers."""
    tensors = {"x_ptr": torch.arange(8.0), "y_ptr": torch.full((8,), 7.0)}
    return Problem(double, {**tensors, "n": 8, **more}, (1,))


def setup(
    checks: Mapping[str, Any] | None = None, run_timeout_s: float = 20.0, **more: Any
) -> BenchSetup:
    """Make the setup of what is timed, with few samples."""
    return BenchSetup(
        lowering=Lowering(problem(**more), load_target("H200"), 30),
        effects=Effects(reads=frozenset({"x_ptr"}), writes=frozenset({"y_ptr"})),
        checks=CheckOptions(**(checks or {})),
        policy=TimingPolicy(coarse_rounds=2, most_rounds=3, fine_rounds=4, flush_bytes=0),
        run_timeout_s=run_timeout_s,
    )


def entrant(mode: str, us: float = 10.0, **options: Any) -> TimingCandidate:
    """Make a candidate whose launch is of a mode and takes so long; its code is its own."""
    config = Config({"MODE": mode, "US": us}, **options)
    code = f"{mode} {us} {config.num_warps}".encode()
    return TimingCandidate(config, artifact(code, num_warps=config.num_warps))


def told(outcomes: Iterable[tuple[Config, Any]]) -> list[Any]:
    """List the medians, and the kinds of failures."""
    return [r.kind if isinstance(r, Failure) else r.median_us for _, r in outcomes]


def artifact(code: bytes, **metadata: Any) -> Artifact:
    """Make an artifact such as a compile could give."""
    launch = {"name": "double", "num_warps": 4, "num_ctas": 1, "shared": 0, **metadata}
    return Artifact(code.hex(), "double", "sm_90", {}, code, launch, {})
