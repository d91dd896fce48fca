"""Access patterns by line of the source, from TTGIR: pattern, stride and sectors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import why_kernels as kernels
from why_kernels import copy_problem, square_problem, tensor, why

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.predict.why.access import AccessPattern

BLOCK = Config({"BLOCK": 1024}, num_warps=4)


def patterns(problem: Problem, config: Config, settings: Settings) -> dict[str, AccessPattern]:
    """The patterns by argument."""
    reasons = why(problem, [config], settings)
    return {pattern.argument: pattern for pattern in reasons.accesses}


def line_of(kernel: object, text: str) -> int:
    """The line of a kernel's file that holds a text."""
    code = kernel.fn.__code__  # type: ignore[attr-defined]
    lines = Path(code.co_filename).read_text(encoding="utf-8").split("\n")
    start = code.co_firstlineno - 1
    return next(i + 1 for i in range(start, len(lines)) if text in lines[i])


def test_a_copy_is_sequential(settings: Settings) -> None:
    """A warp's request of 16 bytes a thread touches 16 sectors and uses them all."""
    found = patterns(copy_problem(1 << 20, 1), BLOCK, settings)
    assert {one.pattern for one in found.values()} == {"sequential"}
    assert {(one.asked, one.used) for one in found.values()} == {(16, 16)}


@pytest.mark.parametrize(("stride", "in_all"), [(2, 0.5), (8, 0.125), (1024, 0.125)])
def test_a_strided_copy(stride: int, in_all: float, settings: Settings) -> None:
    """Each thread asks for a sector of its own; of a small stride later requests use the rest."""
    found = patterns(copy_problem(1 << 16, stride), BLOCK, settings)
    x = found["x_ptr"]
    assert (x.pattern, x.stride_bytes) == ("strided", 4 * stride)
    assert (x.asked, x.used, x.tile_share) == (32, 4, in_all)
    assert found["y_ptr"].pattern == "sequential"
    line = line_of(kernels.copy, "tl.load")
    words = f"strided by {4 * stride:,} B: 32 sectors asked for a warp's request, 4 used (12%)"
    assert str(x).startswith(f"line {line}: load of x_ptr: {words}")
    assert ("together 50%" in str(x)) == (stride == 2)


def test_a_naive_transpose_strides_its_store(settings: Settings) -> None:
    """Its store is strided by a row."""
    found = patterns(square_problem(kernels.transpose, 1024), BLOCK, settings)
    y = found["y_ptr"]
    assert (y.kind, y.pattern, y.stride_bytes, y.asked) == ("write", "strided", 4096, 32)
    assert found["x_ptr"].pattern == "sequential"


def test_gathers_of_rows_and_of_elements(settings: Settings) -> None:
    """Rows that an index names are gathered in whole sectors, and single elements are not."""
    arguments = {
        "x_ptr": tensor(torch.float32, 512, 1024),
        "index_ptr": tensor(torch.int32, 512),
        "y_ptr": tensor(torch.float32, 512, 1024),
    }
    rows = patterns(
        Problem(kernels.take_rows, {**arguments, "cols": 1024}, (512,)), BLOCK, settings
    )
    assert (rows["x_ptr"].pattern, rows["x_ptr"].share) == ("gather", 1.0)
    assert rows["index_ptr"].pattern == "broadcast"
    assert rows["y_ptr"].pattern == "sequential"
    single = Problem(kernels.take, {**arguments, "n": 4096}, (4,))
    elements = patterns(single, BLOCK, settings)
    assert (elements["x_ptr"].pattern, elements["x_ptr"].asked) == ("gather", 32)
    assert elements["x_ptr"].share == pytest.approx(4 / 32)
    assert elements["index_ptr"].pattern == "sequential"
