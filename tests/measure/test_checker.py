"""Configs run on the user's own arguments: contents come back, wrong outputs are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.records.artifacts import Failure
from asmtune.measure.accuracy import Bound
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from tests.interpreter import Interpreter
from tests.measure import effect_kernels as kernels
from tests.workload.workload_lowering import pointer, work

Run = Callable[[], None]


def effects(reads: str = "", writes: str = "", atomics: str = "", unknown: str = "") -> Effects:
    """Effects of arguments named by words."""
    sets = [frozenset(words.split()) for words in (reads, writes, atomics, unknown)]
    return Effects(*sets)


def checker_of(arguments: Mapping[str, Any], found: Effects, **options: Any) -> OutputChecker:
    return OutputChecker(arguments, found, CheckOptions(**options))


def vectors(n: int = 1000) -> dict[str, Tensor]:
    """Two inputs, and an output that holds the right answer already."""
    x, y = torch.randn(2, n, generator=torch.Generator().manual_seed(1))
    return {"x": x, "y": y, "out": x + y}


ADD = effects("x y", "out")


def add(tensors: Mapping[str, Tensor]) -> Run:
    """A kernel that is right."""
    return lambda: tensors["out"].copy_(tensors["x"] + tensors["y"])


def kind(failure: Failure | None) -> str | None:
    return None if failure is None else f"{failure.kind} at {failure.stage}"


def test_a_right_config_passes_and_others_do_not() -> None:
    """The same sum passes; one wrong element, one element not written, or nothing, does not."""
    tensors = vectors()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    x, y, out = tensors.values()

    def wrong() -> None:
        out.copy_(x + y)
        out[17] += 0.01

    with checker_of(tensors, ADD) as checker:
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(add(tensors)) is None
        assert checker.check(lambda: torch.add(x, y, out=out)) is None
        assert kind(checker.check(wrong)) == "wrong_output at check"
        assert kind(checker.check(lambda: out[:-1].copy_((x + y)[:-1]))) == "unwritten at check"
        failure = checker.check(lambda: None)
        assert failure == Failure(
            "check",
            "unwritten",
            "1,000 of 1,000 elements of out stay unwritten, unlike in the default config",
        )
        assert checker.notes == ()
    assert all(torch.equal(tensors[name], before[name]) for name in before)


def test_a_bound_is_on_the_errors_in_the_reference_s_precision() -> None:
    """An output of bf16 is measured against fp64; one within the bound passes, with its error.

    Integers, elements that stay unwritten and NaN where none is expected fail as ever.
    """
    exact = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out, whole = torch.zeros(1000, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.int8)
    tensors = {"out": out, "n": whole}

    def writes(values: Tensor, count: int = 3) -> Run:
        def run() -> None:
            out[: len(values)].copy_(values)
            whole.fill_(count)

        return run

    def reference(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"out": exact, "n": torch.full((4,), 3, dtype=torch.int8)}

    found, limits = effects("", "out n"), {"reference": reference, "accuracy": Bound(p99=5e-3)}
    with checker_of(tensors, found, **limits) as checker:
        assert checker.set_reference(writes(exact)) is None
        assert 1e-3 < (checker.error or 0.0) < 4e-3, "rounding to 8 bits"
        assert checker.check(writes(exact * 1.001)) is None
        failure = checker.check(writes(exact * 1.02))
        assert kind(failure) == "inaccurate at check"
        assert "out breaks the bound against reference=: p99 0.02" in str(failure)
        assert kind(checker.check(writes(exact, 4))) == "wrong_output at check"
        assert kind(checker.check(writes(exact[:-1]))) == "unwritten at check"
        spoilt = exact.clone()
        spoilt[7] = torch.nan
        assert "nonfinite 1 > 0" in str(checker.check(writes(spoilt)))
    with checker_of(tensors, found, **{**limits, "accuracy": Bound(p99=1e-4)}) as strict:
        assert kind(strict.set_reference(writes(exact))) == "inaccurate at check"


def test_what_is_not_written_is_in_no_error() -> None:
    """Elements that neither the default nor the reference writes count as equal."""
    out = torch.ones(100)
    half = torch.arange(50.0)

    def reference(values: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([half, values["out"][50:]]).double()

    options = {"reference": reference, "accuracy": Bound(max_abs=0.0)}
    with checker_of({"out": out}, effects("", "out"), **options) as checker:
        assert checker.set_reference(lambda: out[:50].copy_(half)) is None
        assert checker.check(lambda: out[:50].copy_(half)) is None
        assert checker.error == 0.0
        assert "nonfinite" in str(checker.check(lambda: out[:51].copy_(torch.ones(51))))


def test_what_comes_after_a_launch_comes_after_the_look() -> None:
    """It is called once a launch that ran, and hides neither a right output nor a wrong one."""
    tensors = vectors()
    finished = 0

    def finish() -> None:
        nonlocal finished
        finished += 1
        tensors["out"].zero_()

    def fails() -> None:
        raise RuntimeError("no launch")

    with checker_of(tensors, ADD) as checker:
        assert checker.set_reference(add(tensors), finish) is None
        assert finished == 2
        assert checker.check(add(tensors), finish) is None
        assert kind(checker.check(lambda: None, finish)) == "unwritten at check"
        assert finished == 4
        assert kind(checker.check(fails, finish)) == "compiler at launch"
        assert finished == 4
        assert kind(checker.check(add(tensors), fails)) == "compiler at launch"
    with checker_of(tensors, ADD, check=False) as unchecked:
        assert unchecked.set_reference(add(tensors), finish) is None
        assert unchecked.check(add(tensors), finish) is None
    assert finished == 6


@pytest.mark.parametrize("told", [False, True])
def test_a_stray_write_to_an_input_is_found(told: bool) -> None:
    """Where code was edited by hand its inputs are held to what they held, and put back."""
    tensors = vectors() | {"idle": torch.ones(8)}
    before = tensors["x"].clone()
    options = {"reference": lambda values: values["x"] + values["y"]} if told else {}

    def scribbles() -> None:
        add(tensors)()
        tensors["x"][3] = 9.0

    def spoils_the_idle() -> None:
        add(tensors)()
        tensors["idle"][3] = 9.0

    with checker_of(tensors, ADD.with_strays(tensors), **options) as checker:
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(add(tensors)) is None
        failure = checker.check(scribbles)
        assert kind(failure) == "wrong_output at check"
        assert "x" in str(failure)
        assert checker.check(add(tensors)) is None
        failure = checker.check(spoils_the_idle)
        assert "idle" in str(failure)
        assert checker.notes == ()
    assert torch.equal(tensors["x"], before)
    assert torch.equal(tensors["idle"], torch.ones(8))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float8_e4m3fn])
def test_outputs_of_other_types_are_poisoned_too(dtype: torch.dtype) -> None:
    """Whatever the type, an output that is right already does not excuse writing nothing."""
    tensors = {"x": (torch.arange(64) % 2).to(dtype), "out": (torch.arange(64) % 2).to(dtype)}
    right = lambda: tensors["out"].copy_(tensors["x"])  # noqa: E731
    with checker_of(tensors, effects("x", "out")) as checker:
        assert checker.set_reference(right) is None
        assert checker.check(right) is None
        assert kind(checker.check(lambda: None)) == "unwritten at check"


def test_elements_that_nobody_writes_are_left_out() -> None:
    """A kernel that fills a part is right if it fills that part, and wrong if it fills more."""
    out = torch.zeros(100)
    with checker_of({"out": out}, effects(writes="out")) as checker:
        assert checker.set_reference(lambda: out[:50].fill_(1)) is None
        assert checker.check(lambda: out[:50].fill_(1)) is None
        assert kind(checker.check(lambda: out.fill_(1))) == "wrong_output at check"
        failure = checker.check(lambda: out[:40].fill_(1))
        assert failure is not None
        assert failure.detail.startswith("10 of 100 elements of out stay unwritten")
    assert out.tolist() == [0] * 100


def test_nan_everywhere_does_not_pass_for_anything() -> None:
    """Where the default's output is all NaN, NaN is right, and nothing or a number is not."""
    tensors = {"x": torch.full((50,), math.nan), "out": torch.zeros(50)}
    right = lambda: tensors["out"].copy_(tensors["x"])  # noqa: E731
    with checker_of(tensors, effects("x", "out")) as checker:
        assert checker.set_reference(right) is None
        assert checker.check(right) is None
        assert kind(checker.check(lambda: None)) == "unwritten at check"
        assert kind(checker.check(lambda: tensors["out"].fill_(1))) == "wrong_output at check"
        assert "out is 0, NaN or infinite everywhere" in checker.notes[0]


