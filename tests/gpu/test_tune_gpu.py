"""Tuning, storing and launching on a real GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import Space, asm_autotune
from asmtune.base.settings import Settings
from asmtune.compile.load import load
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.reader import ProfileReader
from asmtune.store.database import Store
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (128, 256, 512, 1024), "num_warps": (1, 2, 4, 8)})


def grid(meta: dict[str, int]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_a_tuned_kernel_computes_and_is_stored(cache_dir: Path) -> None:
    """The first launch tunes, gives the right result, and leaves every timing in the store."""
    add = asm_autotune(space=SPACE, key=["n"], effort="exhaustive", skip_tuning_below_us=None)(
        gpu_kernels.add
    )
    x, y = torch.randn(2, 1 << 20, device="cuda")
    out = torch.empty_like(x)
    add[grid](x, y, out, x.numel())
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert record.winner == add.best_config
    assert len(record.measurements) == len(list(SPACE))
    assert record.key.device == torch.cuda.get_device_name()
    assert record.median_us is not None
    assert record.median_us <= 1.05 * min(m.median_us for m in record.measurements)


def test_an_in_place_kernel_runs_once_as_far_as_the_user_sees() -> None:
    """After tuning, a kernel that doubles its argument has doubled it once."""
    scale = asm_autotune(space=SPACE, key=["n"], skip_tuning_below_us=None)(
        gpu_kernels.scale_in_place
    )
    x = torch.randn(10_000, device="cuda")
    before = x.clone()
    scale[grid](x, x.numel())
    assert torch.equal(x, before * 2)


def test_the_time_of_hooks_is_not_measured(cache_dir: Path) -> None:
    """Hooks that keep the GPU busy for milliseconds leave a time of microseconds."""
    noise = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def busy(kwargs: dict[str, Any], *_: Any, **__: Any) -> None:
        for _ in range(20):
            noise.zero_()

    add = asm_autotune(
        space=SPACE, key=["n"], skip_tuning_below_us=None, pre_hook=busy, post_hook=busy
    )(gpu_kernels.add)
    x, y = torch.randn(2, 1 << 16, device="cuda")
    out = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    busy({})
    start.record()
    busy({})
    end.record()
    torch.cuda.synchronize()
    hook_us = start.elapsed_time(end) * 1e3
    add[grid](x, y, out, x.numel())
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert record.median_us is not None
    assert record.median_us < hook_us / 5


@pytest.mark.parametrize("position", range(0, 660, 60))
def test_offline_resources_equal_the_drivers(position: int, here: Target) -> None:
    """Registers, spills and shared memory read from the cubin are what the driver reports."""
    problem = matmul.problem({"M": 512, "N": 512, "K": 512}, "fp16", "cuda")
    config = list(matmul.space())[position]
    lowering = Lowering(problem, here, 30)
    request = lowering.request(config)
    artifact = compile_one(request, Settings.from_environment())
    assert isinstance(artifact, Artifact)
    features = ProfileReader(here)(artifact).static
    if features["shared_bytes"] > here.shared_bytes_per_block:
        pytest.skip("needs more shared memory than the device has")
    kernel = gpu_handle(load(lowering, config, artifact))
    assert features["regs_per_thread"] == kernel.n_regs
    assert features["spill_words"] == kernel.n_spills
    assert features["shared_bytes"] == kernel.metadata.shared


def gpu_handle(launch: object) -> object:
    """Triton's handle of a launch, after it ran once."""
    launch.run()
    torch.cuda.synchronize()
    cells = {
        name: cell.cell_contents
        for name, cell in zip(launch.run.__code__.co_freevars, launch.run.__closure__, strict=True)
    }
    return cells["kernel"]
