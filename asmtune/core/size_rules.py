"""Rules that choose a config by a launch's sizes alone, where nothing is to be tuned."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.dtypes import canonical_dtype, dtype_of
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

_TILES: Final = (
    ((128, 256, 64), 8, 3, 10.0),
    ((64, 128, 128), 4, 4, 3.9),
    ((64, 64, 128), 4, 5, 3.36),
    ((64, 32, 128), 4, 5, 2.7),
)
"""Tiles M, N, K, warps, stages, and the time of a round of one tile an SM, for each of K's elements
in ns of an H200. Recorded timings of two GEMMs at 22 sizes chose the tiles, and those of one at 12
sizes the times; `python -m benchmarks.gemm_rule` shows what the rule reaches there."""

_ODD: Final = ((64, 64, 64), 4, 5)
"""For rows that are no whole number of 16 elements, whose loads are narrow."""

_BITS: Final = {"fp64": 64, "fp32": 32, "i32": 32, "fp16": 16, "bf16": 16, "i8": 8, "u8": 8}
_BLOCK: Final = re.compile(r"(?:BLOCK|TILE|B)(?:_?SIZE)?_?([MNK])", re.IGNORECASE)
_MOST: Final = 4096
"""Configs of a space among which the nearest is looked for."""


def gemm(M: int, N: int, K: int, dtype: str, target: str | Target) -> Config:  # noqa: N803
    """Choose tile, warps and stages of C = A B by its sizes.

    Use it where nothing is tuned, such as `fallback=` of a decorator.

    Args:
        M: rows of A and C.
        N: columns of B and C.
        K: columns of A, rows of B.
        dtype: type of A and B, such as "fp16".
        target: a device's name, a JSON descriptor, or a `Target`.

    Returns:
        A config with BLOCK_M, BLOCK_N and BLOCK_K; add what else the kernel takes.

    Raises:
        InputError: a size is no whole number above 0, or dtype or target is unknown.
    """
    sizes = {"M": M, "N": N, "K": K}
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise InputError(f"gemm: {name} is {size!r}; expected a whole number above 0")
    machine = load_target(target) if isinstance(target, str) else target
    name = canonical_dtype(dtype)
    bits = 8 if name.startswith("fp8") else _BITS.get(name)
    if bits is None:
        known = ", ".join((*_BITS, "fp8e4nv"))
        raise InputError(f"gemm: no rule for dtype {name}; give one of {known}")
    odd = K * bits % 256 or N * bits % 256
    (m, n, k), warps, stages = _ODD if odd else _least(M, N, machine.sms)
    depth = max(16, k * 16 // bits)
    while stages > 1 and (m + n) * depth * bits // 8 * stages > machine.shared_bytes_per_block:
        stages -= 1
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": depth}
    return Config(blocks, num_warps=warps, num_stages=stages)


def _least(rows: int, columns: int, sms: int) -> tuple[tuple[int, int, int], int, int]:
    """Return the tile whose rounds take the least time."""

    def time(entry: tuple[tuple[int, int, int], int, int, float]) -> float:
        (m, n, _), _, _, each = entry
        return each * math.ceil(math.ceil(rows / m) * math.ceil(columns / n) / sms)

    return min(_TILES, key=time)[:3]


def product_sizes(arguments: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the arguments M, N and K, in any case, if all are whole numbers."""
    named = {name.upper(): value for name, value in arguments.items() if name.upper() in {*"MNK"}}
    m, n, k = (named.get(name) for name in "MNK")
    if type(m) is int and type(n) is int and type(k) is int:
        return m, n, k
    return None


def untuned_config(problem: Problem, space: Space, target: Target) -> Config:
    """Return the config of a space for a launch that nothing tunes.

    A product's space with blocks of M, N and K gives the nearest to `gemm`'s, any other space its
    default. A config without a grid is passed over for the first that has one.
    """
    default = space.first(**problem.shape)
    wanted = _wanted(problem, default, target)
    configs = list(islice(space.configs(**problem.shape), _MOST)) if wanted else []
    if wanted:
        configs.sort(key=lambda config: _distance(config, wanted, default))
    ordered: Iterator[Config] = iter((*configs, default, *space.configs(**problem.shape)))
    tried = (c for c in islice(ordered, _MOST) if c.ir_override is None)
    fits = (c for c in tried if c.pre_hook or isinstance(problem.grid_of(c), tuple))
    return next(fits, default)


def _wanted(problem: Problem, default: Config, target: Target) -> Mapping[str, int] | None:
    """Return the values of the rule by the space's own names; None where it does not apply."""
    sizes = product_sizes(problem.arguments)
    blocks = {f"BLOCK_{m[1].upper()}": n for n in default.kwargs if (m := _BLOCK.fullmatch(n))}
    operand = next((v for v in problem.arguments.values() if dtype_of(v)), None)
    if sizes is None or len(blocks) != 3 or min(sizes) < 1:
        return None
    try:
        config = gemm(*sizes, str(dtype_of(operand)), target)
    except InputError:
        return None  # of a dtype without a rule
    named = {blocks[name]: value for name, value in config.kwargs.items()}
    return {**named, "num_warps": config.num_warps, "num_stages": config.num_stages}


def _distance(config: Config, wanted: Mapping[str, int], default: Config) -> tuple[float, int]:
    """Return how far a config is from the wanted values, then in how many others it differs."""
    values, own = config.all_kwargs(), default.all_kwargs()
    far = sum(abs(math.log2(values[name] / value)) for name, value in wanted.items())
    return far, sum(values[n] != own.get(n) for n in values if n not in wanted)
