"""The target of the GPU that is there, derived from its driver."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.hardware.driver import read_attributes
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import shipped_cuda, shipped_target


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
