"""Bytes moved and how arguments are used, against what the kernels' source says."""

from __future__ import annotations

from math import ceil
from typing import Any

import foreign_kernels as foreign
import pytest
import torch
import triton
import workload_kernels as kernels
from workload_lowering import (
    F16,
    F32,
    I32,
    I64,
    after_passes,
    call,
    flops,
    lower,
    moved,
    pointer,
    work,
)

from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.ir.ttir.strides import Repeated
from asmtune.ir.ttir.work import ArgumentUse, Work
from asmtune.measure.checks.effects import Effects

TILES = {"BM": 64, "BN": 64, "BK": 32}


def uses(found: Work) -> dict[str, str]:
    """Letters for each argument: Read, Written, Atomic, unknown (?)."""
    return {
        use.name: "R" * use.reads + "W" * use.writes + "A" * use.atomics + "?" * use.unknown_use
        for use in found.arguments
    }


def use_of(found: Work, name: str) -> ArgumentUse:
    """Give one argument's use by name."""
    return next(use for use in found.arguments if use.name == name)


def test_product_reads_its_tiles_and_writes_its_output() -> None:
    """Traffic is that of the tiles; what differs is at most the matrices."""
    m, n, k = 512, 256, 320
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))
    values = {**pointers, "M": m, "N": n, "K": k, **TILES}
    sizes = {"a_ptr": 2 * m * k, "b_ptr": 2 * k * n, "c_ptr": 2 * m * n}
    found = analyse(lower(kernels.gemm, **values), LaunchArguments(values, (8 * 4, 1, 1), sizes))
    assert moved(found, "write") == sizes["c_ptr"]
    assert use_of(found, "a_ptr").read_bytes == sizes["a_ptr"] * (n // 64)
    assert use_of(found, "b_ptr").read_bytes == sizes["b_ptr"] * (m // 64)
    assert found.unique_read_bytes == sizes["a_ptr"] + sizes["b_ptr"]
    assert found.unique_written_bytes == sizes["c_ptr"]
    assert uses(found) == {"a_ptr": "R", "b_ptr": "R", "c_ptr": "W"}


def test_without_sizes_traffic_bounds_what_is_unique() -> None:
    """A weight read by every row counts in full."""
    pointers = {"x_ptr": pointer(), "w_ptr": pointer(), "y_ptr": pointer()}
    found = work(kernels.layernorm, grid=(10,), **pointers, cols=512, eps=1e-5, BLOCK=256)
    assert moved(found, "read") == found.unique_read_bytes == 10 * 512 * 4 * 3
    assert moved(found, "write") == 10 * 512 * 4


@pytest.mark.parametrize("specialize", [False, True])
def test_device_descriptors_lead_to_their_pointers(specialize: bool) -> None:
    """Copies by tensor descriptors count for the pointers that they are made of."""
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))
    sizes = {"M": 512, "N": 256, "K": 320, "WS": specialize, **TILES}
    found = work(kernels.tma_gemm, grid=(8, 4), **pointers, **sizes)
    assert uses(found) == {"a_ptr": "R", "b_ptr": "R", "c_ptr": "W"}
    assert moved(found, "write") == 2 * 512 * 256
    assert moved(found, "read") == 2 * (512 * 320 * 4 + 320 * 256 * 8)


def descriptor(rows: int, cols: int, block: list[int], dtype: torch.dtype = F16) -> object:
    """A host descriptor without storage."""
    tools = pytest.importorskip("triton.tools.tensor_descriptor")
    tensor = torch.empty(rows, cols, device="meta", dtype=dtype)
    return tools.TensorDescriptor(tensor, [rows, cols], [cols, 1], block)


