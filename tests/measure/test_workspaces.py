"""Outputs that depend on the config by construction, told from ordinary and from wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from asmtune.base.json_codec import to_json
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.compare import fill_poison
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.checks.tensors import tensor_arguments
from asmtune.measure.checks.workspaces import (
    SlotLayout,
    Workspace,
    WorkspaceComparison,
    workspaces_of,
)
from tests.interpreter import Interpreter
from tests.measure.workspace_cases import ORDINARY, WORKSPACES, Case
from tests.workload.workload_lowering import call, lower, pointer

CASES = {name: case for name, (case, _) in WORKSPACES.items()} | ORDINARY


def values_of(case: Case, name: str) -> dict[str, Any]:
    config = {n: value for n, value in case.configs[name].items() if n != "num_stages"}
    return {**dict.fromkeys(case.shapes, pointer()), **case.numbers, **config}


@lru_cache
def kernel_of(case_name: str, name: str) -> Kernel:
    case = CASES[case_name]
    return Kernel(lower(case.kernel, **values_of(case, name)))


def slots_in(case_name: str, name: str) -> ConfigSlots:
    """Where a config writes."""
    case = CASES[case_name]
    launch = call(case.programs(name), **values_of(case, name))
    return kernel_of(case_name, name).slots(launch)


def facts_of(case_name: str) -> dict[str, Any]:
    """Effects and slots of a case as JSON values."""
    case = CASES[case_name]
    values = values_of(case, "default")
    work = kernel_of(case_name, "default").work(call(case.programs("default"), **values))
    effects = Effects.of([work], values)
    named = {n: sorted(names) for n, names in vars(effects).items() if n != "foreign"}
    return {
        "effects": named,
        "slots": {name: to_json(slots_in(case_name, name)) for name in case.configs},
    }


@pytest.mark.parametrize("name", WORKSPACES)
def test_workspaces_are_recognised(name: str) -> None:
    """An argument with another number of slots is a workspace; all others of the kernel are not."""
    case, argument = WORKSPACES[name]
    default = slots_in(name, "default")
    assert workspaces_of(default, default) == {}
    for config in case.configs:
        if config not in ("default", "short"):
            assert list(workspaces_of(slots_in(name, config), default)) == [argument], config


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_outputs_are_not(name: str) -> None:
    """Tiles of any size, walks of any number of programs and grids that are too small are none."""
    default = slots_in(name, "default")
    for config in CASES[name].configs:
        if config != "apart":  # its slots are none of the default's, which the check shows
            assert workspaces_of(slots_in(name, config), default) == {}, config


def test_what_is_compared_is_said() -> None:
    """Sums that all programs scale alike are compared; maxima and means of a tile are not."""
    state = workspaces_of(slots_in("state", "wide"), slots_in("state", "default"))
    assert str(state["partial_ptr"]) == (
        "partial_ptr: workspace of each config (rows = programs along axis 0), compared by its sums"
    )
    summed = {}
    for name, (case, argument) in WORKSPACES.items():
        other = list(case.configs)[1]
        workspaces = workspaces_of(slots_in(name, other), slots_in(name, "default"))
        summed[name] = workspaces[argument].summed
    assert {name for name, one in summed.items() if not one} == {"maxima", "means"}


FLAWS = ("short", "hole", "short and wide", "overlapping", "apart")
DIFFER = {("walk", "short")}
"""Wrong configs that write all that they should."""


def verdict_due(name: str, config: str) -> str | None:
    """Return the kind of a config's failure; None of a right one."""
    if config not in FLAWS:
        return None
    return "wrong_output" if (name, config) in DIFFER else "unwritten"


@pytest.mark.slow(seconds=4)
def test_real_kernels_in_the_interpreter(interpreter: Interpreter) -> None:
    """Right configs pass whatever they write; holes, short grids and wrong strides do not."""
    facts = {name: facts_of(name) for name in CASES}
    results = interpreter.call("tests.measure.interpreted_workspaces:all_verdicts", facts)
    for name, case in CASES.items():
        due = {config: verdict_due(name, config) for config in case.configs}
        assert results[name]["verdicts"] == due, name
        said = [note for note in results[name]["notes"] if "workspace" in note]
        assert len(said) == (name in WORKSPACES), said
        assert results[name]["kept"]


def parts_checker(buffer: Tensor, **options: Any) -> OutputChecker:
    """A checker of `strided_partials` whose launches are plain functions."""
    effects = Effects(reads=frozenset({"x_ptr"}), writes=frozenset({"partial_ptr"}))
    arguments = {"partial_ptr": buffer, "x_ptr": X}
    return OutputChecker(arguments, effects, CheckOptions(**options))


X = torch.randn(5, 250, generator=torch.Generator().manual_seed(1))


def parts(buffer: Tensor, count: int, block: int) -> Tensor:
    """Write the sums of each row's parts; return them."""
    padded = torch.nn.functional.pad(X, (0, count * block - X.shape[1]))
    sums = padded.reshape(5, count, block).sum(2)
    buffer[: 5 * count] = sums.reshape(-1).to(buffer.dtype)
    return buffer[: 5 * count]


def void(run: Callable[[], object]) -> None:
    run()


def verdict(
    checker: OutputChecker, run: Callable[[], object], config: str = "wide"
) -> tuple[str, str] | None:
    """Kind and detail of a config's failure."""
    failure = checker.check(lambda: void(run), slots=slots_in("parts", config))
    return None if failure is None else (failure.kind, failure.detail)