def test_a_run_finds_what_the_first_one_found() -> None:
    """Before every run, what is read and written holds its first contents, timed or not."""
    x = torch.arange(10.0)
    seen = []

    def double() -> None:
        seen.append(x.tolist())
        x.mul_(2)

    with checker_of({"x": x}, effects("x", "x")) as checker:
        assert checker.set_reference(double) is None
        assert checker.check(double) is None
        for _ in range(3):
            checker.prepare()
            double()
        assert kind(checker.check(lambda: x.mul_(3))) == "wrong_output at check"
        assert kind(checker.check(lambda: None)) == "wrong_output at check"
    assert seen == [x.tolist()] * 6
    assert x.tolist() == list(range(10))


@pytest.mark.parametrize("found", [effects(atomics="x"), effects(unknown="x")])
def test_atomics_and_unknown_uses_read_and_write(found: Effects) -> None:
    """An argument that is updated atomically, or may be anything, keeps its contents too."""
    x = torch.arange(10.0)
    with checker_of({"x": x}, found) as checker:
        assert checker.set_reference(lambda: x.add_(1)) is None
        assert checker.check(lambda: x.add_(1)) is None
        assert kind(checker.check(lambda: x.add_(2))) == "wrong_output at check"
    assert x.tolist() == list(range(10))


