"""Tensor instructions of PTX: the shape that one execution multiplies, and the threads that run it.

FLOPs count a multiply-add as two, and a sparse product as the dense one of its shape.
After NVIDIA, "Parallel Thread Execution ISA", sections 9.7.14 to 9.7.16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Literal

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.program import AsmFunction, Instruction

TensorKind = Literal["mma.sync", "wmma", "wgmma", "tcgen05", "mfma"]

_ISSUING_THREADS: Mapping[str, int | None] = {
    "mma.sync": 32,
    "wmma": 32,
    "wgmma": 128,
    "tcgen05": None,
    "mfma": 64,
}


@dataclass(frozen=True, slots=True)
class TensorOp:
    """A matrix multiply-accumulate, D = A x B + C with A of m x k and B of k x n.

    Attributes:
        kind: the instruction's family.
        m: rows of D, or None where only a run-time descriptor says.
        n: columns of D, or None where only a run-time descriptor says.
        k: length of the sums.
        a_type: element type of A, such as `f16`, `e5m2`, `s8`; None if not known.
        ctas: CTAs that share one execution: 2 for tcgen05's cta_group::2, else 1.
    """

    kind: TensorKind
    m: int | None
    n: int | None
    k: int | None
    a_type: str | None
    ctas: int = 1

    @property
    def flops(self) -> int | None:
        """Return the FLOPs of one execution by the issuing unit, 2 m n k; None without a shape."""
        if self.m is None or self.n is None or self.k is None:
            return None
        return 2 * self.m * self.n * self.k

    @property
    def unit_threads(self) -> int | None:
        """Return the threads that execute it together: 32 a warp, 128 a warpgroup, 64 a wavefront.

        None for tcgen05, which one elected thread of the CTA issues.
        """
        return _ISSUING_THREADS[self.kind]

    def flops_per_cta(self, threads: int) -> int | None:
        """Return the FLOPs a CTA of one pass over the instruction by `threads` of its threads."""
        if self.flops is None:
            return None
        units = 1 if self.unit_threads is None else max(1, threads // self.unit_threads)
        return self.flops * units // self.ctas


_SHAPE = re.compile(r"m(\d{1,4})n(\d{1,4})k(\d{1,4})")
_TYPE = re.compile(r"b?f\d+|tf32|[su]\d+|b1|e\dm\d")
_KIND = re.compile(r"\.kind::(\w+)")

# K of a dense tcgen05.mma; a sparse one sums over twice as many.
_TCGEN05_K = {
    "f16": 16,
    "tf32": 8,
    "f8f6f4": 32,
    "i8": 32,
    "mxf8f6f4": 32,
    "mxf4": 64,
    "mxf4nvf4": 64,
}
_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TCGEN05_INPUTS: Mapping[str, Mapping[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}


def tensor_op(instruction: Instruction, descriptor: int | None = None) -> TensorOp | None:
    """Describe a tensor instruction; None for any other.

    `descriptor` is the value of a tcgen05.mma's 32-bit instruction descriptor, which holds M, N and
    the types; without it these stay None. `tensor_ops` looks it up.
    """
    if classify(instruction.opcode) is not OpClass.TENSOR:
        return None
    if instruction.opcode.startswith("tcgen05"):
        return _tcgen05(instruction.opcode, descriptor)
    return _shaped(instruction.opcode)


def tensor_ops(program: AsmFunction) -> dict[int, TensorOp]:
    """Describe all tensor instructions of a program, by instruction index.

    A tcgen05.mma's descriptor is a constant that a mov has put into a register; where a
    register holds more than one value, the op's shape stays unknown.
    """
    ops: dict[int, TensorOp] = {}
    value_of = cache(partial(constant_value, program))
    for item in program.instructions:
        if classify(item.opcode) is not OpClass.TENSOR:
            continue
        operands = item.operands if item.opcode.startswith("tcgen05") else ()
        # A sparse form has the address of its metadata before the descriptor.
        place = 4 if ".sp" in item.opcode else 3
        descriptor = value_of(operands[place]) if len(operands) > place else None
        if op := tensor_op(item, descriptor):
            ops[item.index] = op
    return ops


@lru_cache(maxsize=1024)
def _shaped(opcode: str) -> TensorOp | None:
    shape = _SHAPE.search(opcode)
    if shape is None:
        return None
    m, n, k = map(int, shape.groups())
    a_type: str | None = None
    types = [part for part in opcode[shape.end() :].split(".") if _TYPE.fullmatch(part)]
    if opcode.startswith("wmma"):
        # .dtype.ctype alone means f16 factors; else .dtype.atype.btype.ctype.
        a_type = types[1] if len(types) == 4 else "f16"
        kind: TensorKind = "wmma"
    else:
        if len(types) > 2:
            a_type = types[1]
        kind = "wgmma" if opcode.startswith("wgmma") else "mma.sync"
    return TensorOp(kind, m, n, k, a_type)


@lru_cache(maxsize=1024)
def _tcgen05(opcode: str, descriptor: int | None) -> TensorOp:
    """Read tcgen05.mma.

    The descriptor's bits, after the PTX ISA's tables "Instruction descriptor": 7-9 type of A,
    17-22 N / 8, 24-28 M / 16.
    """
    named = _KIND.search(opcode)
    kind = named[1] if named else ""
    k = _TCGEN05_K.get(kind)
    if k is not None and ".sp" in opcode:
        k *= 2
    ctas = 2 if "cta_group::2" in opcode else 1
    if descriptor is None:
        return TensorOp("tcgen05", None, None, k, None, ctas)
    if kind in ("mxf4", "mxf4nvf4") and descriptor >> 31 & 1:
        k = 96
    inputs = _TCGEN05_INPUTS.get(kind, {})
    return TensorOp(
        kind="tcgen05",
        m=(descriptor >> 24 & 0x1F) * 16 or None,
        n=(descriptor >> 17 & 0x3F) * 8 or None,
        k=k,
        a_type=inputs.get(descriptor >> 7 & 7),
        ctas=ctas,
    )


_LITERAL = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})U?")


def literal_value(text: str) -> int | None:
    """Return an integer literal's value, decimal or hexadecimal, or None."""
    match = _LITERAL.fullmatch(text)
    if match is None:
        return None
    value = int(match[2], 16 if match[2][:2] in ("0x", "0X") else 10)
    return -value if match[1] else value


def constant_value(program: AsmFunction, operand: str) -> int | None:
    """Return the value of a literal, or of a register that only ever holds one literal."""
    value = literal_value(operand)
    if value is not None or not operand.startswith("%"):
        return value
    values: set[int | None] = set()
    for item in program.instructions:
        if operand not in item.text:
            continue
        operands = item.operands
        if operands[0] == operand and item.opcode.startswith("mov."):
            values.add(literal_value(operands[-1]))
        elif operand in re.findall(r"%\w+", operands[0]) and not operands[0].startswith("["):
            values.add(None)
    return values.pop() if len(values) == 1 else None