def default_of(checker: OutputChecker, run: Callable[[], object]) -> None:
    slots = slots_in("parts", "default")
    assert checker.set_reference(lambda: void(run), slots=slots) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_of_other_slots_are_compared(dtype: torch.dtype) -> None:
    """A sum that is wrong, or not finite, or a part that is missing or one too many, is seen."""
    buffer, spare = torch.zeros(2, 40, dtype=dtype)
    with parts_checker(buffer) as checker:
        default_of(checker, lambda: parts(buffer, 4, 64))
        assert verdict(checker, lambda: parts(buffer, 2, 128)) is None
        wrong = verdict(checker, lambda: parts(buffer, 2, 128)[3:4].add_(8.0))
        assert wrong[0] == "wrong_output"
        assert "1 of 5 sums over the slots of partial_ptr differ" in wrong[1]
        infinite = verdict(checker, lambda: parts(buffer, 2, 128)[3:4].fill_(math.nan))
        assert infinite == ("wrong_output", "1 elements of partial_ptr are NaN or infinite")
        hole = verdict(checker, lambda: buffer[:9].copy_(parts(spare, 2, 128)[:9]))
        assert hole[0] == "unwritten"
        beyond = verdict(checker, lambda: (parts(buffer, 2, 128), buffer[20:].zero_()))
        assert beyond == (
            "stray_write",
            "20 elements of partial_ptr outside this config's slots are written",
        )


def test_what_cancels_is_compared_by_its_parts() -> None:
    """Sums near 0 of large parts may differ by what their parts are rounded to."""
    buffer = torch.zeros(40)

    def run(count: int, error: float) -> None:
        buffer[: 5 * count] = torch.tensor([1e6, -1e6]).repeat(5 * count // 2)
        buffer[0] += error

    with parts_checker(buffer) as checker:
        default_of(checker, lambda: run(4, 0.0))
        assert verdict(checker, lambda: run(2, 50.0)) is None
        assert verdict(checker, lambda: run(2, 5000.0)) is not None


def test_sums_of_many_parts_are_held_to_less() -> None:
    """The errors of four parts together are half of those of one, relative to their magnitude."""
    buffer = torch.zeros(40)

    def run(count: int, error: float) -> None:
        buffer[: 5 * count] = 1.0 * 4 / count
        buffer[0] += error

    with parts_checker(buffer, tolerance=0.1) as checker:
        default_of(checker, lambda: run(4, 0.0))
        assert verdict(checker, lambda: run(8, 0.3), "narrow") is None
        assert verdict(checker, lambda: run(8, 0.5), "narrow") is not None


def test_a_buffer_that_a_hook_fills() -> None:
    """Where a config's `pre_hook` zeroes all of a workspace, its sums show what is missing."""
    buffer = torch.full((40,), 3.0)

    def hooked(run: Callable[[], object]) -> Callable[[], object]:
        return lambda: (buffer.zero_(), run())

    with parts_checker(buffer) as checker:
        default_of(checker, hooked(lambda: parts(buffer, 4, 64)))
        assert verdict(checker, hooked(lambda: parts(buffer, 2, 128))) is None
        missing = verdict(checker, hooked(lambda: parts(buffer, 2, 128)[3:4].zero_()))
        assert missing[0] == "wrong_output"
        # Without its hook the rest stays as it was, and the caller may read it.
        unhooked = verdict(checker, lambda: parts(buffer, 2, 128))
        assert unhooked is not None
    assert buffer.eq(3.0).all()


@pytest.mark.parametrize("options", [{"bits_equal": True}, {"reference": True}])
def test_elements_are_compared_where_the_user_says_what_they_are(options: dict[str, Any]) -> None:
    """Equal bits, or the values of a reference, are no matter of sums."""
    buffer = torch.zeros(40)
    expected = buffer.clone()
    parts(expected, 4, 64)
    if "reference" in options:
        options = {"reference": lambda _: expected}
    with parts_checker(buffer, **options) as checker:
        default_of(checker, lambda: parts(buffer, 4, 64))
        failure = verdict(checker, lambda: parts(buffer, 2, 128))
        assert failure is not None
        assert checker.notes == ()


def test_a_default_that_writes_otherwise_than_its_ir_says() -> None:
    """Its elements are compared, one by one: no config then passes by its slots."""
    buffer = torch.zeros(40)
    with parts_checker(buffer) as checker:
        default_of(checker, lambda: buffer[1:20].zero_())
        failure = verdict(checker, lambda: parts(buffer, 2, 128))
        assert failure is not None
        assert not any("workspace" in note for note in checker.notes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "int32", "int64", "uint8"])
def test_what_no_program_writes_is_not_compared(dtype: str) -> None:
    """Slots that are padded alike in both configs hold poison between what is written."""
    buffer = torch.empty(8, 8, dtype=getattr(torch, dtype))
    ((tensor,), _) = tensor_arguments({"partial_ptr": buffer})
    fill_poison(tensor)
    expected = buffer.clone()
    expected[:2, :5] = 6
    layouts = SlotLayout(4, 8, 0), SlotLayout(2, 8, 0)
    workspace = Workspace("partial_ptr", "x", *layouts, True)
    compared = WorkspaceComparison(workspace, tensor, lambda _: expected.view(-1), poisoned=True)
    buffer[:4, :5] = 3
    assert compared.applies()
    assert compared.failure(1e-3) is None
    buffer[1, 2] = 7
    assert compared.failure(1e-3) is not None