def test_host_descriptors_are_arguments() -> None:
    """A descriptor made on the host stands for its memory; its parts have names."""
    values = {
        "a": descriptor(512, 320, [64, 32]),
        "b": descriptor(320, 256, [32, 64]),
        "c": descriptor(512, 256, [64, 64]),
        "M": 512,
        "N": 256,
        "K": 320,
        **TILES,
    }
    found = work(kernels.host_tma_gemm, grid=(8, 4), **values)
    assert uses(found) == {"a": "R", "b": "R", "c": "W"}
    assert moved(found, "write") == 2 * 512 * 256
    assert sum(flops(found).values()) == 2 * 512 * 256 * 320


def test_descriptor_gather_scatter_and_reduce() -> None:
    """Rows gathered and scattered, and tiles added, have the size of their tensors."""
    pointers = {"a_ptr": pointer(), "b_ptr": pointer(), "i_ptr": pointer(I32)}
    found = work(kernels.descriptor_more, grid=(1,), **pointers, ROWS=32, COLS=64)
    assert uses(found) == {"a_ptr": "RW", "b_ptr": "RWA", "i_ptr": "R"}
    assert moved(found, "read") == 32 * 64 * 4 + 32 * 4
    assert moved(found, "write") == moved(found, "atomic") == 32 * 64 * 4


@pytest.mark.skipif(
    not hasattr(triton.language, "make_block_ptr") or triton.__version__ >= "3.9",
    reason="block pointers were removed",
)
def test_block_pointers_advance_through_loops() -> None:
    """A pointer carried by a loop still is its argument's."""
    values = {"a_ptr": pointer(F16), "c_ptr": pointer(), "M": 512, "K": 500, "BM": 64, "BK": 32}
    found = work(kernels.block_pointers, grid=(8,), **values)
    assert uses(found) == {"a_ptr": "R", "c_ptr": "W"}
    assert moved(found, "read") == 8 * ceil(500 / 32) * 64 * 32 * 2
    (load,) = [access for access in found.accesses if access.kind == "read"]
    assert load.strides == (500, 1)


def test_atomics_are_read_and_written() -> None:
    """Split sums add up in place; their bytes are counted apart."""
    pointers = {"a_ptr": pointer(F16), "b_ptr": pointer(F16), "c_ptr": pointer(F32)}
    sizes = {"M": 512, "N": 256, "K": 320, "SPLIT": 4, **TILES}
    found = work(kernels.split_k, grid=(8, 4, 4), **pointers, **sizes)
    assert uses(found) == {"a_ptr": "R", "b_ptr": "R", "c_ptr": "RWA"}
    assert moved(found, "atomic") == 4 * 512 * 256 * 4
    assert moved(found, "write") == 0


def test_in_place_updates_are_found() -> None:
    """What is read and written is in place; what is only read is not."""
    found = work(
        kernels.add_in_place, grid=(8,), x_ptr=pointer(), y_ptr=pointer(), n=999, BLOCK=128
    )
    assert uses(found) == {"x_ptr": "RW", "y_ptr": "R"}


def test_stores_in_functions_that_are_not_inlined() -> None:
    """A store behind a call, in a loop, is the argument's."""
    found = work(
        kernels.noinline_helper, grid=(3,), x_ptr=pointer(), y_ptr=pointer(), n=5, BLOCK=64
    )
    assert uses(found) == {"x_ptr": "R", "y_ptr": "W"}
    assert moved(found, "write") == 3 * 5 * 2 * 64 * 4


@pytest.mark.parametrize("swap", [False, True])
def test_pointers_returned_by_calls(swap: bool) -> None:
    """A tuple of pointers comes back in the order of the function's return."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "n": 50, "SWAP": swap, "BLOCK": 64}
    found = work(kernels.tuple_helper, grid=(2,), **values)
    expected = {"x_ptr": "W", "y_ptr": "R"} if swap else {"x_ptr": "R", "y_ptr": "W"}
    assert uses(found) == expected


def test_pointers_that_change_places_are_both_written() -> None:
    """A store through a pointer that a loop swaps may go to either; bytes are shared."""
    found = work(kernels.pointer_chase, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), n=4, BLOCK=64)
    assert uses(found) == {"x_ptr": "W", "y_ptr": "W"}
    assert moved(found, "write") == 4 * 64 * 4
    assert use_of(found, "x_ptr").written_bytes == 2 * 64 * 4


def test_pointers_come_out_of_while_loops() -> None:
    """What is stored through after the loop is what went in."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "n": 9, "BLOCK": 64}
    found = work(kernels.pointer_while, grid=(1,), **values)
    assert uses(found) == {"x_ptr": "R", "y_ptr": "W"}
    assert not found.foreign_writes


