"""Tuning in the background on a real GPU, while the program captures graphs and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton

from asmtune import Space, asm_autotune
from asmtune.store.database import Store
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (128, 256, 512, 1024), "num_warps": (1, 2, 4, 8)})
SIZE = 1 << 22
PATIENCE_S = 300.0


def grid(meta: dict[str, int]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def autotuned(**options: Any) -> Any:
    return asm_autotune(
        space=SPACE, key=["n"], effort="quick", skip_tuning_below_us=None, **options
    )(gpu_kernels.add)


def test_graphs_are_captured_meanwhile(cache_dir: Path) -> None:
    """No capture of another thread's is ended by the tuning, and none waits for it."""
    add, other = autotuned(on_miss="background"), autotuned()
    x, y = torch.randn(2, 4096, device="cuda")
    out = torch.empty_like(x)
    other[grid](x, y, out, 4096)
    large, sums = torch.randn(2, SIZE, device="cuda"), torch.empty(SIZE, device="cuda")
    add[grid](large[0], large[1], sums, SIZE)

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            other[grid](x, y, out, 4096)
        out.zero_()
        graph.replay()
        assert torch.equal(out, x + y)

    def stored() -> bool:
        with Store.open(cache_dir / "store.sqlite") as store:
            return any(record.key.shape["n"] == SIZE for record in store.records())

    end = time.monotonic() + PATIENCE_S
    while not stored() and time.monotonic() < end:
        capture()
    assert stored()


LEAVES = """
import torch, triton
from asmtune import asm_autotune
from tests.gpu import gpu_kernels
add = asm_autotune(
    space={"BLOCK": [128, 256, 512, 1024], "num_warps": [1, 2, 4, 8]},
    key=["n"], on_miss="background", skip_tuning_below_us=None,
)(gpu_kernels.add)
x = torch.ones(1 << 22, device="cuda")
add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, x, torch.empty_like(x), x.numel())
torch.cuda.synchronize()
print("ends")
"""


def test_a_program_that_ends_early() -> None:
    """A program that ends while its key is tuned ends well, and leaves no process behind."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
