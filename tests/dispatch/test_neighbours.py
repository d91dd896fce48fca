"""How far devices are apart."""

from __future__ import annotations

from dataclasses import replace

from asmtune.core.hardware.model import apart
from asmtune.core.hardware.shipped import load_target, target_names


def test_devices_are_sorted_by_architecture_sms_and_bandwidth() -> None:
    """An H200 is nearest to itself, then to Hoppers of as many SMs, and to no device of AMD."""
    here = load_target("H200")
    away = {name: apart(load_target(name), here) for name in target_names()}
    near = sorted((d, name) for name, d in away.items() if d is not None)
    order = [name for _, name in near]
    assert order[0] == "H200"
    assert order.index("H100") < order.index("H100-PCIe") < order.index("H20")
    assert order.index("H20") < order.index("L4")
    assert order.index("A10") < order.index("T4")
    assert away["MI300X"] is None
    radeon, instinct = (
        replace(load_target(name), arch=arch)
        for name, arch in (("MI300X", "gfx90a"), ("MI300X", "gfx950"))
    )
    assert apart(radeon, instinct) == (0, 0x46, 0.0, 0.0)
    assert apart(replace(radeon, arch="gfx1100"), instinct) > (1,)
