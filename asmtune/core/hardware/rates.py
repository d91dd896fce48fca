"""What one SM of a target does in a cycle, where no descriptor says."""

from __future__ import annotations

from typing import Final

from asmtune.core.hardware.model import Target

L2_BYTES_PER_CYCLE: Final = 64.0
"""Between one SM and L2, at most (L1's line fill on sm_80 and newer)."""

MMA_SYNC_SHARE: Final = {9: 0.65, 10: 0.5}
"""Share of the tensor rate that mma.sync reaches, by major capability; 1 elsewhere.

62-65% on H100 (Luo et al.); on sm_100, whose rate tcgen05 alone reaches, assumed.
"""

_DTYPES: Final = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "s8": "int8",
    "u8": "int8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "f64": "fp64",
    "e2m1": "fp4",
}


def tensor_rate(target: Target, kind: str, operand: str) -> float:
    """FLOPs a cycle of one SM's tensor cores.

    Args:
        target: the machine.
        kind: the instruction's family, as `asm.TensorOp.kind`.
        operand: element type of A; one without a rate of its own runs as fp16.
    """
    rates = target.tensor_flops_per_s
    rate = rates.get(_DTYPES.get(operand, "fp16"), rates["fp16"])
    if kind in ("mma.sync", "wmma"):
        rate *= MMA_SYNC_SHARE.get(target.capability // 10, 1.0)
    return rate / target.sms / target.clock_hz
