"""`triton.autotune`'s hooks on a real GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.store.database import Store
from tests.gpu import gpu_kernels

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256, 512, 1024)]
N = 1 << 16


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def tuned(kernel: Any, configs: list[triton.Config] | None = None, **options: Any) -> Any:
    """An autotuner that always tunes, whatever the size."""
    options = {"skip_tuning_below_us": None, **options}
    return asm_autotune(configs or CONFIGS, key=["n"], **options)(kernel)


@pytest.mark.parametrize("isolate", [False, True])
def test_hooks_restore_what_a_kernel_updates(isolate: bool, tmp_path: Path) -> None:
    """A pair of hooks that count and restore: as many calls after as before, and one result."""
    log = tmp_path / "log"

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(word + "\n")

    kept: dict[str, torch.Tensor] = {}

    def before(kwargs: dict[str, Any], reset_only: bool = False) -> None:
        note("reset" if reset_only else "pre")
        assert {"x_ptr", "n", "BLOCK", "num_warps"} <= kwargs.keys()
        if not reset_only:
            kept["x"] = kwargs["x_ptr"].clone()

    def after(kwargs: dict[str, Any], exception: Exception | None) -> None:
        note("post")
        assert exception is None
        kwargs["x_ptr"].copy_(kept.pop("x"))

    scale = tuned(gpu_kernels.scale_in_place, pre_hook=before, post_hook=after, isolate=isolate)
    x = torch.randn(N, device="cuda")
    expected = x * 2
    scale[grid](x, N)
    assert torch.equal(x, expected)
    *launches, last = log.read_text().split()
    assert last == "reset"
    assert launches == ["pre", "post"] * (len(launches) // 2)
    assert len(launches) >= 2 * len(CONFIGS)
    scale[grid](x, N)
    assert torch.equal(x, expected * 2)
    assert log.read_text().split()[-1] == "reset"  # a known key calls no hook


def test_the_time_of_hooks_is_not_measured(cache_dir: Path) -> None:
    """Hooks that keep the GPU busy for milliseconds leave a time of microseconds."""
    noise = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def busy(kwargs: dict[str, Any], *_: Any, **__: Any) -> None:
        for _ in range(20):
            noise.zero_()

    add = tuned(gpu_kernels.add, pre_hook=busy, post_hook=busy)
    x, y = torch.randn(2, N, device="cuda")
    out = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    busy({})
    start.record()
    busy({})
    end.record()
    torch.cuda.synchronize()
    hook_us = start.elapsed_time(end) * 1e3
    add[grid](x, y, out, N)
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert record.median_us is not None
    assert record.median_us < hook_us / 5
