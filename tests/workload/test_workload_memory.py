"""Memory that arguments stand for, and memory that none does."""

from __future__ import annotations

from typing import Any

import foreign_kernels as foreign
import pytest
import workload_kernels as kernels
from workload_lowering import (
    I64,
    call,
    lower,
    pointer,
    work,
)

from asmtune.ir.ttir.analysis import analyse
from asmtune.measure.checks.effects import Effects


@pytest.mark.parametrize("kernel", foreign.WRITING, ids=lambda kernel: kernel.__name__)
def test_foreign_writes_are_seen_wherever_they_hide(kernel: Any) -> None:
    """Calls, branches, loops, casts, atomics, descriptors and assembly: the line is named."""
    found = work(kernel, grid=(2,), **foreign_values(kernel))
    (place,) = found.foreign_places
    file, _, line = place.rpartition(":")
    assert file == foreign.__file__
    owner = foreign.put if kernel is foreign.by_a_call else kernel
    lines = owner.raw_src
    start = owner.starting_line_number
    assert start < int(line) < start + len(lines)
    assert Effects.of([found], foreign_values(kernel)).foreign


@pytest.mark.parametrize("kernel", foreign.OTHERS, ids=lambda kernel: kernel.__name__)
def test_what_writes_arguments_alone_is_not_foreign(kernel: Any) -> None:
    """Reads by addresses, stores by indices and other assembly are those of ordinary kernels."""
    assert work(kernel, grid=(2,), **foreign_values(kernel)).foreign_places == ()


def foreign_values(kernel: Any) -> dict[str, Any]:
    """Arguments of a kernel of `foreign_kernels`."""
    first = {"address": 1 << 40} if "address" in kernel.arg_names else {"table_ptr": pointer(I64)}
    return {**first, "x_ptr": pointer(), "n": 64, "BLOCK": 16}


def test_unknown_operation_on_a_pointer_is_not_trusted() -> None:
    """An operation of a later release may read and write what it is given."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "cols": 9, "BLOCK": 16}
    text = lower(kernels.softmax, **values)
    place = text.index("tt.store")
    text = text[:place] + "tt.new_thing %x_ptr : !tt.ptr<f32>\n" + text[place:]
    x, y = analyse(text, call((1,), **values)).arguments
    assert (x.reads, x.writes, x.unknown_use) == (True, True, True)
    assert (y.reads, y.writes, y.unknown_use) == (False, True, False)
