"""Values of index tensors: those given, those of a launch, and those of modules on meta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.errors import InputError
from asmtune.core.assumed_tensors import MetaValues
from asmtune.core.index_values import IndexValues
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from tests.workload.workload_kernels import jagged

KINDS = Path(__file__).parents[1] / "benchmarks" / "corpus" / "kinds"


def problem(**given: Any) -> Problem:
    """A launch on segments, on meta tensors."""
    arguments = {
        "x_ptr": torch.empty(4096, device="meta"),
        "starts_ptr": torch.empty(9, device="meta", dtype=torch.int64),
        "y_ptr": torch.empty(8, device="meta"),
    }
    return Problem(jagged, arguments, (8,), index_values=given)


def test_a_problem_takes_tensors() -> None:
    """From Python they are given by name, for an integer tensor of the kernel's alone."""
    table = problem(starts_ptr=torch.arange(9)).index_table("starts_ptr")
    assert isinstance(table, IndexValues)
    assert (table.values.tolist(), table.bits) == (list(range(9)), 64)
    assert problem().index_table("starts_ptr").startswith("no values are given")
    with pytest.raises(InputError, match=r"jagged: index_values\['x_ptr'\]: .* no integer tensor"):
        problem(x_ptr=torch.arange(9))
    for value in (torch.ones(9), "ragged(512)", torch.arange(9, device="meta")):
        with pytest.raises(InputError, match="expected an integer tensor on the CPU"):
            problem(starts_ptr=value)


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
    ("kind", "name", "shape"),
    [
        ("segment_matmul", "offset_ptr", {"segments": 3, "mean": 20, "N": 40, "K": 50}),
        ("attention_block_mask", "count_ptr", {"heads": 2, "N": 300, "D": 32, "seen": 2}),
    ],
)
def test_a_kernel_module_offers_what_it_computed(
    kind: str, name: str, shape: dict[str, int]
) -> None:
    """On the meta device the index tensors hold what they hold on the CPU."""
    module = load_kernel_module(str(KINDS / f"{kind}.py"))
    table = module.problem(shape, module.dtypes[0], "meta").index_table(name)
    own = module.problem(shape, module.dtypes[0], "cpu").index_table(name)
    assert isinstance(table, IndexValues)
    assert isinstance(own, IndexValues)
    assert table.values.tolist() == own.values.tolist()
    assert (table.source, own.source) == ("the kernel module's values", "the launch's own tensor")
