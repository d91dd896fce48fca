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

from asmtune.base.errors import InputError
from asmtune.core.records.artifacts import Failure
from asmtune.measure.accuracy import Bound
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects, tensor_parts
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.checks.tensors import RegionCopy

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


def judged(
    arguments: Mapping[str, Any], found: Effects, right: Run, *others: Run, **options: Any
) -> tuple[list[str | None], str]:
    """Return what is said of other launches where one is right, in words, and the notes.

    What the tensors hold afterwards is what they held before.
    """
    tensors = [part for part in tensor_parts(arguments).values() if isinstance(part, Tensor)]
    before = [tensor.clone() for tensor in tensors]
    with checker_of(arguments, found, **options) as checker:
        assert checker.set_reference(right) is None
        assert checker.check(right) is None
        said = [None if (f := checker.check(other)) is None else str(f) for other in others]
        notes = "; ".join(checker.notes)
    for tensor, held in zip(tensors, before, strict=True):
        assert torch.equal(tensor.view(torch.uint8), held.view(torch.uint8))
    return said, notes


def fill(tensor: Tensor, value: complex = 1) -> Run:
    """A launch that fills a tensor."""
    return lambda: tensor.fill_(value)


def idle() -> None:
    """A launch that does nothing."""


def has(said: list[str | None], *words: str | None) -> bool:
    """Return whether each text has its word, or there is none where none is expected."""
    return len(said) == len(words) and all(
        text is None if word is None else word in (text or "")
        for text, word in zip(said, words, strict=True)
    )


def test_a_right_config_passes_and_others_do_not() -> None:
    """The same sum passes; one wrong element, one element not written, or nothing, does not."""
    tensors = vectors()
    x, y, out = tensors.values()

    def wrong() -> None:
        out.copy_(x + y)
        out[17] += 0.01

    others = (lambda: torch.add(x, y, out=out), wrong, lambda: out[:-1].copy_((x + y)[:-1]), idle)
    said, notes = judged(tensors, ADD, add(tensors), *others)
    assert has(said, None, "wrong_output", "1 of 1,000", "1,000 of 1,000 elements of out stay unw")
    assert notes == ""


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
    options = {"reference": lambda values: values["x"] + values["y"]} if told else {}

    def scribbles(name: str) -> Run:
        def run() -> None:
            add(tensors)()
            tensors[name][3] = 9.0

        return run

    others = scribbles("x"), add(tensors), scribbles("idle")
    said, notes = judged(tensors, ADD.with_strays(tensors), add(tensors), *others, **options)
    assert has(said, "elements of x differ", None, "elements of idle differ")
    assert notes == ""


def test_elements_that_nobody_writes_are_left_out() -> None:
    """A kernel that fills a part is right if it fills that part, and wrong if it fills more."""
    out = torch.zeros(100)
    others = fill(out), fill(out[:40])
    said, _ = judged({"out": out}, effects(writes="out"), fill(out[:50]), *others)
    assert has(said, "wrong_output", "10 of 100 elements of out stay unwritten")


def test_nan_everywhere_does_not_pass_for_anything() -> None:
    """Where the default's output is all NaN, NaN is right, and nothing or a number is not."""
    x, out = torch.full((50,), math.nan), torch.zeros(50)
    others = idle, fill(out)
    said, notes = judged({"x": x, "out": out}, effects("x", "out"), lambda: out.copy_(x), *others)
    assert has(said, "unwritten", "wrong_output")
    assert "out is 0, NaN or infinite everywhere" in notes


