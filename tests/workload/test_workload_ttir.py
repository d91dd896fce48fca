"""Reading TTIR text: operations, regions, locations, and text that is none."""

from __future__ import annotations

import random
import re

import pytest
import workload_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_lowering import I32, lower, moved, pointer

from asmtune.base.errors import ParseError
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.mlir_types import parse_type
from asmtune.ir.ttir.parser import parse_ttir

SMALL = """
#loc = loc("k.py":3:0)
#loc5 = loc("n"(#loc))
module {
  tt.func public @"k(x)"(%n: i32 {tt.divisibility = 16 : i32} loc("n"(#loc)), %p: !tt.ptr<f32, 1>) {
    %c0 = arith.constant 0 : i32 loc(#loc1)
    %c1 = arith.constant 1 : i32 loc(#loc1)
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = %c1) -> (i32, i32)  : i32 {
      "dialect.unknown"(%a) <{text = "} %none {"}> ({
      ^bb0(%x: f32 loc(unknown), %y: tensor<2x4x!tt.ptr<f16>>):
        other.return %x : f32
      }) : (i32) -> () loc(callsite(#loc1 at #loc))
      scf.yield %b, %a : i32, i32 loc(#loc1)
    } {tt.num_stages = 2 : i32} loc(#loc1)
    tt.print " loc( = { " {hex = false} : %r#1 : i32 loc(#loc1)
    tt.return
  } loc(#loc)
} loc(#loc)
#loc1 = loc("name"(#loc2))
#loc2 = loc("k.py":7:4)
"""


def test_operations_have_their_results_operands_and_regions() -> None:
    """A loop, an unknown operation with a region, and text with braces in strings."""
    module = parse_ttir(SMALL)
    kernel = module.kernel
    assert kernel.name == "k(x)"
    assert [a.type for a in kernel.arguments] == ["i32", "!tt.ptr<f32, 1>"]
    loop = kernel.blocks[0].operations[2]
    assert loop.results == ("%r#0", "%r#1")
    assert loop.operands == ("%c0", "%n", "%c1", "%c0", "%c1")
    assert "num_stages = 2" in loop.text
    assert [a.value for a in loop.regions[0][0].arguments] == ["%i", "%a", "%b"]
    unknown, yielded = loop.regions[0][0].operations
    assert unknown.operands == ("%a",)
    assert [a.type for a in unknown.regions[0][0].arguments] == [
        "f32",
        "tensor<2x4x!tt.ptr<f16>>",
    ]
    assert yielded.operands == ("%b", "%a")
    assert kernel.blocks[0].operations[3].operands == ("%r#1",)


@pytest.mark.parametrize(
    ("text", "shape", "element", "bits", "role"),
    [
        ("tensor<64x32xf16, #enc<a, b>>", (64, 32), "f16", 16, "value"),
        ("tensor<128x!tt.ptr<f8E4M3FN>>", (128,), "f8E4M3FN", 8, "pointer"),
        ("!tt.ptr<tensor<8x4xbf16>>", (8, 4), "bf16", 16, "pointer"),
        ("!tt.tensordesc<tensor<8x4xi8>>", (8, 4), "i8", 8, "descriptor"),
        ("!tt.tensordesc<8x4xi8, #shared>", (8, 4), "i8", 8, "descriptor"),
        ("!tt.ptr<!tt.ptr<f32>, 1>", (), "!tt.ptr<f32>", 64, "pointer"),
        ("index", (), "index", 64, "value"),
        ("tensor<2xi1>", (2,), "i1", 1, "value"),
    ],
)
def test_types_are_read(
    text: str, shape: tuple[int, ...], element: str, bits: int, role: str
) -> None:
    """Tensors, pointers and descriptors, in the forms of old and new releases."""
    kind = parse_type(text)
    assert (kind.shape, kind.element, kind.bits, kind.role) == (shape, element, bits, role)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tt.func"),
        (SMALL[: SMALL.index("tt.print")], "ends inside tt.func, opened at line 5"),
        (SMALL.replace("%c1 = ", "= "), "line 7: not TTIR"),
        (SMALL.replace("%n step", "%m step"), "uses %m, which nothing defines"),
        (SMALL.replace("  tt.return\n", "  tt.return\n  }\n  }\n"), "closes what was never"),
        ("module {\n" * 200, "nest deeper"),
    ],
)
def test_text_that_is_no_ttir_is_refused_with_its_place(text: str, message: str) -> None:
    """The error names what is wrong and where."""
    with pytest.raises(ParseError, match=re.escape(message)):
        analyse(text, LaunchArguments({}, (1, 1, 1)))


def test_calls_without_end_are_cut_off() -> None:
    """A function that calls itself is expanded so far, then stands for something unknown."""
    text = SMALL.replace(
        "tt.print", 'tt.call @"k(x)"(%n, %p) : (i32, !tt.ptr<f32>) -> ()\n tt.print'
    )
    work = analyse(text, LaunchArguments({"n": 1}, (1, 1, 1)))
    assert work.arguments[0].unknown_use


TEXTS = [
    lower(kernels.early_return, x_ptr=pointer(), y_ptr=pointer(), n=9, BLOCK=64),
    lower(kernels.while_scalar, y_ptr=pointer(), n=9, BLOCK=64),
    lower(kernels.scans, x_ptr=pointer(), y_ptr=pointer(), z_ptr=pointer(), BLOCK=8),
    lower(kernels.inline_asm, x_ptr=pointer(I32), y_ptr=pointer(I32), n=9, BLOCK=64),
    SMALL,
]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, 4))
def test_damaged_text_is_read_or_refused(text: str, seed: int, times: int) -> None:
    """Whatever is cut, doubled, swapped or put in, nothing but ParseError comes out."""
    dice = random.Random(seed)
    for _ in range(times):
        text = _damage(text, dice)
    try:
        work = analyse(text, LaunchArguments({"n": 9}, (4, 2, 1)))
    except ParseError:
        return
    assert moved(work, "read") >= 0


def _damage(text: str, dice: random.Random) -> str:
    lines = text.split("\n")
    first, second = dice.randrange(len(lines)), dice.randrange(len(lines))
    start = dice.randrange(len(text) + 1)
    end = start + dice.randrange(60)
    kind = dice.randrange(6)
    if kind == 0:
        return text[:start] + text[end:]
    if kind == 1:
        return text[:start] + dice.choice('{}()%^"#<>:,-=01x\n') + text[start:]
    if kind == 2:
        return text[:start] + text[start:end] + text[start:]
    if kind == 3:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 4:
        del lines[first]
    else:
        number = dice.choice(["0", "-1", "9" * 30, "2147483647"])
        return text[:start] + re.sub(r"\d+", number, text[start:], count=1)
    return "\n".join(lines)