def test_one_tensor_as_two_arguments_is_read_and_written() -> None:
    """What one argument writes another reads: contents come back, and no poison is read."""
    x = torch.arange(10.0)
    with checker_of({"x": x, "out": x}, effects("x", "out")) as checker:
        assert checker.set_reference(lambda: x.mul_(2)) is None
        assert checker.check(lambda: x.mul_(2)) is None
        checker.prepare()
        assert x.tolist() == list(range(10))
    assert x.tolist() == list(range(10))


def test_views_that_share_elements_are_read_and_written() -> None:
    """Of a shifted copy in place, the second run finds what the first found."""
    memory = torch.arange(100.0)
    source, target = memory[:99], memory[1:]
    with checker_of({"x": source, "out": target}, effects("x", "out")) as checker:
        shift = lambda: target.copy_(source.clone())  # noqa: E731
        assert checker.set_reference(shift) is None
        assert checker.check(shift) is None
        checker.prepare()
        assert memory.tolist() == list(range(100))
    assert memory.tolist() == list(range(100))


def test_views_that_alternate_are_no_obstacle_to_poison() -> None:
    """Input and output in one packed tensor share no element: the output is poisoned, no more."""
    packed = torch.randn(20, 3, 8, generator=torch.Generator().manual_seed(1))
    before = packed.clone()
    q, k, out = packed.unbind(1)
    out.copy_(q + k)
    filled = packed.clone()
    right = lambda: out.copy_(q + k)  # noqa: E731
    with checker_of({"q": q, "k": k, "out": out}, effects("q k", "out")) as checker:
        assert checker.set_reference(right) is None
        assert checker.check(right) is None
        assert torch.equal(packed[:, :2], before[:, :2])
        assert kind(checker.check(lambda: None)) == "unwritten at check"
    assert torch.equal(packed, filled)


def test_memory_between_rows_is_checked_and_given_back() -> None:
    """A config that writes into the padding of rows is wrong, though its elements are right."""
    memory = torch.zeros(10, 16)
    out = memory[:, :12]

    def too_far() -> None:
        out.fill_(1)
        memory[4, 13] = 5

    with checker_of({"out": out}, effects(writes="out")) as checker:
        assert checker.set_reference(lambda: out.fill_(1)) is None
        assert checker.check(lambda: out.fill_(1)) is None
        failure = checker.check(too_far)
        assert kind(failure) == "stray_write at check"
        assert failure is not None
        assert "between the elements of out" in failure.detail
        assert memory[4, 13] == 0
        # Elements that differ within their tolerance are no stray writes.
        assert checker.check(lambda: out.fill_(1 + 1e-6)) is None
        assert memory[4, 13] == 0
    assert not memory.any()


def test_the_users_word_comes_first() -> None:
    """What is to be restored is not poisoned, and what is to be zero is zero at every run."""
    total, x = torch.full((4, 6), 7.0)[:, 1:5], torch.ones(5)
    seen = []

    def run() -> None:
        seen.append((total.sum().item(), x.sum().item()))
        total.add_(1)
        x.add_(1)

    options = {"restore_value": ("x",), "reset_to_zero": ("total",)}
    with checker_of({"total": total, "x": x}, effects(writes="total x"), **options) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        checker.prepare()
        run()
        assert kind(checker.check(lambda: None)) == "wrong_output at check"
    assert seen == [(0, 5)] * 4
    assert total.tolist() == [[7] * 4] * 4
    assert x.tolist() == [1] * 5


def test_what_is_restored_is_checked_though_the_ir_shows_no_write() -> None:
    """An argument that the user names is kept and compared, whatever the IR says."""
    x = torch.ones(5)
    with checker_of({"x": x}, effects("x"), restore_value=("x",)) as checker:
        assert checker.set_reference(lambda: None) is None
        assert kind(checker.check(lambda: x.fill_(2))) == "wrong_output at check"
        checker.prepare()
        assert x.tolist() == [1] * 5


