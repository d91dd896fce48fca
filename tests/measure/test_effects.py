"""Effects of kernels that reach their memory in every way, read off real TTIR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import effect_kernels as kernels
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.ir.ttir.work import Work
from asmtune.measure.checks.effects import Effects, tensor_parts
from tests.workload.workload_lowering import F32, I32, I64, pointer, work


def of(kernel: Any, /, **values: Any) -> Effects:
    """Effects of one config."""
    return Effects.of([work(kernel, grid=(2,), **values)], values)


def letters(effects: Effects, values: dict[str, Any]) -> dict[str, str]:
    """R, W, A and ? of each tensor argument."""
    sets = {"R": effects.reads, "W": effects.writes, "A": effects.atomics, "?": effects.unknown}
    return {
        name: "".join(letter for letter, names in sets.items() if name in names)
        for name in tensor_parts(values)
    }


def host_descriptor() -> TensorDescriptor:
    tensor = torch.empty(64, 64, device="meta", dtype=F32)
    return TensorDescriptor(tensor, [64, 64], [64, 1], [64, 64])


P, INT, LONG = pointer(), pointer(I32), pointer(I64)
PAIR = {"pair": (host_descriptor(), host_descriptor())}
SIZES = {"M": 64, "N": 64}
ALL_OF_TABLE = dict.fromkeys(("table_ptr", "x_ptr", "out_ptr"), "RW?")
CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    (kernels.add, {"n": 100}, {"x_ptr": "R", "y_ptr": "R", "out_ptr": "W"}),
    (kernels.scale_in_place, {"n": 100}, {"x_ptr": "RW"}),
    (kernels.sum_into, {"n": 100, "SPLIT": 2}, {"x_ptr": "R", "total_ptr": "RWA"}),
    (kernels.locked, {"lock_ptr": INT}, {"lock_ptr": "RWA", "x_ptr": "RW"}),
    (kernels.carried, {"n": 9}, {"x_ptr": "W", "y_ptr": "W"}),
    (kernels.chosen, {"n": 9}, {"x_ptr": "W", "y_ptr": "W", "z_ptr": "R"}),
    (kernels.in_a_call, {}, {"x_ptr": "W", "y_ptr": "RW", "z_ptr": "R"}),
    (kernels.described, {**SIZES, "REDUCE": False}, {"x_ptr": "R", "y_ptr": "W"}),
    (kernels.described, {**SIZES, "REDUCE": True}, {"x_ptr": "R", "y_ptr": "RWA"}),
    (kernels.host_described_pair, PAIR, {"pair.0": "R", "pair.1": "W"}),
    (kernels.asm, {"x_ptr": INT, "y_ptr": INT}, {"x_ptr": "RW?", "y_ptr": "W"}),
    # What lies behind an address may be any of the arguments.
    (
        kernels.store_by_table,
        {"table_ptr": LONG},
        ALL_OF_TABLE,
    ),
    (kernels.load_by_table, {"table_ptr": LONG}, {"table_ptr": "R", "out_ptr": "RW"}),
    (kernels.store_by_number, {"address": 1 << 40}, {"x_ptr": "RW?"}),
    *(
        (kernels.third_of_tuple, {"tensors": (P, other, P)}, {"tensors.0": "R", "tensors.2": "W"})
        for other in (1, None, 7)
    ),
]


@pytest.mark.parametrize(("kernel", "given", "expected"), CASES)
def test_every_road_to_memory_is_seen(
    kernel: Any, given: dict[str, Any], expected: dict[str, str]
) -> None:
    """Whatever way an address takes, its argument is known as read, written, updated or unknown."""
    usual = {name: 64 if name == "BLOCK" else P for name in kernel.arg_names}
    values = usual | given
    effects = of(kernel, **values)
    assert letters(effects, values) == expected
    assert effects.foreign == (kernel in (kernels.store_by_table, kernels.store_by_number))


def test_effects_are_those_of_any_config() -> None:
    """A constexpr that makes an atomic of a store makes the argument read as well, for all."""
    values = {"x_ptr": P, "total_ptr": P, "n": 100}
    one, two = (
        work(kernels.sum_into, grid=(2,), **values, BLOCK=64, SPLIT=split) for split in (1, 2)
    )
    arguments = {**values, "BLOCK": 64}
    assert letters(Effects.of([one], arguments), values) == {"x_ptr": "R", "total_ptr": "W"}
    expected = {"x_ptr": "R", "total_ptr": "RWA"}
    assert letters(Effects.of([one, two], arguments), values) == expected
    assert Effects.of([two, one, one], arguments) == Effects.of([one, two], arguments)


def test_what_the_default_leaves_alone_is_scratch() -> None:
    """What only other configs write, as the parts of a split sum, is told from the outputs."""
    values = {"x_ptr": P, "y_ptr": P, "out_ptr": P, "n": 100}
    arguments = {**values, "BLOCK": 64}
    own = work(kernels.add, grid=(2,), **values, BLOCK=64)
    other = work(kernels.scale_in_place, grid=(2,), x_ptr=P, n=100, BLOCK=64)
    effects = Effects.of([own, other], arguments)
    # y_ptr is no parameter of the other kernel, so that all may become of it there.
    assert effects.beside([own], arguments).scratch == {"x_ptr", "y_ptr"}
    assert effects.beside([own, other], arguments).scratch == frozenset()
    # Of a default that could not be read nothing is known, and so nothing is scratch.
    assert effects.beside([], arguments).scratch == frozenset()


def test_what_could_not_be_read_may_do_anything() -> None:
    """One config of unknown work, or none at all, makes every tensor read and written."""
    values = {"x_ptr": P, "y_ptr": P, "out_ptr": P, "n": 100, "pair": (P, 3)}
    known = work(kernels.add, grid=(2,), x_ptr=P, y_ptr=P, out_ptr=P, n=100, BLOCK=64)
    everything = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr", "pair.0"), "RW?")
    assert letters(Effects.of([known, Work.unread((1, 1, 1))], values), values) == everything
    assert letters(Effects.of([], values), values) == everything


@pytest.mark.parametrize("name", ["", "z_ptr"])
def test_a_use_without_a_name_may_be_anyones(name: str) -> None:
    """One argument that neither text nor caller names makes every tensor read and written."""
    values = {"x_ptr": P, "y_ptr": P, "out_ptr": P, "n": 100, "BLOCK": 64}
    found = work(kernels.add, grid=(2,), **values)
    *others, out = found.arguments
    strange = replace(found, arguments=(*others, replace(out, name=name)))
    everything = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "RW?")
    assert letters(Effects.of([strange], values), values) == everything


def test_a_tensor_that_the_work_does_not_show_is_not_trusted() -> None:
    """A tensor argument without a use in a work is unknown; the others keep theirs."""
    values = {"x_ptr": P, "n": 100, "BLOCK": 64}
    found = work(kernels.scale_in_place, grid=(2,), **values)
    more = {**values, "extra": P}
    assert letters(Effects.of([found], more), more) == {"x_ptr": "RW", "extra": "RW?"}


def test_parts_that_do_not_match_share_their_uses() -> None:
    """Where a tuple has more tensors than the text has uses of it, each counts for all."""
    values = {"tensors": (P, 7, P), "BLOCK": 64}
    found = work(kernels.third_of_tuple, grid=(2,), **values)
    more = {"tensors": (P, P, P)}
    assert letters(Effects.of([found], more), more) == dict.fromkeys(tensor_parts(more), "RW")


@pytest.mark.parametrize(("precision", "expected"), [("tf32", "tf32"), ("ieee", "f32")])
def test_products_tell_what_they_round_to(precision: str, expected: str) -> None:
    """A product of 32-bit floats that are rounded first is told from one that is exact."""
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), P)
    assert of(kernels.product, **pointers, BLOCK=64, PRECISION=precision).products == {expected}


def test_edited_code_may_write_anywhere() -> None:
    """What the IR does not write is stray then; what it does with the others stays as it was."""
    values = {"x_ptr": P, "y_ptr": P, "out_ptr": P, "n": 100, "BLOCK": 64}
    plain = of(kernels.add, **values)
    edited = plain.with_strays(values)
    assert plain.stray == frozenset()
    assert edited.stray == {"x_ptr", "y_ptr"}
    assert replace(edited, stray=frozenset()) == plain
