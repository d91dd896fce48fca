"""The target of the GPU that is there: derived from its driver, and none at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton

from asmtune import Space, asm_autotune
from asmtune.core.hardware.driver import read_attributes
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import shipped_cuda, shipped_target
from asmtune.store.database import Store
from asmtune.tuning import tuner, unranked
from asmtune.tuning.unranked import UnrankedWarning
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (128, 256, 512, 1024), "num_warps": (1, 2, 4, 8)})


def derived() -> Target:
    """The target of the current device as its driver and architecture give it."""
    torch.cuda.init()
    target = read_attributes(torch.cuda.current_device()).target(shipped_cuda())
    assert target is not None
    return target


def test_the_driver_tells_what_pytorch_knows() -> None:
    """SMs, memory, L2 and shared memory agree; and with the shipped descriptor, if there is one."""
    target, properties = derived(), torch.cuda.get_device_properties(torch.cuda.current_device())
    assert target.name == properties.name
    assert target.sms == properties.multi_processor_count
    assert target.dram_bytes == properties.total_memory
    assert target.l2_bytes == properties.L2_cache_size
    assert target.shared_bytes_per_block == properties.shared_memory_per_block_optin
    assert target.figure("clock_hz").kind == "driver"
    shipped = shipped_target(properties.name)
    if shipped is not None and shipped.sms == target.sms:
        for name in ("arch", "max_warps_per_sm", "max_blocks_per_sm", "shared_bytes_per_sm"):
            assert getattr(target, name) == getattr(shipped, name), name
        assert target.dram_bytes_per_s == pytest.approx(shipped.dram_bytes_per_s, rel=0.15)


def test_a_launch_is_tuned_where_nothing_is_known(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles and times all configs, the launch is right, and the winner is stored."""
    monkeypatch.setattr(tuner, "match_device", lambda _: None)
    unranked._notified.clear()
    add = asm_autotune(space=SPACE, key=["n"], skip_tuning_below_us=None)(gpu_kernels.add)
    x, y = torch.randn(2, 1 << 20, device="cuda")
    out = torch.empty_like(x)
    with pytest.warns(UnrankedWarning, match="configs are not ranked: all 16"):
        add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, x.numel())
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert record.winner == add.best_config
    assert len(record.measurements) == 16
    fastest = min(record.measurements, key=lambda one: one.median_us)
    assert record.winner == fastest.config
