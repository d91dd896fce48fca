"""Run with TRITON_INTERPRET=1: launches decorated kernels on CPU tensors, prints what happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import Config, Space, asm_autotune

SPACE = Space({"BLOCK": [32, 64, 128]}, default=Config({"BLOCK": 64})).where(
    "a block is no longer than the vector", lambda BLOCK, n: n >= BLOCK
)
HOOKED: list[int] = []


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add two vectors, and tell the block in the last element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)
    tl.store(out_ptr + n, BLOCK)


@asm_autotune(space=SPACE, key=["n"])
@triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
@triton.jit
def told(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Store the arguments of the launch."""
    tl.store(out_ptr, BLOCK)
    tl.store(out_ptr + 1, EVEN)


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program a block."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def launch(n: int, **options: Any) -> dict[str, Any]:
    """Add vectors of n elements with a newly decorated kernel."""
    kernel = asm_autotune(key=["n"], **options)(add)
    x, y = torch.arange(n, dtype=torch.float32), torch.full((n,), 0.5)
    out = torch.zeros(n + 1)
    kernel[grid](x, y, out_ptr=out, n=n)
    best = kernel.best_config
    assert best is not None
    return {
        "right": torch.equal(out[:n], x + y),
        "block": int(out[n]),
        "best": best.to_dict(),
        "remembered": len(kernel.cache),
    }


def main() -> None:
    """Print one JSON object."""
    configs = [
        triton.Config(
            {"BLOCK": 32}, num_warps=2, pre_hook=lambda values: HOOKED.append(values["n"])
        ),
        triton.Config({"BLOCK": 128}),
    ]
    out = torch.zeros(2)
    told[grid](out, 100)
    found = {
        "default": launch(100, space=SPACE),
        "default does not fit": launch(50, space=SPACE),
        "made when needed": launch(100, space=lambda: {"BLOCK": [16]}),
        "configs": launch(100, configs=configs),
        "fallback": launch(
            100, space=SPACE, fallback=lambda a: Config({"BLOCK": a["n"] // 100 * 8})
        ),
        "fallback config": launch(100, space=SPACE, fallback=triton.Config({"BLOCK": 16})),
        "hooked": HOOKED,
        "told": out.tolist(),
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
