"""FLOPs and bytes of a launch by its IR, and the roof of a machine that they are under."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from asmtune.core.hardware.model import Target
from asmtune.ir.ttir.work import DotWork, Work

VECTOR: Final = "fp32"
"""Name of the roof of the ordinary cores, as `Target.flops_per_s` has it."""

_UNITS: Final = {
    "f16": "fp16",
    "bf16": "bf16",
    "i8": "int8",
    "f64": "fp64",
    "f8E4M3FN": "fp8",
    "f8E5M2": "fp8",
    "f4E2M1FN": "fp4",
}
"""Tensor-core rates by MLIR's element type; f32 depends on the precision of the product."""

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
    """FLOPs and bytes of a launch with one config.

    Attributes:
        unit: name of the roof that its FLOPs are under.
        tensor_flops, vector_flops: of matrix products on tensor cores, and of all else.
        bytes: different bytes read and written.
        assumed: assumptions where something could not be evaluated.
        steering: what loops and branches follow that index tensors steer.
    """

    unit: str
    tensor_flops: float
    vector_flops: float
    bytes: float
    assumed: tuple[str, ...] = ()
    steering: tuple[str, ...] = ()

    @classmethod
    def of(cls, work: Work, target: Target, dtypes: Iterable[str]) -> WorkCounts:
        """Return the counts of a launch.

        Args:
            work: what its IR asks for.
            target: the machine; a product of a type for which it has no rate is the
                ordinary cores' work, but for fp8, which is widened to fp16.
            dtypes: dtypes of its tensors; without floats among them, reductions are of integers.
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
        assumed, steering = tuple(map(str, work.assumptions)), tuple(map(str, work.steering))
        return cls(unit, tensor, vector, moved, assumed, steering)

    @property
    def flops(self) -> float:
        """Count the FLOPs under the roof of `unit`; 0 for a launch that only moves or counts."""
        return self.tensor_flops or self.vector_flops


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
