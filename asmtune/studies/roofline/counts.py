"""FLOPs and bytes of a launch, as the IR asks for them.

Bytes are the different ones that a launch reads and writes (the feature `unique_bytes`), so that
the intensity is that of DRAM traffic with caches that lose nothing. FLOPs are those of matrix
products where there are any; else those of element-wise work: one for an addition,
multiplication, comparison, division, special function or element that is reduced, two for a fused
multiply-add. What a mask leaves out of a tile is counted in both, for the machine does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.core.hardware.model import Target
from asmtune.ir.ttir.work import DotWork, Work
from asmtune.studies.roofline.roofs import VECTOR

_UNITS: Final = {
    "f16": "fp16",
    "bf16": "bf16",
    "i8": "int8",
    "f64": "fp64",
    "f8E4M3FN": "fp8",
    "f8E5M2": "fp8",
    "f4E2M1FN": "fp4",
}
"""Of MLIR's element types, the tensor cores' rate; 32-bit floats are multiplied as tf32 or not."""

_WEIGHTS: Final = {
    "float": 1.0,
    "fma": 2.0,
    "divide": 1.0,
    "special": 1.0,
    "reduce": 1.0,
    "scan": 1.0,
}
"""FLOPs of an element by the class of its operation, as `Work.elements` has them."""


@dataclass(frozen=True)
class WorkCounts:
    """What a launch asks for.

    Attributes:
        unit: name of the roof that its FLOPs are under.
        tensor_flops: of matrix products on tensor cores.
        vector_flops: of everything else, as far as it is floating-point.
        bytes: different bytes read and written.
        assumed: what could not be evaluated and is a guess, in words.
    """

    unit: str
    tensor_flops: float
    vector_flops: float
    bytes: float
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, work: Work, target: Target, dtypes: Iterable[str]) -> WorkCounts:
        """The counts of a launch.

        Args:
            work: what its IR asks for.
            target: the machine; a product of a type for which it has no rate is the
                ordinary cores' work, but for fp8, which is widened to fp16.
            dtypes: of its tensors; where none holds floats, what is reduced are integers.
        """
        products: dict[str, float] = {}
        vector = _element_flops(work, dtypes)
        for dot in work.dots:
            unit = _unit(dot, target)
            if unit in target.tensor_flops_per_s:
                products[unit] = products.get(unit, 0.0) + dot.flops * work.programs
            else:
                vector += dot.flops * work.programs
        tensor = sum(products.values())
        unit = max(products, key=lambda name: products[name]) if tensor else VECTOR
        moved = work.unique_read_bytes + work.unique_written_bytes
        return cls(unit, tensor, vector, moved, tuple(map(str, work.assumptions)))

    @property
    def flops(self) -> float:
        """Those that are under the roof of `unit`; 0 where a launch only moves or counts."""
        return self.tensor_flops or self.vector_flops


@dataclass(frozen=True)
class Load:
    """What a launch asks for whatever its config.

    Attributes:
        flops: 0 where it only moves or counts.
        bytes: different ones, read and written.
    """

    flops: float
    bytes: float

    @classmethod
    def common(cls, counts: Sequence[WorkCounts]) -> Load:
        """The least that any of its configs asks for.

        Tiles that reach beyond a tensor's edge, and ways of summing, ask for more.
        """
        flops = min((one.flops for one in counts if one.flops), default=0.0)
        return cls(flops, min((one.bytes for one in counts if one.bytes), default=0.0))

    @property
    def intensity(self) -> float | None:
        """FLOPs a byte; None without FLOPs, or without bytes."""
        return self.flops / self.bytes if self.flops and self.bytes else None


def _unit(dot: DotWork, target: Target) -> str:
    if dot.dot.operand == "f32":
        return "tf32" if dot.precision.startswith("tf32") else VECTOR
    unit = _UNITS.get(dot.dot.operand, VECTOR)
    # Where tensor cores take no fp8, Triton widens it to what they take.
    return "fp16" if unit == "fp8" and unit not in target.tensor_flops_per_s else unit


def _element_flops(work: Work, dtypes: Iterable[str]) -> float:
    if not any(dtype.startswith(("fp", "bf")) for dtype in dtypes):
        return 0.0
    each = sum(weight * work.elements.get(kind, 0.0) for kind, weight in _WEIGHTS.items())
    return each * work.programs