def test_a_run_finds_what_the_first_one_found() -> None:
    """Before every run, what is read and written holds its first contents, timed or not."""
    x, seen = torch.arange(10.0), []

    def double() -> None:
        seen.append(x.tolist())
        x.mul_(2)

    with checker_of({"x": x}, effects("x", "x")) as checker:
        assert checker.set_reference(double) is None
        for _ in range(3):
            checker.prepare()
            double()
        assert kind(checker.check(lambda: x.mul_(3))) == "wrong_output at check"
        assert kind(checker.check(idle)) == "wrong_output at check"
    assert seen == [x.tolist()] * 5
    assert x.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("out", "found"),
    [
        ("x", effects(atomics="x")),
        ("x", effects(unknown="x")),
        ("out", effects("x", "out")),
    ],
)
def test_what_may_be_read_as_well_is_kept(out: str, found: Effects) -> None:
    """An argument that is updated atomically, may be anything, or is an input too, is restored."""
    x = torch.arange(10.0)
    arguments = {"x": x, out: x}
    said, _ = judged(arguments, found, lambda: x.add_(1), lambda: x.add_(2))
    assert has(said, "wrong_output")


def test_memory_between_rows_is_checked_and_given_back() -> None:
    """A config that writes into the padding of rows is wrong, though its elements are right."""
    memory = torch.zeros(10, 16)
    out = memory[:, :12]
    between = []

    def too_far() -> None:
        out.fill_(1)
        memory[4, 13] = 5

    def near() -> None:  # elements that differ within their tolerance are no stray writes
        between.append(memory[4, 13].item())
        out.fill_(1 + 1e-6)

    said, _ = judged({"out": out}, effects(writes="out"), fill(out), too_far, near)
    assert has(said, "stray_write", None)
    assert "between the elements of out" in str(said[0])
    assert between == [0]
    assert not memory.any()


def test_the_users_word_comes_first() -> None:
    """What is to be restored is not poisoned, and what is to be zero is zero at every run."""
    total, x = torch.full((4, 6), 7.0)[:, 1:5], torch.ones(5)
    seen = []

    def run() -> None:
        seen.append((total.sum().item(), x.sum().item()))
        total.add_(1)
        x.add_(1)

    arguments, options = {"total": total, "x": x}, {"restore_value": ("x",)}
    found = effects(writes="total x")
    said, _ = judged(arguments, found, run, idle, **options, reset_to_zero=("total",))
    assert has(said, "wrong_output")
    assert seen == [(0, 5)] * 3
    said, _ = judged({"x": x}, effects("x"), idle, fill(x, 2), **options)  # the IR shows no write
    assert has(said, "wrong_output")


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
    run = noisy(out, 0.01)
    said, notes = judged({"out": out}, effects(atomics="out"), run, *[run] * 19, noisy(out, 0.3))
    assert has(said, *[None] * 19, "wrong_output")
    assert "out differs between runs of the default config by up to 0.00" in notes


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_garbage_is_not_checked(dtype: torch.dtype) -> None:
    """An argument that holds something else after each run is left alone, and a note says so."""
    out, junk = (torch.zeros(100, dtype=dtype) for _ in range(2))
    generator = torch.Generator().manual_seed(0)

    def run() -> None:
        out.fill_(3)
        junk.copy_(1000 * torch.randn(100, generator=generator))

    arguments = {"out": out, "junk": junk}
    said, notes = judged(arguments, effects(writes="out junk"), run, fill(junk))
    assert has(said, "unwritten")
    assert notes.startswith("junk is not checked")


@pytest.mark.parametrize(
    ("dtype", "allowed", "word"),
    [
        (torch.float32, None, "wrong_output"),
        (torch.float32, 0.1, None),
        (torch.float32, 1e-9, "wrong_output"),
        (torch.int32, None, "wrong_output"),
        (torch.int32, 0.1, None),
    ],
)
def test_tolerance_is_the_users(dtype: torch.dtype, allowed: float, word: str | None) -> None:
    """A tolerance given stands for the dtype's, tighter or wider, for integers as well."""
    out = torch.zeros(50, dtype=dtype)
    found = effects(writes="out")
    said, _ = judged({"out": out}, found, fill(out, 100), fill(out, 101), tolerance=allowed)
    assert has(said, word)


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
        assert "elements of out differ from reference=" in failure.detail
        assert checker.set_reference(add(tensors)) is None
        assert checker.check(add(tensors)) is None
        failure = checker.check(lambda: out.copy_(x - y))
        assert "differ from reference=" in failure.detail
    assert len(given) == 2
    assert all(torch.equal(arguments["out"], original) for arguments in given)
    assert torch.equal(given[0]["x"], x)
    assert x.any()


