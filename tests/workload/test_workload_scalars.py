"""Scalar arithmetic against C's, on random expressions."""

from __future__ import annotations

import ctypes
import math

import pytest
import workload_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_lowering import call, lower, pointer

from asmtune.ir.ttir.analysis import Kernel, analyse
from asmtune.ir.ttir.scalars import compare_floats, compare_integers, constant, integer, wrap
from asmtune.ir.ttir.work import Work

INT = st.integers(-(2**31), 2**31 - 1)
QUOTIENT = Kernel(lower(kernels.quotient, y_ptr=pointer(), a=5, b=7, c=-5))


def c_divide(a: int, b: int) -> int:
    """Division towards zero."""
    return math.trunc(a / b)


def c_int(value: int) -> int:
    """The value of an int that overflowed."""
    return ctypes.c_int32(value).value


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(10**6), 10**6),
    st.integers(-50, 50).filter(bool),
    st.integers(-(10**5), 10**5),
)
def test_expression_is_evaluated_as_in_c(a: int, b: int, c: int) -> None:
    """Signs of quotients and remainders, shifts, bits, minima and maxima."""
    quotient = c_divide(a, b)
    x = quotient + (a - b * quotient) - (c << 2) + (c >> 1)
    trips = abs(x) % 17
    found = QUOTIENT.work(call((1,), a=a, b=b, c=c))
    assert found.loops[0].trips == trips


OPERATIONS = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.divui": lambda a, b: (a % 2**32) // (b % 2**32) if b else 0,
    "arith.remui": lambda a, b: (a % 2**32) % (b % 2**32) if b else 0,
    "arith.minui": lambda a, b: min(a % 2**32, b % 2**32),
    "arith.shrui": lambda a, b: (a % 2**32) >> (b % 32),
    "arith.shrsi": lambda a, b: a >> (b % 32),
    "arith.shli": lambda a, b: a << (b % 32),
}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), INT), min_size=1, max_size=12), INT)
def test_chains_of_operations_wrap_as_registers_do(chain: list[tuple[str, int]], n: int) -> None:
    """The text's result, brought to a loop's bound, is that of 32-bit registers."""
    lines, value, last = [], n, "%n"
    for place, (name, operand) in enumerate(chain):
        by = operand % 32 if name.startswith("arith.sh") else operand
        if name.endswith(("divui", "remui")) and by == 0:
            by = 3
        lines.append(f"%k{place} = arith.constant {by} : i32")
        lines.append(f"%v{place} = {name} {last}, %k{place} : i32")
        value, last = c_int(OPERATIONS[name](value, by)), f"%v{place}"
    assert bounded(lines, f"arith.andi {last}, %mask : i32", n).loops[0].trips == value & 1023


def bounded(lines: list[str], bound: str, n: int) -> Work:
    """Work of a kernel that computes a bound and loops to it."""
    text = "\n".join(
        [
            "module {",
            "tt.func public @k(%n: i32, %p: !tt.ptr<f32>) {",
            *lines,
            "%mask = arith.constant 1023 : i32",
            "%zero = arith.constant 0 : i32",
            "%one = arith.constant 1 : i32",
            f"%bound = {bound}",
            "scf.for %i = %zero to %bound step %one : i32 {",
            "}",
            "tt.return",
            "}",
            "}",
        ]
    )
    return analyse(text, call((1,), n=n))


@given(st.sampled_from(["arith.divsi", "arith.remsi"]), INT, INT.filter(bool))
def test_signed_division_is_towards_zero(name: str, a: int, b: int) -> None:
    """Remainders take the dividend's sign."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    expected = quotient if name == "arith.divsi" else a - b * quotient
    assert integer(name, a, b, 32) == c_int(expected)


@given(INT, INT)
def test_comparisons_read_the_sign_or_not(a: int, b: int) -> None:
    """The first letter of a predicate tells how bits are read."""
    assert compare_integers("slt, %a, %b", a, b, 32) == int(a < b)
    assert compare_integers("ult, %a, %b", a, b, 32) == int(a % 2**32 < b % 2**32)
    assert compare_integers("ne, %a, %b", a, b, 32) == int(a != b)


def test_comparisons_with_nan_follow_their_order() -> None:
    """Ordered predicates are false where a number is none, unordered ones true."""
    assert compare_floats("olt, %a, %b", math.nan, 1.0) == 0
    assert compare_floats("ult, %a, %b", math.nan, 1.0) == 1
    assert compare_floats("une, %a, %b", 1.0, 1.0) == 0
    assert compare_floats("uno, %a, %b", math.nan, 1.0) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", 1),
        ("-5 : i32", -5),
        ("1.500000e+00 : f32", 1.5),
        ("0xFF800000 : f32", -math.inf),
        ("0x7C00 : f16", math.inf),
        ("dense<0> : tensor<4xi32>", None),
        ('"text"', None),
    ],
)
def test_constants_are_read(text: str, value: float | None) -> None:
    """Booleans, integers, floats and their bits; nothing else."""
    assert constant(text) == value


def test_booleans_are_minus_one_with_a_sign() -> None:
    """A register of one bit holds 0 or 1; extended with its sign, 0 or -1."""
    lines = [
        "%z = arith.constant 0 : i32",
        "%b = arith.cmpi sgt, %n, %z : i32",
        "%w = arith.extsi %b : i1 to i32",
        "%u = arith.extui %b : i1 to i32",
        "%d = arith.subi %u, %w : i32",
    ]
    assert bounded(lines, "arith.andi %d, %mask : i32", 5).loops[0].trips == 2
    assert wrap(3, 1) == 1


@pytest.mark.parametrize(
    ("operation", "reason"),
    [("arith.divsi %n, %zero", "arith.divsi"), ("arith.shli %n, %mask", "arith.shli")],
)
def test_undefined_results_are_unknown(operation: str, reason: str) -> None:
    """Division by zero and too wide shifts give a reason, not an error."""
    found = bounded([], f"{operation} : i32", 5)
    assert found.assumptions[0].reason.startswith(reason)
