"""The roofs of a machine, from its descriptor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.core.hardware.model import Target

VECTOR: Final = "fp32"
"""Name of the roof of the ordinary cores, as `Target.flops_per_s` has it."""


@dataclass(frozen=True)
class Roof:
    """One limit of a machine.

    Attributes:
        name: "fp16" and the like for the tensor cores, `VECTOR`, "DRAM" or "L2".
        kind: whether it bounds FLOPs or bytes.
        rate: FLOP/s or bytes/s.
        source: where the figure comes from.
        figure: "specified", "measured", "derived" or "user", as `Figure.kind`.
    """

    name: str
    kind: Literal["compute", "memory"]
    rate: float
    source: str
    figure: str

    @property
    def label(self) -> str:
        """`fp16 tensor cores, 990 TFLOP/s`."""
        if self.kind == "memory":
            return f"{self.name}, {self.rate / 1e12:.3g} TB/s"
        cores = "fp32 cores" if self.name == VECTOR else f"{self.name} tensor cores"
        return f"{cores}, {self.rate / 1e12:.3g} TFLOP/s"


def roofs_of(target: Target, units: Iterable[str]) -> tuple[Roof, ...]:
    """DRAM, L2, the ordinary cores, and the tensor cores for each type in use.

    Args:
        target: the machine.
        units: names as `Counts.unit` has them.
    """
    wanted = dict.fromkeys((VECTOR, *units))
    compute = [
        (name, "fp32_flops_per_s" if name == VECTOR else f"tensor_flops_per_s.{name}")
        for name in wanted
    ]
    memory = [("DRAM", "dram_bytes_per_s"), ("L2", "l2_bytes_per_s")]
    return (
        *(_roof(target, name, "memory", field) for name, field in memory),
        *(_roof(target, name, "compute", field) for name, field in compute),
    )


def attainable(roofs: Sequence[Roof], unit: str, intensity: float) -> float:
    """FLOP/s that DRAM and the cores of a type allow at an intensity in FLOPs a byte."""
    rates = {roof.name: roof.rate for roof in roofs}
    return min(rates[unit], intensity * rates["DRAM"])


def _roof(target: Target, name: str, kind: Literal["compute", "memory"], field: str) -> Roof:
    figure = target.figure(field)
    return Roof(name, kind, figure.value, figure.source, figure.kind)