@pytest.mark.parametrize("option", ["restore_value", "reset_to_zero"])
@pytest.mark.parametrize("name", ["z", "n", "pair.2", "x.0", ""])
def test_names_of_no_tensor_are_refused(option: str, name: str) -> None:
    """A name that is no argument, or none with a tensor, is an error that lists the tensors."""
    arguments = {"x": torch.ones(3), "n": 3, "pair": (torch.ones(2), 4, torch.ones(2))}
    good = name if name == "pair.2" else "pair"
    checker_of(arguments, effects(), **{option: (good, "x")}).close()
    if name != "pair.2":
        with pytest.raises(InputError, match=rf"{option}= names {name}.*x, pair.0, pair.2"):
            checker_of(arguments, effects(), **{option: ("x", name)})


def noisy(out: Tensor, scale: float) -> Run:
    """A kernel that adds in another order each time."""
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        out.copy_(torch.arange(1.0, 101) * (1 + scale * torch.rand(100, generator=generator)))

    return run


def test_what_differs_between_runs_widens_the_tolerance() -> None:
    """A default that is off by a hundredth each time lets others be so too, and no further."""
    out = torch.zeros(100)
    with checker_of({"out": out}, effects(atomics="out")) as checker:
        run = noisy(out, 0.01)
        assert checker.set_reference(run) is None
        assert [checker.check(run) for _ in range(20)] == [None] * 20
        assert "out differs between runs of the default config by up to 0.00" in checker.notes[0]
        assert kind(checker.check(noisy(out, 0.3))) == "wrong_output at check"


def test_bits_equal() -> None:
    """With bits_equal one bit, also the sign of a zero or a NaN's payload, makes a config fail."""
    tensors = vectors()
    right = tensors["x"] + tensors["y"]
    right[0], right[1] = 0.0, math.nan
    payload = right.clone()
    payload.view(torch.int32)[1] ^= 1
    nearly = [
        torch.nextafter(right, right + 1),
        torch.where(right == 0, -right, right),
        payload,
    ]

    def write(values: Tensor) -> Run:
        return lambda: tensors["out"].copy_(values)

    for exact in (False, True):
        with checker_of(tensors, ADD, bits_equal=exact) as checker:
            assert checker.set_reference(write(right)) is None
            assert checker.check(write(right)) is None
            for values in nearly:
                found = checker.check(write(values))
                assert kind(found) == ("wrong_output at check" if exact else None)
                assert not exact or "check='bits' allows no bit to differ" in str(found)


