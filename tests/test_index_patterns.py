"""Patterns for the values of index tensors, and the values of modules on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.index_values import IndexValues
from asmtune.core.inputs.patterns import FORMS, Pattern
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.meta_values import MetaValues
from asmtune.core.problem import Problem
from tests.workload.workload_kernels import jagged

KINDS = Path(__file__).parents[1] / "benchmarks" / "corpus" / "kinds"


def drawn(text: str, elements: int | None = None, **numbers: int) -> Any:
    """The values of a pattern."""
    return Pattern.parse("--arg i", text).draw(elements, numbers).values


@pytest.mark.slow(seconds=2)
@settings(max_examples=50, deadline=None)
@given(st.integers(1, 500), st.integers(0, 5000), st.integers(0, 9))
def test_ragged_makes_offsets_of_the_mean(count: int, mean: int, seed: int) -> None:
    """Offsets begin at 0, never fall, and end at count times the mean; lengths add up to it."""
    values = drawn(f"ragged({count}, {mean}, seed={seed})")
    assert (len(values), values[0], values[-1]) == (count + 1, 0, count * mean)
    assert (np.diff(values) >= 0).all()
    lengths = drawn(f"lengths({count}, {mean}, seed={seed})")
    assert (lengths == np.diff(values)).all()
    assert drawn(f"ragged({count}, total={count * mean}, seed={seed})").tolist() == values.tolist()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("uniform(1000, -3, 5)", lambda v: v.min() == -3 and v.max() == 5),
        ("zipf(4000, 64)", lambda v: v.max() < 64 and (v == 0).sum() > 3 * (v == 7).sum()),
        ("sparse(1000, 0.3)", lambda v: v.sum() == 300 and set(v) == {0, 1}),
        ("permutation(500)", lambda v: sorted(v) == list(range(500)) and list(v) != sorted(v)),
        ("values(5, 0, -2)", lambda v: v.tolist() == [5, 0, -2]),
        ("constant(B * 2, cdiv(n, 64))", lambda v: v.tolist() == [2] * 6),
        ("ragged(B, mean=2.5)", lambda v: len(v) == 4 and v[-1] == 8),
    ],
)
def test_each_pattern(text: str, holds: Callable[[Any], bool]) -> None:
    """Each holds what its name says, and the same again."""
    values = drawn(text, B=3, n=100)
    assert holds(values)
    assert values.tolist() == drawn(text, B=3, n=100).tolist()
    assert text.partition("(")[0] in FORMS


def test_a_known_size_stands_for_the_count() -> None:
    """Of a tensor with 65 elements the offsets of 64 segments, or 65 numbers."""
    assert len(drawn("ragged(2048)", 65)) == 65
    assert len(drawn("ragged(total=900)", 65)) == 65
    assert len(drawn("sparse(0.5)", 65)) == 65
    assert len(drawn("permutation()", 65)) == 65
    assert len(drawn("ragged(64, 2048)", 65)) == 65


def test_dtypes_before_a_pattern() -> None:
    """The dtype tells the width; sizes may stand behind it."""
    assert drawn("i64: ragged(3, 5)").dtype == np.int64
    assert drawn("i1: sparse(9, 0.5)").dtype == np.int8
    assert drawn("u8: constant(2, 200)").tolist() == [-56] * 2  # the same bits with a sign
    parsed = Pattern.parse("--arg i", "i32[H, n // 64]: sparse(0.3)")
    assert (parsed.dtype, parsed.sizes, parsed.text) == ("i32", "H, n // 64", "sparse(0.3)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raged(64, 2048)", "no pattern 'raged'; did you mean ragged?"),
        ("ragged(64, 1, 2)", "its arguments do not fit"),
        ("ragged(, 2)", "its arguments are no list of numbers"),
        ("ragged(0, 2048)", "count is 0; expected a whole number from 1 to 16,777,216"),
        ("uniform(4, 9, 2)", "low is 9, above high, 2"),
        ("sparse(64, 1.5)", "share is 1.5; expected a number from 0 to 1"),
        ("constant(4, 5000000000)", "it reaches 5,000,000,000, and i32 ends at 2,147,483,647"),
        ("values()", "it takes one whole number or more"),
        ("fp16: ragged(64, 2)", "an index tensor holds integers, not fp16"),
        ("ragged(rows, 2048)", "no number is called 'rows'"),
        ("ragged(*[1, 2])", "invalid syntax"),
    ],
)
def test_a_bad_pattern_is_one_clear_line(text: str, said: str) -> None:
    """Where it stands, what is wrong, and the forms where the form is wrong."""
    with pytest.raises(InputError, match=r"^--arg i") as error:
        drawn(text)
    message = str(error.value)
    assert said in message
    assert "\n" not in message
    if "pattern" in said or "do not fit" in said or "no list" in said:
        assert FORMS in message


def test_a_pattern_of_another_size_is_refused() -> None:
    """Both sizes are told."""
    with pytest.raises(InputError, match="it makes 65 elements, and the tensor has 64"):
        drawn("ragged(64, 10)", 64)


def problem(**given: Any) -> Problem:
    """A launch on segments, on meta tensors."""
    arguments = {
        "x_ptr": torch.empty(4096, device="meta"),
        "starts_ptr": torch.empty(9, device="meta", dtype=torch.int64),
        "y_ptr": torch.empty(8, device="meta"),
    }
    return Problem(jagged, arguments, (8,), index_values=given)


def test_a_problem_takes_patterns_and_tensors() -> None:
    """From Python they are given by name; the dtype is the tensor's."""
    table = problem(starts_ptr="ragged(512)").index_table("starts_ptr")
    assert isinstance(table, IndexValues)
    assert (len(table.values), table.bits, table.values[-1]) == (9, 64, 4096)
    assert table.source == "the pattern ragged(512)"
    table = problem(starts_ptr=torch.arange(9)).index_table("starts_ptr")
    assert isinstance(table, IndexValues)
    assert table.values.tolist() == list(range(9))
    assert problem().index_table("starts_ptr").startswith("no values are given; give a pattern")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x_ptr", "ragged(512)", "the kernel is given no integer tensor of this name"),
        ("starts_ptr", "raged(512)", "did you mean ragged"),
        ("starts_ptr", torch.ones(9), "expected an integer tensor on the CPU, or a pattern"),
    ],
)
def test_bad_index_values_are_named(name: str, value: Any, said: str) -> None:
    """The message names the kernel and the argument."""
    with pytest.raises(InputError, match=rf"kernel jagged: index_values\['{name}'\]: .*{said}"):
        problem(**{name: value})


