"""Run with TRITON_INTERPRET=1: decorated kernels on CPU tensors; prints what became of them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import Config, Space, asm_autotune, pow2

N = 100
SPACE = Space({"BLOCK": [32, 64, 128], "num_warps": [4, 8]}, default=Config({"BLOCK": 64}))
LIST = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128})]


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """Add two vectors, and tell the block and EVEN behind them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)
    tl.store(out_ptr + n, BLOCK)
    tl.store(out_ptr + n + 1, EVEN)


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    """One program a block."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


even = triton.heuristics({"EVEN": lambda values: values["n"] % 2 == 0})
by_block = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})


def launch(kernel: Any, n: int = N, **keywords: Any) -> list[Any]:
    """Launch; return if the sum is right, the block, and EVEN."""
    x, y = torch.randn(2, n)
    out = torch.zeros(n + 2)
    kernel[grid](x, y, out, n=n, **keywords)
    return [torch.equal(out[:n], x + y), int(out[n]), bool(out[n + 1])]


class Sum(torch.autograd.Function):
    """Launches forward and backward."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice x."""
        out = torch.zeros(x.numel() + 2)
        doubling[grid](x, x, out, n=x.numel())
        return out[: x.numel()]

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Twice the gradient."""
        out = torch.zeros(gradient.numel() + 2)
        doubling[grid](gradient.contiguous(), gradient.contiguous(), out, n=gradient.numel())
        return out[: gradient.numel()]


doubling = asm_autotune(space=SPACE, key=["n"])(even(add))


def kernels() -> dict[str, Any]:
    """All ways to decorate, by name."""
    wide = {"early_config_prune": lambda configs, named, **_: configs[-1:] if named else configs}
    fast = {"perf_model": lambda BLOCK, **_: -BLOCK, "top_k": 1}
    ways: dict[str, dict[str, Any]] = {
        "listed": {"configs": LIST},
        "generated": {"space": SPACE},
        "raise": {"space": SPACE, "on_miss": "raise"},
        "predict": {"space": SPACE, "on_miss": "predict"},
        "background": {"configs": LIST, "on_miss": "background"},
        "nearest": {"space": SPACE, "nearest": True},
        "heuristic": {"space": SPACE, "heuristic": lambda a: {"BLOCK": 2 * a["n"] // 100 * 16}},
        "pruned": {"configs": LIST, "prune_configs_by": wide},
        "modelled": {"configs": LIST, "prune_configs_by": fast},
        "buckets": {"space": SPACE, "key": [pow2("n"), lambda x_ptr: x_ptr.shape[0] > 5]},
        "restored": {"configs": LIST, "restore_value": ["out_ptr"], "reset_to_zero": ["y_ptr"]},
        "not small": {"space": SPACE, "small": None},
    }
    return {name: asm_autotune(**{"key": ["n"], **way}) for name, way in ways.items()}


def threads() -> bool:
    """Say if eight threads with one kernel all get their sums."""
    kernel, found = asm_autotune(space=SPACE, key=["n"])(even(add)), []
    made = [
        threading.Thread(target=lambda n=n: found.append(launch(kernel, 90 + n)[0]))
        for n in range(8)
    ]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    return found == [True] * 8


def gradient() -> list[float]:
    """Distinct values of a gradient."""
    x = torch.randn(N, requires_grad=True)
    Sum.apply(x).sum().backward()
    return sorted(set(x.grad.tolist()))


def main() -> None:
    """Print one JSON object."""
    found: dict[str, Any] = {"below": {}, "above": {}, "plain": {}, "best": {}}
    for name, decorate in kernels().items():
        below = decorate(by_block(add))
        found["below"][name] = launch(below)
        found["above"][name] = launch(even(decorate(add)))
        plain = decorate(add)
        found["plain"][name] = launch(plain, EVEN=False)
        found["best"][name] = plain.best_config.kwargs["BLOCK"]
    found["threads"], found["gradient"] = threads(), gradient()
    wrapped = torch.library.wrap_triton(asm_autotune(space=SPACE, key=["n"])(even(add)))
    found["wrapped"] = launch(wrapped)
    heavy = ("sklearn", "sqlalchemy", "asmtune.tuning.session", "asmtune.predict.prune.flow")
    found["loaded"] = [name for name in heavy if name in sys.modules]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