def test_pointers_chosen_by_a_branch_are_both_updated() -> None:
    """Which of two arguments is updated depends on the program; names survive renaming."""
    found = work(kernels.branchy, grid=(8,), x_ptr=pointer(), y_ptr=pointer(), n=5, BLOCK=64)
    assert uses(found) == {"x_ptr": "RWA", "y_ptr": "RWA"}


def test_use_counts_where_this_launch_never_comes() -> None:
    """A store behind a condition that fails is a use, of no bytes."""
    found = work(kernels.early_return, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), n=0, BLOCK=64)
    assert uses(found) == {"x_ptr": "R", "y_ptr": "W"}
    assert moved(found, "write") == 0


def test_addresses_from_memory_belong_to_no_argument() -> None:
    """A store through an address from a table is foreign; the table is only read."""
    values = {"x_ptr": pointer(), "table_ptr": pointer(I64), "BLOCK": 64}
    found = work(kernels.address_in_integer, grid=(1,), **values)
    assert uses(found) == {"x_ptr": "R", "table_ptr": "R"}
    assert found.foreign_writes
    assert moved(found, "write") == found.unique_written_bytes == 64 * 4
    plain = work(kernels.softmax, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), cols=9, BLOCK=16)
    assert not plain.foreign_writes


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


def test_addresses_given_away_may_be_used_for_anything() -> None:
    """Inline assembly on a pointer, and a pointer stored as a number."""
    first = work(
        kernels.asm_on_pointer, grid=(1,), x_ptr=pointer(I32), y_ptr=pointer(I32), BLOCK=64
    )
    assert uses(first) == {"x_ptr": "RW?", "y_ptr": "W"}
    values = {"table_ptr": pointer(I64), "x_ptr": pointer(), "y_ptr": pointer(), "BLOCK": 64}
    second = work(kernels.addresses, grid=(1,), **values)
    assert uses(second) == {"table_ptr": "W", "x_ptr": "W", "y_ptr": "RW?"}


def test_unknown_operation_on_a_pointer_is_not_trusted() -> None:
    """An operation of a later release may read and write what it is given."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "cols": 9, "BLOCK": 16}
    text = lower(kernels.softmax, **values)
    place = text.index("tt.store")
    text = text[:place] + "tt.new_thing %x_ptr : !tt.ptr<f32>\n" + text[place:]
    assert uses(analyse(text, call((1,), **values))) == {"x_ptr": "RW?", "y_ptr": "W"}


def test_elements_have_the_size_of_memory() -> None:
    """Booleans and 8-bit floats take one byte."""
    values = {
        "x_ptr": pointer(torch.float8_e4m3fn),
        "m_ptr": pointer(torch.bool),
        "y_ptr": pointer(torch.float8_e5m2),
    }
    found = work(kernels.narrow_types, grid=(4,), **values, BLOCK=128)
    assert moved(found, "read") == 4 * 128 * 2
    assert moved(found, "write") == 4 * 128


def test_strides_tell_how_a_tile_lies() -> None:
    """Rows are read along memory; the transpose's store has neighbours M apart."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "M": 640, "N": 320, "BM": 32, "BN": 64}
    found = work(kernels.transposed, grid=(20, 5), **values)
    load, store = found.accesses
    assert load.strides == (320, 1)
    assert store.strides == (1, 640)