def test_a_tensor_is_copied_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of many configs reads it once; a later search sees what was written since."""
    starts = torch.arange(9)
    arguments = {"x_ptr": torch.ones(8), "starts_ptr": starts, "y_ptr": torch.ones(8)}
    launch = Problem(jagged, arguments, (8,))
    first = launch.index_table("starts_ptr")
    assert launch.index_table("starts_ptr") is first
    starts += 1
    table = launch.index_table("starts_ptr")
    assert isinstance(table, IndexValues)
    assert table.values.tolist() == list(range(1, 10))
    assert isinstance(first, IndexValues)
    assert first.values.tolist() == list(range(9))
    assert table.source == "the launch's own tensor"


@pytest.mark.slow(seconds=2)
def test_meta_tensors_keep_small_values() -> None:
    """Copies, draws, sums, views and writes are followed; what is large or unset is not."""
    with MetaValues() as known:
        lengths = torch.tensor([3, 1, 2], dtype=torch.int32).to("meta")
        ends = torch.cat([torch.zeros(1, dtype=torch.int64, device="meta"), lengths.cumsum(0)])
        slots = torch.randperm(8, device="meta").to(torch.int32)
        slots[::4] = -1
        table = torch.zeros(2, 3, dtype=torch.int32, device=torch.device("meta"))
        table[1].add_(5)
        listed = torch.tensor([4, 5], device="meta")
        filled = torch.empty(2, dtype=torch.int32, device="meta").fill_(6)
        unset = torch.empty(2, dtype=torch.int32, device="meta")
        large = torch.zeros(1 << 21, dtype=torch.int32, device="meta")
        listed_again = torch.tensor([4, 5], device="meta")
        listed_again[0] = large[0]
    assert known.values(ends).tolist() == [0, 3, 4, 6]
    assert sorted(known.values(slots)[[1, 2, 3, 5, 6, 7]].tolist())[0] >= 0
    assert known.values(slots)[::4].tolist() == [-1, -1]
    assert known.values(table).tolist() == [[0, 0, 0], [5, 5, 5]]
    assert known.values(listed).tolist() == [4, 5]
    assert known.values(filled).tolist() == [6, 6]
    assert known.values(unset) is None
    assert known.values(large) is None
    assert known.values(listed_again) is None


def test_meta_values_leave_random_numbers_as_they_were() -> None:
    """What is drawn beside a module does not change what the program draws."""
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    with MetaValues() as known:
        first = known.values(torch.randint(0, 99, (5,), device="meta"))
    assert torch.equal(torch.rand(3), expected)
    with MetaValues() as known:
        assert torch.equal(known.values(torch.randint(0, 99, (5,), device="meta")), first)


@pytest.mark.parametrize(
    ("kind", "name"), [("segment_matmul", "offset_ptr"), ("attention_block_mask", "count_ptr")]
)
def test_a_kernel_module_offers_what_it_computed(kind: str, name: str) -> None:
    """On the meta device the index tensors hold what they hold on the CPU."""
    module = load_kernel_module(str(KINDS / f"{kind}.py"))
    shape = module.python.SMALL
    table = module.problem(shape, module.dtypes[0], "meta").index_table(name)
    own = module.problem(shape, module.dtypes[0], "cpu").index_table(name)
    assert isinstance(table, IndexValues)
    assert isinstance(own, IndexValues)
    assert table.values.tolist() == own.values.tolist()
    assert (table.source, own.source) == ("the kernel module's values", "the launch's own tensor")


OLD_FORM = """
import torch, triton, triton.language as tl
from asmtune import Space

@triton.jit
def kernel(x_ptr, n_ptr, BLOCK: tl.constexpr):
    for i in range(tl.load(n_ptr + tl.program_id(0))):
        tl.store(x_ptr + i * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))

SHAPES, DTYPE = [{"n": 4}], "fp32"

def space():
    return Space({"BLOCK": (64,)})

def make(shape, device):
    lengths = torch.randint(1, 9, (shape["n"],), device=device, dtype=torch.int32)
    args = (torch.empty(1024, device=device), lengths)
    return {"args": args, "fixed": {}, "grid": (shape["n"],)}
"""


def test_modules_with_make_offer_values_too(tmp_path: Path) -> None:
    """Numbers that are drawn on the device itself are known as well, and the same each time."""
    (tmp_path / "old.py").write_text(OLD_FORM)
    module = load_kernel_module(str(tmp_path / "old.py"))
    tables = [module.problem({"n": 4}, "fp32", "meta").index_table("n_ptr") for _ in range(2)]
    first, again = (table.values.tolist() for table in tables if isinstance(table, IndexValues))
    assert first == again
    assert all(1 <= length < 9 for length in first)