@pytest.mark.parametrize("array", [lambda t: t, lambda t: t.numpy(), lambda t: t.double()])
def test_a_reference_need_not_name_all_outputs(array: Any) -> None:
    """What it does not name is not compared, and a note says so; arrays will do."""
    tensors = {"a": torch.zeros(8), "b": torch.zeros(2, 4, dtype=torch.complex64)}

    def run(a: float = 1, b: complex = 2) -> Run:
        return lambda: (tensors["a"].fill_(a), tensors["b"].fill_(b))

    options = {"reference": lambda _: {"a": array(torch.full((8,), 1.0)), "n": 3}}
    others = run(5, 2), run(1, 2j)
    said, notes = judged({**tensors, "n": 3}, effects(writes="a b"), run(), *others, **options)
    assert has(said, "wrong_output", None)
    assert notes == "b is not checked: reference= does not name it"


def test_scratch_that_the_default_does_not_use_is_left_alone() -> None:
    """An output of other configs alone is not compared, unless the default writes nothing.

    Parts of a split sum, which other configs write and read, are told by the default's code.
    """
    out, scratch = torch.zeros(5), torch.arange(5.0)

    def other() -> None:
        scratch.fill_(2)
        out.copy_(scratch - 1)

    arguments, untouched = {"out": out, "s": scratch}, "s is not checked: the default config writ"
    said, notes = judged(arguments, effects(writes="out s"), fill(out), other)
    assert has(said, None)
    assert notes.startswith(untouched)
    assert has(judged(arguments, effects(writes="out s"), idle, other)[0], "wrong_output")
    found = effects("s", "out s")
    assert has(judged(arguments, found, fill(out), other)[0], "wrong_output")
    told = replace(found, scratch=frozenset({"s"}))
    said, notes = judged(arguments, told, fill(out), other, fill(out, 2))
    assert has(said, None, "wrong_output")
    assert notes.startswith(untouched)


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
    others = fill(tensors["out"], 3), lambda: fails({})
    said, _ = judged(tensors, ADD, add(tensors), *others, check=False)
    assert has(said, None, "compiler at launch")


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


@pytest.mark.parametrize("interrupts", [1, 8])
def test_ctrl_c_while_contents_come_back(interrupts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is raised when all is restored; after eight the copies are kept for another close."""
    x, y = torch.ones(4), torch.ones(4)
    checker = checker_of({"x": x, "y": y}, effects("x y", "x y"))
    restore, left = RegionCopy.restore, [KeyboardInterrupt()] * interrupts

    def interrupted(copy: RegionCopy) -> None:
        if copy.region.tensors[0].name == "y" and left:
            raise left.pop()
        restore(copy)

    monkeypatch.setattr(RegionCopy, "restore", interrupted)
    x.zero_(), y.zero_()
    with pytest.raises(KeyboardInterrupt):
        checker.close()
    checker.close()
    assert (x.tolist(), y.tolist()) == ([1.0] * 4, [1.0] * 4)


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

    arguments = {"n": 3, "out": argument}
    others = wrong, fill(tensor[:9], 7)
    said, _ = judged(arguments, effects(writes=name), fill(tensor, 7), *others)
    assert has(said, "wrong_output", f"112 of 256 elements of {name} stay unwritten")
    assert torch.equal(tensor, before)


def test_memory_of_no_argument_is_noted() -> None:
    """Writes behind addresses, and uses that the IR does not tell, are said in notes."""
    x = frozenset("x")
    found = Effects(reads=x, writes=x, unknown=x, foreign=True)
    _, notes = judged({"x": torch.ones(3)}, found, idle)
    assert "behind an address that is no tensor argument" in notes
    assert "the IR does not tell what becomes of x: taken as read and written" in notes
    assert "leaves x as it was: a config that writes nothing passes" in notes


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
            assert failure.stage == "check"
        assert checker.check(kernel) is None
    assert torch.equal(memory, before)