def test_bits_equal_of_an_unsteady_default() -> None:
    """Where two runs of the default differ in their bits no config passes, and a note says why."""
    tensors = vectors(100)
    with checker_of(tensors, ADD, bits_equal=True) as checker:
        assert checker.set_reference(noisy(tensors["out"], 1e-6)) is None
        found = checker.check(lambda: tensors["out"].copy_(tensors["x"]))
        assert kind(found) == "wrong_output at check"
        assert "differs in its bits between two runs of the default" in str(found)
        assert any("leave check='bits' out" in note for note in checker.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_garbage_is_not_checked(dtype: torch.dtype) -> None:
    """An argument that holds something else after each run is left alone, and a note says so."""
    tensors = {"out": torch.zeros(100, dtype=dtype), "junk": torch.zeros(100, dtype=dtype)}
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        tensors["out"].fill_(3)
        tensors["junk"].copy_(1000 * torch.randn(100, generator=generator))

    with checker_of(tensors, effects(writes="out junk")) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        assert ["junk is not checked" in note for note in checker.notes] == [True]
        assert kind(checker.check(lambda: tensors["junk"].fill_(1))) == "unwritten at check"


def test_integers_may_differ_as_far_as_two_runs_do() -> None:
    """Counters that vary by one a run may vary by a few, and not by many."""
    out = torch.zeros(50, dtype=torch.int32)
    runs = iter(range(100))
    with checker_of({"out": out}, effects(atomics="out")) as checker:
        assert checker.set_reference(lambda: out.fill_(100 + next(runs) % 2)) is None
        assert checker.check(lambda: out.fill_(102)) is None
        assert kind(checker.check(lambda: out.fill_(120))) == "wrong_output at check"


def test_tolerance_is_the_users() -> None:
    """A tolerance given stands for the dtype's, tighter or wider, for integers as well."""
    for dtype, allowed, passes in [
        (torch.float32, None, False),
        (torch.float32, 0.1, True),
        (torch.float32, 1e-9, False),
        (torch.int32, None, False),
        (torch.int32, 0.1, True),
    ]:
        out = torch.zeros(50, dtype=dtype)
        with checker_of({"out": out}, effects(writes="out"), tolerance=allowed) as checker:
            assert checker.set_reference(lambda out=out: out.fill_(100)) is None
            assert (checker.check(lambda out=out: out.fill_(101)) is None) == passes


def test_a_reference_is_what_configs_are_held_to() -> None:
    """It gets clones with the contents at the start; a default that differs is a failure."""
    tensors = vectors()
    x, y, out = tensors.values()
    original = out.clone()
    given: list[Mapping[str, Any]] = []

    def reference(arguments: Mapping[str, Any]) -> Tensor:
        given.append({name: tensor.clone() for name, tensor in arguments.items()})
        made = (arguments["x"].double() + arguments["y"].double()).float()
        for tensor in arguments.values():
            tensor.zero_()
        return made

    with checker_of(tensors, ADD, reference=reference) as checker:
        failure = checker.set_reference(lambda: out.copy_(x - y))
        assert kind(failure) == "wrong_output at check"
        assert failure is not None
        assert "elements of out differ from reference=" in failure.detail
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(add(tensors)) is None
        failure = checker.check(lambda: out.copy_(x - y))
        assert failure is not None
        assert "differ from reference=" in failure.detail
    assert len(given) == 2
    assert all(torch.equal(arguments["out"], original) for arguments in given)
    assert torch.equal(given[0]["x"], x)
    assert x.any()


def test_a_reference_may_leave_what_nobody_writes() -> None:
    """Elements that keep their contents need no writing; those that change do."""
    out = torch.arange(10.0)

    def reference(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
        made = arguments["out"]
        made[:5] = 1
        return {"out": made}

    with checker_of({"out": out}, effects(writes="out"), reference=reference) as checker:
        assert checker.set_reference(lambda: out[:5].fill_(1)) is None
        assert checker.check(lambda: out[:5].fill_(1)) is None
        assert kind(checker.check(lambda: out[:4].fill_(1))) == "unwritten at check"
        assert kind(checker.set_reference(lambda: out[:4].fill_(1))) == "unwritten at check"


@pytest.mark.parametrize("array", [lambda t: t, lambda t: t.numpy(), lambda t: t.double()])
def test_a_reference_need_not_name_all_outputs(array: Any) -> None:
    """What it does not name is not compared, and a note says so; arrays will do."""
    tensors = {"a": torch.zeros(8), "b": torch.zeros(2, 4, dtype=torch.complex64)}

    def run(a: float = 1, b: complex = 2) -> None:
        tensors["a"].fill_(a)
        tensors["b"].fill_(b)

    options = {"reference": lambda _: {"a": array(torch.full((8,), 1.0)), "n": 3}}
    with checker_of({**tensors, "n": 3}, effects(writes="a b"), **options) as checker:
        assert checker.set_reference(run) is None
        assert checker.notes == ("b is not checked: reference= does not name it",)
        found = [kind(checker.check(lambda a=a, b=b: run(a, b))) for a, b in [(5, 2), (1, 2j)]]
    assert found == ["wrong_output at check", None]


def test_a_reference_in_parts_of_tuples_and_numbers() -> None:
    """Complex numbers, and tensors inside tuples, are told by the names that they have."""
    tensors = (3, torch.zeros(2, 3, dtype=torch.complex64), torch.zeros(4, dtype=torch.bool))
    right = {"t": (3, torch.full((2, 3), 1 - 2j), torch.ones(4, dtype=torch.bool))}

    def run(number: complex = 1 - 2j) -> None:
        tensors[1].fill_(number)
        tensors[2].fill_(True)

    found = effects(writes="t.1 t.2")
    with checker_of({"t": tensors}, found, reference=lambda _: right) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        failure = checker.check(lambda: run(1 + 2j))
        assert failure is not None
        assert "12 elements of t.1 differ from reference=" in failure.detail


def test_scratch_that_the_default_does_not_use_is_left_alone() -> None:
    """An output of other configs alone is not compared, unless the default writes nothing."""
    out, scratch = torch.zeros(5), torch.zeros(5)

    def other() -> None:
        out.fill_(1)
        scratch.fill_(2)

    with checker_of({"out": out, "s": scratch}, effects(writes="out s")) as checker:
        assert checker.set_reference(lambda: out.fill_(1)) is None
        assert checker.check(other) is None
        assert checker.notes == ("s is not checked: the default config writes nothing there",)
        assert checker.set_reference(lambda: None) is None
        assert kind(checker.check(other)) == "wrong_output at check"


def test_scratch_that_is_read_as_well_is_told_by_the_defaults_code() -> None:
    """Parts of a split sum, which other configs write and read, are not held to the default's."""
    out, parts = torch.zeros(5), torch.arange(5.0)

    def other() -> None:
        parts.fill_(2)
        out.copy_(parts - 1)

    found = effects("p", "out p")
    with checker_of({"out": out, "p": parts}, found) as checker:
        assert checker.set_reference(lambda: out.fill_(1)) is None
        assert kind(checker.check(other)) == "wrong_output at check"
    told = replace(found, scratch=frozenset({"p"}))
    with checker_of({"out": out, "p": parts}, told) as checker:
        assert checker.set_reference(lambda: out.fill_(1)) is None
        assert checker.check(other) is None
        assert kind(checker.check(lambda: out.fill_(2))) == "wrong_output at check"
        assert checker.notes == ("p is not checked: the default config writes nothing there",)
    assert torch.equal(parts, torch.arange(5.0))


def fails(_: Mapping[str, Any]) -> NoReturn:
    raise RuntimeError("no such file")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (fails, "reference=: RuntimeError: no such file"),
        (lambda _: None, "returned NoneType, but the kernel may write a, b"),
        (lambda _: torch.zeros(3), "returned Tensor, but the kernel may write a, b"),
        (lambda _: {"x": torch.zeros(3)}, "returned x, of which the kernel writes none"),
        (lambda _: {}, "returned nothing, of which"),
        (lambda _: {"a": torch.zeros(4)}, r"gives a the shape \(4,\), but the argument has \(3,\)"),
    ],
)
def test_references_that_do_not_fit_are_refused(reference: Any, message: str) -> None:
    """An error says what the reference did, and what it should."""
    tensors = {"x": torch.ones(3), "a": torch.ones(3), "b": torch.ones(3)}
    with (
        checker_of(tensors, effects("x", "a b"), reference=reference) as checker,
        pytest.raises(InputError, match=message),
    ):
        checker.set_reference(lambda: None)


