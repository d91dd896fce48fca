"""Kernels that do as they should, or, on a config of one BAD, go wrong in one way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.work import Work
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

FAULT, HANG, NOTHING, WRONG = 1, 2, 3, 4


@triton.jit
def double(x_ptr, y_ptr, flag_ptr, n, BAD: tl.constexpr, BLOCK: tl.constexpr):
    """Compute y = 2 x; FAULT writes far outside, HANG waits for a flag that nobody sets."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    y = tl.load(x_ptr + at, mask=inside) * 2.0
    if BAD == 1:
        tl.store(y_ptr + at.to(tl.int64) + (1 << 45), y, mask=inside)
    if BAD == 2:
        flag = tl.load(flag_ptr, volatile=True)
        while flag == 0:
            flag = tl.load(flag_ptr, volatile=True)
    if BAD == 4:
        y += 1.0
    if BAD != 3:
        tl.store(y_ptr + at, y, mask=inside)


@triton.jit
def double_in_place(x_ptr, n, BAD: tl.constexpr, BLOCK: tl.constexpr):
    """Double x over what was there; WRONG takes three."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(x_ptr + at, x * (3.0 if BAD == 4 else 2.0), mask=inside)


@triton.jit
def add_up(x_ptr, total_ptr, n, BAD: tl.constexpr, BLOCK: tl.constexpr):
    """Add the sum of x to a total, atomically; WRONG adds one more a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0)
    if BAD == 4:
        part += 1.0
    tl.atomic_add(total_ptr, part)


def config(bad: int = 0, block: int = 1024, **options: Any) -> Config:
    """A config of any of the kernels; small blocks are slow."""
    return Config({"BAD": bad, "BLOCK": block}, **options)


def take_all(_: Any) -> None:
    """A hook that asks for 64 TiB of the GPU's memory."""
    torch.empty(1 << 46, dtype=torch.int8, device="cuda")


def take_in_child(values: Any) -> None:
    """The same, but not in the process of the tests, where a launch is specialised."""
    if "pytest" not in sys.modules:
        take_all(values)


def problems(n: int = 1 << 20, device: str = "cuda") -> dict[str, Problem]:
    """Each kernel on fresh tensors, whole numbers so that any order of a sum is exact."""
    x = torch.arange(n, device=device, dtype=torch.float32) % 7
    y, total = torch.full_like(x, -1.0), torch.full((1,), 100.0, device=device)
    flag = torch.zeros(1, device=device, dtype=torch.int32)

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(n, meta["BLOCK"]),)

    own = {
        "double": (double, {"x_ptr": x, "y_ptr": y, "flag_ptr": flag}),
        "in place": (double_in_place, {"x_ptr": x.clone()}),
        "atomics": (add_up, {"x_ptr": x.clone(), "total_ptr": total}),
    }
    return {
        name: Problem(kernel, {**tensors, "n": n}, grid) for name, (kernel, tensors) in own.items()
    }


@dataclass
class Prepared:
    """A problem whose configs are compiled.

    Attributes:
        setup: for a bench.
        entrants: in the order of the configs.
        before: clones of the tensors.
    """

    setup: BenchSetup
    entrants: list[TimingCandidate]
    before: dict[str, torch.Tensor] = field(default_factory=dict)

    def is_whole(self) -> bool:
        """Say if every tensor holds what it held, bit for bit, and the device still computes."""
        arguments = self.setup.lowering.problem.arguments
        same = [torch.equal(arguments[name], held) for name, held in self.before.items()]
        device = next(iter(self.before.values())).device
        works = torch.ones(1000, device=device).sum().item() == 1000.0
        return all(same) and works


def prepare(
    problem: Problem, configs: Sequence[Config], target: Target, **options: Any
) -> Prepared:
    """Compile configs and read their effects off the IR, as tuning does.

    Args:
        problem: one of `problems`.
        configs: to compile.
        target: to compile for.
        options: more of the `BenchSetup`.
    """
    lowering, settings = Lowering(problem, target, 60), Settings.from_environment()
    entrants: list[TimingCandidate] = []
    works: list[Work] = []
    for one in configs:
        request = lowering.request(one)
        assert isinstance(request, LowerRequest), request
        artifact = compile_one(request, settings)
        assert isinstance(artifact, Artifact), artifact
        entrants.append(TimingCandidate(one, artifact))
        works.append(
            analyse(request.ttir, LaunchArguments(problem.bind(one), problem.programs(one)))
        )
    setup = BenchSetup(
        lowering=lowering,
        effects=Effects.of(works, problem.arguments),
        checks=options.pop("checks", CheckOptions()),
        policy=options.pop("policy", TimingPolicy()),
        **options,
    )
    tensors = {n: v.clone() for n, v in problem.arguments.items() if isinstance(v, torch.Tensor)}
    return Prepared(setup, entrants, tensors)
