"""Dropout with `tl.rand`, as in Triton's tutorial 04: a Philox counter for every element.

The mask is another than that of `asmtune.kernels.dropout`, which takes four elements' words
from one counter: here element i has the first word of counter i. Both are Philox 4x32-10 by
the same seed, and keep an element with the same probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.kernels.dropout import philox

CONFIGS = (Config({"BLOCK": 32}),)

OUTPUTS = ("y_ptr",)

_TO_UNIT = 4.6566127342e-10
"""The factor that `tl.rand` uses: from 31 bits to [0, 1)."""


@triton.jit
def kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    """Process BLOCK elements a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    tl.store(y_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=at < n)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x = inputs["x"]
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x), "n": x.numel()}
    chance = {"p": inputs["p"], "seed": inputs["seed"]}
    return Problem(kernel, {**arguments, **chance}, _grid, name="untuned dropout")


def reference(inputs: Mapping[str, Any]) -> torch.Tensor:
    """Compute the result from the words of Philox themselves."""
    x, p = inputs["x"], inputs["p"]
    words = philox(torch.arange(x.numel(), device=x.device), inputs["seed"])[0]
    # As `tl.rand` has it: of a word that is negative as a signed number, its complement.
    bits = torch.where(words < 1 << 31, words, (1 << 32) - 1 - words)
    return torch.where(bits.float() * _TO_UNIT > p, x / (1 - p), 0.0)