@pytest.mark.parametrize(("group", "rows"), [(16, Repeated(16, 640)), (64, 0)])
def test_quotients_repeat_an_element(group: int, rows: Repeated | int) -> None:
    """Neighbours that share a byte, a word or a scale are the same element; so may be a tile."""
    values = {
        "w_ptr": pointer(torch.int8),
        "s_ptr": pointer(),
        "z_ptr": pointer(I32),
        "y_ptr": pointer(),
    }
    sizes = {"K": 512, "N": 256, "stride_s": 640, "BK": 64, "BN": 32, "GROUP": group}
    packed, scale, zero, _ = work(kernels.packed_weights, grid=(8,), **values, **sizes).accesses
    assert packed.strides == (Repeated(2, 1), 256)
    assert scale.strides == (rows, 1)
    assert zero.strides == (rows and Repeated(16, 32), Repeated(8, 1))


def test_data_dependent_rows_keep_their_other_axis() -> None:
    """Rows by a table: unknown from row to row, contiguous within."""
    pointers = {"a_ptr": pointer(F16), "b_ptr": pointer(F16), "c_ptr": pointer(F16)}
    tables = dict.fromkeys(("token_ptr", "expert_ptr", "count_ptr"), pointer(I32))
    found = work(kernels.expert_gemm, grid=(10,), **pointers, **tables, K=512, **TILES)
    loads = [access for access in found.accesses if access.elements == 64 * 32]
    assert [access.strides for access in loads] == [(None, 1), (1, 512)]


def test_invariant_loads_leave_loops_that_write_nothing() -> None:
    """Triton moves such a load out; in a loop that writes it stays."""
    values = {"x_ptr": pointer(), "w_ptr": pointer(), "y_ptr": pointer(), "n": 10, "BLOCK": 64}
    outside = work(kernels.invariant_load, grid=(1,), **values)
    assert use_of(outside, "w_ptr").read_bytes == 64 * 4
    inside = work(kernels.repeated, grid=(1,), **values)
    assert use_of(inside, "w_ptr").read_bytes == 10 * 64 * 4


CASES = {
    "gemm": dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))
    | {"M": 300, "N": 200, "K": 100, **TILES},
    "persistent_gemm": dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), pointer(F16))
    | {"M": 512, "N": 512, "K": 100, **TILES},
    "attention": dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), pointer(F16))
    | {"N": 512, "scale": 0.1, "D": 64, "CAUSAL": True, "BM": 64, "BN": 32},
    "layernorm": dict.fromkeys(("x_ptr", "w_ptr", "y_ptr"), pointer())
    | {"cols": 1000, "eps": 1e-5, "BLOCK": 256},
    "triangular": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 20, "BLOCK": 64},
    "early_return": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 300, "BLOCK": 64},
    "tuple_helper": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 9, "SWAP": True, "BLOCK": 64},
    "branchy": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 5, "BLOCK": 64},
    "invariant_load": dict.fromkeys(("x_ptr", "w_ptr", "y_ptr"), pointer())
    | {"n": 10, "BLOCK": 64},
    "recurrence": dict.fromkeys(("x_ptr", "y_ptr", "h_ptr"), pointer()) | {"steps": 99, "D": 32},
    "asserted": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 5, "BLOCK": 64},
    "two_calls": {"x_ptr": pointer(), "y_ptr": pointer(), "n": 50, "BLOCK": 64},
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_front_end_text_gives_what_later_text_gives(name: str) -> None:
    """Triton's passes inline, fold and move code; loops, bytes, work and uses stay."""
    values = CASES[name]
    text = lower(getattr(kernels, name), **values)
    before, after = (analyse(each, call((8, 4), **values)) for each in (text, after_passes(text)))

    def facts(found: Work) -> object:
        floats = {kind: n for kind, n in found.elements.items() if not kind.startswith("integer")}
        accesses = sorted((a.kind, a.arguments, a.bytes, str(a.strides)) for a in found.accesses)
        return found.loops, flops(found), accesses, floats, uses(found), found.state

    assert facts(before) == facts(after)
