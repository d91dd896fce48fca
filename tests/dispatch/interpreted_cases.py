"""Run with TRITON_INTERPRET=1: Triton's cases on CPU tensors, prints what became of them.

The argument says how the kernels are decorated: "asm_autotune", "patched" (by `triton.autotune`
under `patch()`), or "before" (by `triton.autotune`, before `patch()`).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import asm_autotune
from asmtune.runtime.patching.redirect import patch
from tests.dispatch.case_kernels import fill_either, increment

N = 100
CONFIGS = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128})]


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Copy."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def staged(out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """Tell what a heuristic made of the config."""
    tl.store(out_ptr, EVEN)


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Programs for `n` elements."""
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def kernels(decorator: Any) -> dict[str, Any]:
    """All kernels, decorated."""
    even = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
    last = {"early_config_prune": lambda configs, *_, **__: configs[-1:]}
    return {
        "copy": decorator(CONFIGS, key=["n"])(copy),
        "increment": decorator(CONFIGS, key=["n"], restore_value=["x_ptr"])(increment),
        "fill": decorator(CONFIGS, key=["n"], reset_to_zero=["x_ptr"])(fill_either),
        "staged": decorator(CONFIGS, key=["n"])(even(staged)),
        "pruned": decorator(CONFIGS, key=["n"], prune_configs_by=last)(copy),
    }


def launch(made: Mapping[str, Any]) -> dict[str, Any]:
    """What each kernel left."""
    x, out = torch.arange(float(N)), torch.zeros(N)
    made["copy"][grid](out_ptr=out, n=N, x_ptr=x)
    counted, filled, told = torch.zeros(N), torch.zeros(N), torch.full((1,), 7.0)
    made["increment"][grid](counted, N)
    made["fill"][grid](None, filled, n=N)
    made["staged"][grid](told, N)
    made["pruned"][grid](x, out, N)
    empty = torch.full((N,), 7.0)
    with contextlib.suppress(ZeroDivisionError):
        made["copy"][(0,)](x, empty, N)
    return {
        "copied": torch.equal(out, x),
        "incremented": counted.mean().item(),
        "filled": filled.mean().item(),
        "staged": told.item() == 0.0,
        "pruned": made["pruned"].best_config.kwargs["BLOCK"],
        "empty grid": empty.mean().item(),
        "driver": triton.runtime.driver._active is not None,
    }


def main(how: str) -> None:
    """Print one JSON object."""
    early = kernels(triton.autotune) if how == "before" else None
    with contextlib.nullcontext() if how == "asm_autotune" else patch():
        decorator = asm_autotune if how == "asm_autotune" else triton.autotune
        found = launch(early or kernels(decorator))
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