def test_without_checks_contents_are_kept_all_the_same() -> None:
    """With check off a wrong config passes, a broken one does not, and all is restored."""
    tensors = vectors()
    before = tensors["out"].clone()
    with checker_of(tensors, ADD, check=False) as checker:
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(lambda: tensors["out"].fill_(3)) is None
        assert kind(checker.check(lambda: fails({}))) == "compiler at launch"
    assert torch.equal(tensors["out"], before)


def test_a_default_that_cannot_run_is_a_failure() -> None:
    """A launch that raises is told as such; the next config may give the reference."""
    tensors = vectors()
    with checker_of(tensors, ADD) as checker:
        failure = checker.set_reference(lambda: fails({}))
        assert failure == Failure("launch", "compiler", "RuntimeError: no such file")
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(add(tensors)) is None


def test_contents_come_back_after_any_end() -> None:
    """Whatever is raised midway, even Ctrl-C, closing restores; closing again does nothing."""
    x = torch.arange(10.0)

    def interrupted() -> NoReturn:
        x.fill_(5)
        raise KeyboardInterrupt

    checker = checker_of({"x": x}, effects("x", "x"))
    with pytest.raises(KeyboardInterrupt), checker:
        checker.check(interrupted)
    assert x.tolist() == list(range(10))
    x.fill_(3)
    checker.close()
    assert x.tolist() == [3] * 10


