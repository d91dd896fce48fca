"""TTIR of the tests' kernels and their work, made without a GPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.work import Work
from asmtune.triton_api.compiler import Toolchain

F16, F32, I32, I64 = torch.float16, torch.float32, torch.int32, torch.int64


@lru_cache(maxsize=2)
def toolchain(arch: int = 90) -> Toolchain:
    """Triton's compiler for an architecture."""
    return Toolchain("cuda", arch, 32)


def pointer(dtype: torch.dtype = F32) -> torch.Tensor:
    """A tensor without storage; Triton takes its dtype and that it is aligned."""
    return torch.empty(16, device="meta", dtype=dtype)


def lower(function: Any, arch: int = 90, /, **values: Any) -> str:
    """TTIR as the front end leaves it; TTGIR of a Gluon kernel."""
    chain = toolchain(arch)
    return chain.front_end(chain.specialise(function, values))[0]


def after_passes(ttir: str) -> str:
    """TTIR as Triton's own passes leave it: calls inlined, dead code gone."""
    chain = toolchain()
    options = chain.options({})
    stages = dict(chain.stages(options))
    metadata = {"target": chain.target, **options.__dict__}
    return str(stages["ttir"](chain.parse(ttir), metadata))


def work(function: Any, /, *, grid: tuple[int, ...], **values: Any) -> Work:
    """Give the work of a launch of a kernel."""
    return analyse(lower(function, **values), call(grid, **values))


def call(grid: tuple[int, ...], **values: Any) -> LaunchArguments:
    """A launch, its grid filled up to three axes."""
    x, y, z = (*grid, 1, 1)[:3]
    return LaunchArguments(values, (x, y, z))


def moved(found: Work, kind: str) -> float:
    """Bytes that a launch reads ("read"), writes ("write") or updates ("atomic")."""
    own = (access.bytes for access in found.accesses if access.kind == kind)
    return sum(own) * found.programs


def flops(found: Work) -> dict[str, float]:
    """FLOPs of a launch's matrix products by the type of their operands."""
    sums: dict[str, float] = {}
    for one in found.dots:
        kind = one.dot.operand
        sums[kind] = sums.get(kind, 0.0) + one.flops * found.programs
    return sums
