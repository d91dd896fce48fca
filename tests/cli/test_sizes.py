"""Sizes on the command line: arithmetic, its limits, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import triton
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.inputs.plain_functions import Sizes
from tests.command_lines import Commands

LARGE = 2**62
NAMES = {"n": 100, "BLOCK": 32, "eps": 1e-5, "cap": None}

numbers = st.integers(0, 40).map(str) | st.sampled_from(["n", "BLOCK"])
pairs = ["+", "-", "*", "//", "%"]
functions = ["cdiv", "min", "max"]


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions one step larger."""
    return (
        st.tuples(inner, st.sampled_from(pairs), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(st.sampled_from(functions), inner, inner).map("{0[0]}({0[1]}, {0[2]})".format)
        | inner.map("-{}".format)
        | inner.map("next_power_of_2({})".format)
    )


def sizes(text: str, values: dict[str, Any] = NAMES, most: int = 3) -> tuple[int, ...]:
    """The sizes that a text gives, its names checked."""
    made = Sizes("--grid", text, (LARGE,) * most)
    made.check_names(values)
    return made(values)


@given(st.recursive(numbers, grown, max_leaves=6))
def test_it_counts_as_python_does(text: str) -> None:
    """An expression has the value that Python and Triton's helpers give it, or is refused."""
    helpers = {"cdiv": triton.cdiv, "next_power_of_2": triton.next_power_of_2}
    try:
        expected = eval(text, {"__builtins__": {"min": min, "max": max}, **helpers}, dict(NAMES))
    except ZeroDivisionError:
        expected = None
    try:
        found, told = sizes(text)[0], ""
    except InputError as error:
        found, told = None, str(error)
    # Triton gives next_power_of_2 of 0 as 0; here it has no value.
    is_size = expected is not None and 1 <= expected <= LARGE and "next_power_of_2 of" not in told
    assert found == (expected if is_size else None)


def test_refusals() -> None:
    """What is no whole number of known ones is refused in one line that says what it is."""
    for text, says in {
        "": "invalid syntax, at position 1",
        "cdiv(n, BLOCK": "at position 5",
        "n, cdiv(BLOK, 2)": "'BLOK'; known: n, BLOCK, .*BLOCK",
        "2 + cdvi(n, 2)": "'cdvi'; known: .*mean cdiv",
        "n / BLOCK": "3.125 under n=100 BLOCK=32; .*write // or cdiv",
        "__import__('os')": "nothing is called '__import__'",
        "cdiv(n)": "missing 1 required positional argument",
        "eps": "eps is 1e-05, no whole number",
        "n - 100": "0 under n=100; expected a whole number from 1 to",
        "n // (BLOCK - 32)": "under n=100 BLOCK=32",
        "next_power_of_2(0)": "next_power_of_2 of 0",
        "9" * 200: "expected a whole number from 1 to",
        "1,2,3,4": "4 sizes; expected 1 to 3",
        "(" * 199: "never closed|too many nested",
    }.items():
        with pytest.raises(InputError, match=says) as caught:
            sizes(text)
        assert str(caught.value).startswith(f"--grid {text!r}: ")
        assert "\n" not in str(caught.value)


ROWS = (
    "{}/plain.py:plain", "--arg", "x_ptr=fp16[rows, cols]", "--arg", "rows=8192",
    "--arg", "cols=64", "--arg", "n=524288", "--axis", "BLOCK=128", "--axis", "num_warps=4",
)  # fmt: skip


def test_forms_and_limits() -> None:
    """Commas part up to three sizes, each with its limit."""
    assert sizes("cdiv(n, BLOCK)*cdiv(n + 1,BLOCK), 7") == (16, 7)
    assert sizes(" (2*5, next_power_of_2(n),n%BLOCK) ") == (10, 128, 4)
    assert sizes("max(1, n // 1000, 0)") == (1,)
    grid = Sizes("--grid", "n, n", (1000, 99))
    assert grid({"n": 99}) == (99, 99)
    with pytest.raises(InputError, match="100 under n=100; expected a whole number from 1 to 99"):
        grid({"n": 100})


def test_sizes_that_are_no_parameters(commands: Commands) -> None:
    """A number may be a size that shapes and the grid name, and is then no argument."""
    asked = (*ROWS, "--grid", "cdiv(rows*cols, BLOCK)", "--format", "json")
    ran = commands.run("prune-report", *asked)
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["reports"][0]["shape"]["rows"] == 8192
    (entry,) = json.loads(commands.run("roofline", *asked).out)["entries"]
    assert (entry["kernel"], entry["shape"]["rows"]) == ("plain", 8192)
    assert entry["after"]["bytes"] == 2 * 2 * 524288
    line = commands.refused("prune-report", *ROWS, "--arg", "depth=3", "--grid", "1")
    assert "has no parameter 'depth': its parameters are x_ptr, n, BLOCK" in line
    assert "no size names it either" in line


@pytest.mark.parametrize(
    ("declared", "remark"),
    [("n", None), ("2*n", None), ("n//2", "1,000 bytes, and the kernel goes on to byte 2,000")],
)
def test_a_pointer_smaller_than_what_is_read(
    declared: str, remark: str | None, commands: Commands
) -> None:
    """A remark says how far the kernel reads behind a pointer; the mask counts."""
    plain = ("{}/plain.py:plain", "--arg", f"x_ptr=fp16[{declared}]", "--arg", "n=1000")
    axes = ("--axis", "BLOCK=128", "--axis", "num_warps=4", "--grid", "cdiv(n, BLOCK)")
    ran = commands.run("prune-report", *plain, *axes)
    assert (ran.code, ran.err) == (0, "")
    assert ("goes on to byte" in ran.out) == (remark is not None)
    assert remark is None or f"x_ptr has {remark}" in ran.out