def test_a_gpu_that_takes_no_work_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where contents cannot be given back, an error says what to do."""
    checker = checker_of({"x": torch.ones(3)}, effects("x", "x"))

    def broken(_: object) -> NoReturn:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("asmtune.measure.checks.checker.synchronize", broken)
    with pytest.raises(MeasureError, match=r"contents back \(.*illegal memory access.*make them"):
        checker.close()


def test_autograd_sees_nothing() -> None:
    """Leaves that require gradients, saved tensors and inference tensors are restored unseen."""
    weight = torch.nn.Parameter(torch.arange(4.0))
    with torch.inference_mode():
        inferred = torch.arange(4.0)
    loss = (weight * weight).sum()
    version = weight._version
    arguments = {"weight": weight, "inferred": inferred}
    for mode in (True, False):
        with (
            torch.inference_mode(mode),
            checker_of(arguments, effects(writes="weight inferred")) as r,
        ):

            def run() -> None:
                for tensor in (weight, inferred):
                    memory = torch.empty(0).set_(tensor.untyped_storage(), 0, (4,), (1,))
                    memory.fill_(9)

            assert r.set_reference(run) is None
            assert r.check(run) is None
            assert kind(r.check(lambda: None)) == "unwritten at check"
    assert weight.tolist() == inferred.tolist() == [0, 1, 2, 3]
    assert weight._version == version
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0, 2, 4, 6]


WRAPPED: dict[str, Callable[[Tensor], tuple[Any, str]]] = {
    "tensor": lambda tensor: (tensor, "out"),
    "tuple": lambda tensor: ((3, (tensor, None)), "out.1.0"),
    "descriptor": lambda tensor: (TensorDescriptor.from_tensor(tensor, [16, 16]), "out"),
    "reinterpreted": lambda tensor: (triton.reinterpret(tensor, tl.float32), "out"),
    "reshaping descriptor": lambda tensor: (
        TensorDescriptor(tensor.view(-1)[:4], [16, 16], [16, 1], [16, 16]), "out"
    ),
    "expanded": lambda tensor: (tensor.expand(3, 16, 16), "out"),
}  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_arguments_in_any_wrapping(wrap: Callable[[Tensor], tuple[Any, str]]) -> None:
    """A tensor is found in whatever holds it, with the name that its part has."""
    tensor = torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).view(torch.int32)
    before = tensor.clone()
    argument, name = wrap(tensor)

    def wrong() -> None:
        tensor.fill_(7)
        tensor[9, 9] = 8

    with checker_of({"n": 3, "out": argument}, effects(writes=name)) as checker:
        assert checker.set_reference(lambda: tensor.fill_(7)) is None
        assert checker.check(lambda: tensor.fill_(7)) is None
        assert kind(checker.check(wrong)) == "wrong_output at check"
        failure = checker.check(lambda: tensor[:9].fill_(7))
        assert failure is not None
        assert f"112 of 256 elements of {name} stay unwritten" in failure.detail
    assert torch.equal(tensor, before)


def test_a_reinterpreted_tensor_is_compared_as_what_it_stands_for() -> None:
    """Bytes that hold 8-bit floats may be a step off; the same bytes as integers may not."""
    memory = torch.arange(16, 48, dtype=torch.int8)
    made = memory + 1
    for argument, expected in [
        (triton.reinterpret(memory, tl.float8e4nv), None),
        (memory, "wrong"),
    ]:
        with checker_of({"out": argument}, effects(writes="out")) as checker:
            assert checker.set_reference(lambda: memory.copy_(made)) is None
            failure = checker.check(lambda: memory.copy_(made + 1))
            assert (failure and failure.kind[:5]) == expected


def test_what_has_no_elements_or_is_no_tensor_is_passed_over() -> None:
    """Empty tensors cost nothing; a pointer of another library is noted, for it is not kept."""

    class Foreign:
        dtype = torch.float32

        def data_ptr(self) -> int:
            return 0

    arguments = {"empty": torch.zeros(0, 5), "foreign": Foreign(), "out": torch.zeros(4)}
    found = effects(writes="empty foreign out")
    with checker_of(arguments, found, restore_value=("empty",)) as checker:
        assert checker.set_reference(lambda: arguments["out"].fill_(1)) is None
        assert checker.check(lambda: arguments["out"].fill_(1)) is None
        assert checker.notes == ("foreign is no PyTorch tensor: neither saved nor checked",)


def test_many_arguments() -> None:
    """Three hundred outputs, all views of one tensor, are one copy and are all checked."""
    memory = torch.zeros(300, 8)
    arguments = {f"out{n}": memory[n, :7] for n in range(300)}
    found = effects(writes=" ".join(arguments))

    def wrong() -> None:
        memory[:, :7] = 1
        memory[299, 3] = 2

    with checker_of(arguments, found) as checker:
        assert checker.set_reference(lambda: memory[:, :7].fill_(1)) is None
        assert checker.check(lambda: memory[:, :7].fill_(1)) is None
        failure = checker.check(wrong)
        assert failure is not None
        assert "1 of 7 elements of out299 differ" in failure.detail
    assert not memory.any()


def test_a_full_gpu_keeps_copies_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a copy finds no room on the device it lies in host memory, and a note says so."""
    asked = []
    monkeypatch.setattr(
        "asmtune.measure.checks.tensors._has_room", lambda _, length: asked.append(length)
    )
    x = torch.arange(10.0)
    with checker_of({"x": x}, effects("x", "x")) as checker:
        assert checker.set_reference(lambda: x.mul_(2)) is None
        assert checker.check(lambda: x.mul_(2)) is None
        assert kind(checker.check(lambda: x.mul_(3))) == "wrong_output at check"
        assert checker.notes[0].startswith("the GPU has no room for a copy of x")
    assert [length // 40 for length in asked] == [1, 1]
    assert x.tolist() == list(range(10))


def test_memory_of_no_argument_is_noted() -> None:
    """Writes behind addresses, and uses that the IR does not tell, are said in notes."""
    found = Effects(
        reads=frozenset("x"), writes=frozenset("x"), unknown=frozenset("x"), foreign=True
    )
    with checker_of({"x": torch.ones(3)}, found) as checker:
        assert checker.set_reference(lambda: None) is None
        behind, unknown, unchanged = checker.notes
    assert "behind an address that is no tensor argument" in behind
    assert unknown == "the IR does not tell what becomes of x: taken as read and written"
    assert "leaves x as it was: a config that writes nothing passes" in unchanged


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.uint8]
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
BYTES = 480

