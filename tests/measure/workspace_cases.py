"""Launches of the kernels of `workspace_kernels`, by config: arguments, grid, what varies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import triton

from tests.measure import workspace_kernels as kernels

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A kernel's launch.

    Attributes:
        kernel: the kernel.
        shapes: shape of each tensor argument; of its outputs first.
        numbers: other arguments.
        configs: constexprs by config's name, the default first.
        grid: the grid of a config.
    """

    kernel: Any
    shapes: Mapping[str, tuple[int, ...]]
    numbers: Values
    configs: Mapping[str, Values]
    grid: Callable[[Values], tuple[int, ...]]

    def programs(self, name: str) -> tuple[int, ...]:
        """Return the grid of a config."""
        return self.grid(self.configs[name])


def cdiv(a: int, b: int) -> int:
    return int(triton.cdiv(a, b))


def short(grid: Callable[[Values], tuple[int, ...]]) -> Callable[[Values], tuple[int, ...]]:
    """Leave a program of the first axis out where a config says so."""

    def programs(c: Values) -> tuple[int, ...]:
        first, *rest = grid(c)
        return (first - c.get("num_stages", 3) % 3, *rest)

    return programs


# A config's num_stages of 4 stands for a grid that is too small by one program.
SHORT = {"num_stages": 4}
DIM, STEPS, HEADS = 500, 4, 2
LEAST = cdiv(DIM, 64)
STATE = Case(
    kernels.state_backward,
    {
        "dstates_ptr": (HEADS, STEPS, DIM),
        "partial_ptr": (HEADS, STEPS, LEAST),
        "dout_ptr": (HEADS, STEPS, DIM),
        "out_ptr": (HEADS, STEPS, DIM),
        "scale_ptr": (HEADS, STEPS),
    },
    {
        "dim": DIM, "steps": STEPS, "stride_step": DIM, "stride_head": STEPS * DIM,
        "stride_partial_step": LEAST, "stride_partial_head": STEPS * LEAST,
    },
    {
        "default": {"BLOCK": 64, "HOLE": 0},
        "wide": {"BLOCK": 128, "HOLE": 0},
        "widest": {"BLOCK": 512, "HOLE": 0},
        "hole": {"BLOCK": 256, "HOLE": 1},
        "short": {"BLOCK": 256, "HOLE": 0, **SHORT},
    },
    short(lambda c: (cdiv(DIM, c["BLOCK"]), HEADS)),
)  # fmt: skip
PARTS = Case(
    kernels.strided_partials,
    {"partial_ptr": (5 * 8,), "x_ptr": (5, 250)},
    {"rows": 5, "width": 250},
    {
        "default": {"BLOCK": 64, "PARTS": 4, "MEAN": 0},
        "wide": {"BLOCK": 128, "PARTS": 2, "MEAN": 0},
        "whole": {"BLOCK": 256, "PARTS": 1, "MEAN": 0},
        "narrow": {"BLOCK": 32, "PARTS": 8, "MEAN": 0},
        "padded": {"BLOCK": 64, "PARTS": 8, "MEAN": 0},
        "short": {"BLOCK": 32, "PARTS": 8, "MEAN": 0, **SHORT},
    },
    short(lambda c: (cdiv(250, c["BLOCK"]), 5)),
)
MEANS = Case(
    kernels.strided_partials,
    PARTS.shapes,
    PARTS.numbers,
    {
        "default": {"BLOCK": 64, "PARTS": 4, "MEAN": 1},
        "wide": {"BLOCK": 128, "PARTS": 2, "MEAN": 1},
        "short": {"BLOCK": 32, "PARTS": 8, "MEAN": 1, **SHORT},
    },
    PARTS.grid,
)
MAXIMA = Case(
    kernels.maxima,
    {"most_ptr": (16,), "x_ptr": (1000,)},
    {"width": 1000},
    {
        "default": {"BLOCK": 128},
        "narrow": {"BLOCK": 64},
        "short": {"BLOCK": 256, **SHORT},
    },
    short(lambda c: (cdiv(1000, c["BLOCK"]),)),
)
SPLIT = Case(
    kernels.split_product,
    {"parts_ptr": (4, 40, 48), "a_ptr": (40, 256), "b_ptr": (256, 48)},
    {"M": 40, "N": 48, "K": 256},
    {
        "default": {"BM": 32, "BN": 32, "BK": 32, "SPLIT": 2},
        "more": {"BM": 16, "BN": 64, "BK": 16, "SPLIT": 4},
        "one": {"BM": 32, "BN": 32, "BK": 32, "SPLIT": 1},
        "short": {"BM": 32, "BN": 32, "BK": 32, "SPLIT": 4, **SHORT},
    },
    short(lambda c: (cdiv(40, c["BM"]), cdiv(48, c["BN"]), c["SPLIT"])),
)
WALK = Case(
    kernels.strided_rows,
    {"sums_ptr": (16,), "x_ptr": (50, 60)},
    {"rows": 50, "width": 60},
    {
        "default": {"PROGRAMS": 8, "BLOCK": 64},
        "more": {"PROGRAMS": 16, "BLOCK": 64},
        "short": {"PROGRAMS": 16, "BLOCK": 64, **SHORT},
    },
    short(lambda c: (c["PROGRAMS"],)),
)
DESCRIPTORS = Case(
    kernels.described_partials,
    {"dw_ptr": (8, 48), "x_ptr": (120, 48)},
    {"M": 120, "N": 48},
    {
        "default": {"BM": 32, "BN": 32},
        "more": {"BM": 16, "BN": 64},
        "fewer": {"BM": 64, "BN": 16},
        "short": {"BM": 64, "BN": 16, **SHORT},
    },
    short(lambda c: (cdiv(120, c["BM"]), cdiv(48, c["BN"]))),
)
SCALE = Case(
    kernels.scale,
    {"out_ptr": (1000,), "x_ptr": (1000,)},
    {"n": 1000},
    {
        "default": {"STEP": 64, "BLOCK": 64},
        "wide": {"STEP": 128, "BLOCK": 128},
        "short": {"STEP": 64, "BLOCK": 64, **SHORT},
        "short and wide": {"STEP": 256, "BLOCK": 256, **SHORT},
        "overlapping": {"STEP": 64, "BLOCK": 128},
        "apart": {"STEP": 64, "BLOCK": 32},
    },
    short(lambda c: (cdiv(1000, c["BLOCK"]),)),
)
SUMS = Case(
    kernels.row_sums,
    {"out_ptr": (100,), "x_ptr": (100, 60)},
    {"M": 100, "N": 60},
    {
        "default": {"BM": 16, "BN": 64},
        "tall": {"BM": 64, "BN": 16},
        "short": {"BM": 64, "BN": 16, **SHORT},
    },
    short(lambda c: (cdiv(100, c["BM"]),)),
)
WORKSPACES = {
    "state": (STATE, "partial_ptr"), "parts": (PARTS, "partial_ptr"),
    "means": (MEANS, "partial_ptr"), "maxima": (MAXIMA, "most_ptr"),
    "split": (SPLIT, "parts_ptr"), "walk": (WALK, "sums_ptr"), "described": (DESCRIPTORS, "dw_ptr"),
}  # fmt: skip
ORDINARY = {
    "scale": SCALE, "sums": SUMS,
}  # fmt: skip
