"""A kernel whose PTX is edited by hand on a GPU."""

from __future__ import annotations

from pathlib import Path

import triton
import triton.language as tl

from asmtune.core.config import Config


@triton.jit
def add_five(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add 5, a constant that its PTX shows."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + 5.0, mask=inside)


FIVE, SEVEN = "0f40A00000", "0f40E00000"


def write_ptx(path: Path, text: str, block: int = 256) -> triton.Config:
    """A config whose PTX is a file of this text."""
    path.write_text(text)
    return triton.Config({"BLOCK": block}, num_warps=4, ir_override=str(path))


def is_edited(config: Config | triton.Config) -> bool:
    """Say if a config has a file of its own."""
    return Config.of(config).ir_override is not None