Layout = tuple[torch.dtype, int, list[int], list[int]]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Where a view lies in memory: its dtype, first element, extents and strides."""
    dtype = draw(st.sampled_from(DTYPES))
    sizes = draw(st.lists(st.integers(1, 5), max_size=3))
    strides = [draw(st.sampled_from([0, 1, 2, 3, 4])) for _ in sizes]
    reach = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    return dtype, draw(st.integers(0, BYTES // dtype.itemsize - reach - 1)), sizes, strides


def view(memory: Tensor, layout: Layout) -> Tensor:
    """The view of some bytes."""
    dtype, start, sizes, strides = layout
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), start, sizes, strides)


def elements(memory: Tensor, layout: Layout) -> Tensor:
    """The same as integers, without axes that repeat memory."""
    dtype, start, sizes, strides = layout
    once = [1 if step == 0 else size for size, step in zip(sizes, strides, strict=True)]
    return view(memory, (WIDTHS[dtype.itemsize], start, once, strides))


def all_bits(integers: Tensor) -> int:
    """The integer with all bits set, which is a NaN in each of the floats."""
    return 255 if integers.dtype == torch.uint8 else -1


@settings(max_examples=120)
@given(st.lists(layouts(), min_size=1, max_size=4), st.data())
def test_any_views_are_kept_and_checked(found: list[Layout], data: st.DataObject) -> None:
    """However arguments lie over each other, runs start equal, end restored, and errors show."""
    numbers = st.sets(st.sampled_from(range(len(found))))
    reads, writes = sorted(data.draw(numbers)), sorted(data.draw(numbers))
    memory = torch.arange(BYTES).to(torch.uint8)
    before, written = memory.clone(), torch.zeros_like(memory)
    for number in writes:
        marks = elements(written, found[number])
        marks.fill_(all_bits(marks))

    def total() -> int:
        return sum(int(elements(memory, found[number]).long().sum()) for number in reads)

    def kernel() -> None:
        assert torch.equal(memory[written == 0], before[written == 0])
        assert total() == expected
        for number in writes:
            elements(memory, found[number]).fill_(expected % 50 + 1)

    expected = total()
    arguments = {f"t{number}": view(memory, layout) for number, layout in enumerate(found)}
    names = [frozenset(f"t{number}" for number in used) for used in (reads, writes)]
    with OutputChecker(arguments, Effects(*names), CheckOptions()) as checker:
        assert checker.set_reference(kernel) is None
        assert checker.check(kernel) is None
        checker.prepare()
        if writes:
            spoilt = elements(memory, found[data.draw(st.sampled_from(writes))])
            place = tuple(data.draw(st.integers(0, size - 1)) for size in spoilt.shape)

            def wrong() -> None:
                kernel()
                spoilt[place] = 0 if spoilt[place] == all_bits(spoilt) else all_bits(spoilt)

            failure = checker.check(wrong)
            assert failure is not None
            assert failure.stage == "check"
        assert checker.check(kernel) is None
    assert torch.equal(memory, before)


def lowered(kernel: Any, **values: Any) -> dict[str, Any]:
    """Effects of a kernel as its TTIR has them, as JSON."""
    found = Effects.of([work(kernel, grid=(2,), **values)], values)
    sets = {"reads": found.reads, "writes": found.writes, "atomics": found.atomics}
    return {name: sorted(names) for name, names in sets.items()}


@pytest.mark.slow
def test_real_kernels_in_the_interpreter(interpreter: Interpreter) -> None:
    """Triton kernels in place, with atomics, with a hole and beyond a mask, by their own IR."""
    p = pointer()
    known = {
        "add": lowered(kernels.add, x_ptr=p, y_ptr=p, out_ptr=p, n=100, BLOCK=64),
        "scale": lowered(kernels.scale_in_place, x_ptr=p, n=100, BLOCK=64),
        "sum": lowered(kernels.sum_into, x_ptr=p, total_ptr=p, n=100, BLOCK=64, SPLIT=2),
    }
    assert interpreter.call("tests.measure.interpreted_checker:rehearsals", known) == {
        "add": {"right": None, "hole": "unwritten", "beyond": "stray_write", "kept": True},
        "scale": {"right": None, "wrong": "wrong_output", "kept": True},
        "sum": {"right": None, "twice": "wrong_output", "kept": True},
    }
