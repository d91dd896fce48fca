"""Drivers that stand in: what the CUDA driver tells of devices, from public specifications."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from asmtune.core.hardware import driver

# name: (SMs, compute capability, MHz, memory's MHz, bits of its bus, MiB of L2, GiB of memory);
# a memory clock of 0: the device shares the CPU's memory, and tells none.
DEVICES = {
    "Tesla V100-SXM2-16GB": (80, "7.0", 1530, 877, 4096, 6, 16),
    "Tesla T4": (40, "7.5", 1590, 5001, 256, 4, 16),
    "NVIDIA A100-SXM4-80GB": (108, "8.0", 1410, 1593, 5120, 40, 80),
    "NVIDIA A100-PCIE-40GB": (108, "8.0", 1410, 1215, 5120, 40, 40),
    "NVIDIA A10G": (80, "8.6", 1710, 6251, 384, 6, 24),
    "NVIDIA A40": (84, "8.6", 1740, 7251, 384, 6, 48),
    "NVIDIA GeForce RTX 3060": (28, "8.6", 1777, 7501, 192, 3, 12),
    "NVIDIA GeForce RTX 3080": (68, "8.6", 1710, 9501, 320, 5, 10),
    "NVIDIA GeForce RTX 3090": (82, "8.6", 1695, 9751, 384, 6, 24),
    "Orin": (16, "8.7", 1300, 0, 256, 4, 61),
    "NVIDIA L4": (58, "8.9", 2040, 6251, 192, 48, 22),
    "NVIDIA L40": (142, "8.9", 2490, 9001, 384, 96, 45),
    "NVIDIA GeForce RTX 4060": (24, "8.9", 2460, 8501, 128, 24, 8),
    "NVIDIA GeForce RTX 4090": (128, "8.9", 2520, 10501, 384, 72, 24),
    "NVIDIA H100 80GB HBM3": (132, "9.0", 1980, 2619, 5120, 50, 80),
    "NVIDIA H100 PCIe": (114, "9.0", 1755, 1593, 5120, 50, 80),
    "NVIDIA H100 NVL": (132, "9.0", 1785, 2619, 6016, 60, 94),
    "NVIDIA H200": (132, "9.0", 1980, 3201, 6144, 60, 140),
    "NVIDIA H20": (78, "9.0", 1980, 2619, 6144, 60, 95),
    "NVIDIA B200": (148, "10.0", 1965, 3996, 7680, 126, 178),
    "NVIDIA B300 SXM6 AC": (148, "10.3", 1965, 3996, 8192, 126, 268),
    "NVIDIA Thor": (20, "11.0", 1575, 0, 256, 32, 122),
    "NVIDIA GeForce RTX 5070": (48, "12.0", 2512, 14001, 192, 48, 12),
    "NVIDIA GeForce RTX 5090": (170, "12.0", 2407, 14001, 512, 96, 32),
    "NVIDIA GB10": (48, "12.1", 2525, 0, 256, 24, 119),
}
"""Some of the devices with a shipped descriptor, of each architecture."""

OTHERS = {
    "NVIDIA A30": (56, "8.0", 1440, 1215, 3072, 24, 24),
    "NVIDIA GeForce RTX 2080 Ti": (68, "7.5", 1545, 7000, 352, 5.5, 11),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (16, "9.0", 1980, 2619, 640, 6.25, 10),
    "NVIDIA Later": (212, "10.7", 2100, 5000, 8192, 160, 288),
    "NVIDIA Much Later": (200, "14.2", 2100, 5000, 8192, 160, 288),
}
"""Devices that no file describes: other boards, slices, and architectures newer than the table."""

# Bytes of shared memory an SM, warps and programs an SM, by compute capability.
LIMITS = {
    "7.0": (96, 64, 32), "7.5": (64, 32, 16), "8.0": (164, 64, 32), "8.6": (100, 48, 16),
    "8.7": (164, 48, 16), "8.9": (100, 48, 24), "9.0": (228, 64, 32), "10.0": (228, 64, 32),
    "10.3": (228, 64, 32), "10.7": (228, 64, 32), "11.0": (228, 48, 24), "12.0": (100, 48, 24),
    "12.1": (100, 48, 24), "14.2": (256, 64, 32),
}  # fmt: skip


def attributes(name: str) -> dict[str, int]:
    """Return what a driver tells of a device of the tables."""
    sms, capability, mhz, memory_mhz, bits, l2_mib, _ = {**DEVICES, **OTHERS}[name]
    major, minor = map(int, capability.split("."))
    shared_kib, warps, blocks = LIMITS[capability]
    reserved = 1024 if major >= 8 else 0
    values = {
        "max_threads_per_block": 1024,
        "warp_size": 32,
        "clock_khz": mhz * 1000,
        "sms": sms,
        "integrated": int(not memory_mhz),
        "memory_clock_khz": memory_mhz * 1000,
        "bus_bits": bits,
        "l2_bytes": int(l2_mib * 2**20),
        "max_threads_per_sm": 32 * warps,
        "major": major,
        "minor": minor,
        "shared_bytes_per_sm": shared_kib << 10,
        "registers_per_sm": 65536,
        "shared_bytes_per_block": (shared_kib << 10) - reserved,
        "max_blocks_per_sm": blocks,
        "shared_reserved_bytes_per_block": reserved,
    }
    zero = ("integrated", "minor", "shared_reserved_bytes_per_block")
    return {field: value for field, value in values.items() if value or field in zero}


def pretend(name: str, patch: pytest.MonkeyPatch, told: dict[str, int] | None = None) -> None:
    """Make a device the one that this process uses; its driver tells what the tables have."""
    told = attributes(name) if told is None else told
    gib = {**DEVICES, **OTHERS}[name][-1]
    properties = SimpleNamespace(
        name=name,
        multi_processor_count=told.get("sms", 0),
        major=told.get("major", 0),
        minor=told.get("minor", 0),
        total_memory=int(gib * 2**30),
    )
    patch.setattr(torch.cuda, "is_initialized", lambda: True)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(torch.cuda, "device_count", lambda: 1)
    patch.setattr(torch.cuda, "get_device_name", lambda _=None: name)
    patch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    patch.setattr(driver, "_asked", lambda _: told)
    driver.read_attributes.cache_clear()
