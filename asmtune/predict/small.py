"""Tell by arithmetic whether a launch is too small to tune: FLOPs and bytes against the host.

Nothing is sketched or compiled. The arguments tell the bytes, and a product's FLOPs where M, N and
K are among them. For other loops and products the default config's TTIR tells the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

from asmtune.core.dtypes import dtype_of
from asmtune.core.hardware.model import LAUNCH_US, Target, dram_rate
from asmtune.core.problem import Problem
from asmtune.core.size_rules import product_sizes
from asmtune.ir.ttir.work import Work
from asmtune.triton_api.jit_functions import jit_function, products_and_loops

Limit = float | Literal["host"]
"""Microseconds, or what a launch costs the host."""

HOST: Final[Limit] = "host"

HOST_US: Final = (5.05, 0.131)
"""Microseconds of the host for a launch, and for each of the kernel's parameters: by
`asm_autotune`, with a function as grid, 5.052 us of none and 7.54 us of 19, with an H200
(benchmarks/results/launch_cost.json as of 2026-11-22, commit a2d7578). The host of the file as it
is, of 2026-11-28, takes 6.276 and 9.516."""

SLACK: Final = 2.0
"""By `HOST`, a launch is small if a config that takes twice its work still waits for the host."""

_TILE: Final = 128
"""Side of a product's tile, one an SM: with fewer tiles than SMs it reaches a share of the rate."""

_RATES: Final = {"fp32": "tf32", "f32": "tf32", "i8": "int8", "u8": "int8", "f16": "fp16"}
_NUMBERS: Final = frozenset({"i64", "u64", "i32", "u32", "i16", "i1"})
_LANES: Final = 32


def small_us(
    problem: Problem, target: Target, limit: Limit, read_work: Callable[[], Work | None]
) -> float | None:
    """Return the predicted microseconds of a launch if they are below a limit; else None.

    Args:
        problem: the launch.
        target: the device.
        limit: microseconds, or `HOST`.
        read_work: returns the default config's work by its TTIR, or None if it cannot be read;
            called where the arguments do not tell enough.
    """
    most = limit_us(problem, limit)
    us = arguments_us(problem, target)
    if us < most < math.inf and not _is_told(problem):
        work = read_work()
        if work is None or not work.evaluated:
            return None
        us = max(us, work_us(work, target))
    return us if us < most else None


def limit_us(problem: Problem, limit: Limit) -> float:
    """Return a limit in microseconds of a launch, with the launch itself."""
    if limit != "host":
        return limit
    base, each = HOST_US
    return LAUNCH_US + (base + each * len(jit_function(problem.kernel).arg_names)) / SLACK


def arguments_us(problem: Problem, target: Target) -> float:
    """Return the microseconds that a launch takes for its tensors' bytes and its product.

    They never fall as a size grows.
    """
    seconds = sum(problem.tensor_bytes.values()) / dram_rate(target)
    sizes = product_sizes(problem.arguments)
    multiplies, _ = products_and_loops(jit_function(problem.kernel))
    if multiplies and sizes is not None:
        shapes = [v.shape for v in problem.arguments.values() if dtype_of(v) is not None]
        batch = max((math.prod(shape[:-2]) for shape in shapes), default=1)
        operand = next(iter(problem.dtypes.values()), "fp32")
        tiles = batch * math.prod(sizes) ** (2 / 3) / _TILE**2
        flops = 2.0 * batch * math.prod(sizes)
        if flops:
            busy = min(1.0, tiles / target.sms)
            seconds = max(seconds, flops / (_tensor_rate(target, operand) * busy))
    return LAUNCH_US + 1e6 * seconds


def work_us(work: Work, target: Target) -> float:
    """Return the microseconds that a launch takes for its work: products, elements and bytes."""
    cycles = sum(
        dot.flops / _tensor_rate(target, dot.dot.operand) * target.sms * target.clock_hz
        for dot in work.dots
    )
    lanes = target.issue_slots_per_clock_per_sm * _LANES
    special = target.special_functions_per_clock_per_sm
    for kind, count in work.elements.items():
        cycles += count / (special if kind == "special" else lanes)
    rounds = max(1.0, work.programs / target.sms)
    moved = work.unique_read_bytes + work.unique_written_bytes
    return LAUNCH_US + 1e6 * (rounds * cycles / target.clock_hz + moved / dram_rate(target))


def _is_told(problem: Problem) -> bool:
    """Return whether the arguments tell the work: no loop, or a product of sizes that are given."""
    multiplies, loops = products_and_loops(jit_function(problem.kernel))
    if not (multiplies or loops):
        return True
    # Of whole numbers alone, tensors may hold addresses.
    is_given = multiplies and product_sizes(problem.arguments) is not None
    return is_given and not _NUMBERS.issuperset(problem.dtypes.values())


def _tensor_rate(target: Target, dtype: str) -> float:
    """Return a rate in FLOPs a second; of a type without one, that of FP32."""
    name = "fp8" if dtype.lower().startswith(("fp8", "f8")) else _RATES.get(dtype, dtype)
    return target.tensor_flops_per_s.get(name, target.fp32_flops_per_s)
