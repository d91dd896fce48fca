"""Bad use is told before a launch: each kind of it, with argument, value and expectation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError, SpaceError
from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.keys.parts import key_parts
from asmtune.core.space.space import Space
from asmtune.runtime.checks import (
    check_configs,
    check_decorated,
    check_launch,
    check_space,
    launch_options,
    positional_arguments,
)
from asmtune.runtime.options import DecoratorOptions


@triton.jit
def add(x_ptr, y_ptr, n, factor=2.0, BLOCK: tl.constexpr = 64, EVEN: tl.constexpr = False):
    """Stand for a kernel that never runs."""


even = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})(add)
SPACE = Space({"BLOCK": [64, 128], "num_warps": [4, 8]})
FIRST = "BLOCK=64 num_warps=4 num_stages=3"


class Pointer:
    """An object that has a pointer and is no tensor of PyTorch's."""

    dtype = torch.float32

    def data_ptr(self) -> int:
        """Never read."""
        raise AssertionError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with GPUs, the first of them current, and tensors of theirs without memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with FakeTensorMode():
        yield


def at(place: str) -> torch.Tensor:
    """A tensor of eight numbers."""
    return torch.empty(8, device=place)


def launched(
    grid: Any = (4,), strict: bool = True, kernel: Any = add, **changes: Any
) -> Space | None:
    """Check a launch with changed arguments; None leaves one out."""
    x = at("meta")
    arguments = {"x_ptr": x, "y_ptr": x, "n": 8, **changes}
    given = {name: value for name, value in arguments.items() if value is not None}
    return check_launch(kernel, given, grid, SPACE, strict=strict)


@pytest.mark.parametrize(
    "grid",
    [
        (4,),
        [4, 2, 1],
        lambda _: (1, 1, 1),
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), int(meta["factor"])),
        (np.int64(4), torch.tensor(2)),
        (2**31 - 1, 65535, 65535),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_good_launches(grid: Any, strict: bool) -> None:
    """A launch as it should be passes, its grid a tuple, a list or a function of all arguments."""
    assert launched(grid, strict)
    assert launched(grid, strict, kernel=even)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (None, f"grid None at {FIRST}: expected a tuple of one to three whole numbers above 0"),
        ("12", f"grid '12' at {FIRST}: expected a tuple"),
        (5, f"grid 5 at {FIRST}: expected a tuple of one to three whole numbers above 0, such as"),
        ((), f"grid () at {FIRST}: expected one to three whole numbers above 0"),
        ((4, -1), f"grid (4, -1) at {FIRST}: expected one to three whole numbers above 0"),
        ((1.5,), "grid (1.5,) at"),
        ((8 / 64,), "; a division of sizes needs // or triton.cdiv"),
        ((True,), "grid (True,) at"),
        ((1, 2, 3, 4), "grid (1, 2, 3, 4) at"),
        (("4",), "grid ('4',) at"),
        ((2**31,), "axis x has 2147483648 programs, and the limit is 2147483647"),
        ((1, 65536), "axis y has 65536 programs, and the limit is 65535"),
        ((1, 1, 65536), "axis z has 65536 programs, and the limit is 65535"),
    ],
)
def test_bad_grids(grid: Any, message: str) -> None:
    """A grid that cannot be launched is told with its value, as it stands and from a function."""
    for form in (grid, lambda _: grid):
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            launched(form)
        assert str(caught.value).startswith("kernel add: grid ")


@pytest.mark.parametrize("name", ["BLOK", "num_warps"])
def test_names_that_the_grid_lacks(name: str) -> None:
    """A grid's function sees the kernel's parameters; another name is told with these."""
    with pytest.raises(InputError, match=f"grid's function asks for '{name}' at {FIRST}: ") as hit:
        launched(lambda meta: (meta[name],))
    assert "there are x_ptr, y_ptr, n, factor, BLOCK, EVEN" in str(hit.value).replace(
        "factor, BLOCK, EVEN, x_ptr, y_ptr, n", "x_ptr, y_ptr, n, factor, BLOCK, EVEN"
    )


@pytest.mark.parametrize("grid", [(0,), (4, 0), [0], (0, 70_000)])
def test_nothing_to_launch(grid: Any) -> None:
    """An empty grid launches nothing, as with Triton, in whichever form it comes."""
    for strict in (True, False):
        assert launched(grid, strict=strict) is None
        assert launched(lambda _: grid, strict=strict) is None


@pytest.mark.parametrize("grid", [(-1,), (False,)])
def test_nothing_that_triton_launches(grid: Any) -> None:
    """What an unchanged program may give for an empty grid is refused elsewhere."""
    assert launched(grid, strict=False) is None
    with pytest.raises(InputError, match="expected one to three whole numbers above 0"):
        launched(grid)


@pytest.mark.parametrize("grid", [(True,), (2, 2, 2, 2)])
def test_grids_that_triton_takes(grid: Any) -> None:
    """What Triton's launcher takes for numbers, or does not read, is let pass where asked to."""
    assert launched(grid, strict=False)


@pytest.mark.parametrize("grid", [None, "12", 5, (1.5,), (2**31,), ()])
def test_grids_that_triton_refuses(grid: Any) -> None:
    """What Triton cannot launch is told for an unchanged program, too."""
    with pytest.raises(InputError, match="kernel add: grid "):
        launched(grid, strict=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": None}, "kernel add: no value for n; give it as an argument"),
        ({"x_ptr": None, "n": None}, "kernel add: no value for x_ptr, n; give"),
        ({"facter": 1.0}, r"kernel add has no parameter 'facter': .*; did you mean factor\?"),
        ({"launch_pld": True}, r"no parameter 'launch_pld': .*; did you mean launch_pdl\?"),
        ({"BLOCK": 32}, "BLOCK=32 is given to the launch, and the configs set BLOCK to 64, 128; "),
        ({"num_warps": 2}, "num_warps=2 is given .*, and the configs set num_warps to 4, 8; take"),
        ({"num_stages": 2}, "num_stages=2 is given .* set num_stages to 3; take it out of the lau"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_bad_arguments(changes: dict[str, Any], message: str, strict: bool) -> None:
    """An argument that is missing, unknown or set by the configs is told with its value."""
    with pytest.raises(InputError, match=message):
        launched(strict=strict, **changes)


def test_options_of_triton_pass() -> None:
    """A launch may give options that the configs leave alone."""
    assert launched(launch_pdl=True, enable_fp_fusion=False, maxnreg=64)


def test_configs_may_set_options_of_triton() -> None:
    """A config may set an option of Triton's that is no axis of asmtune's."""
    space = Space.from_configs([triton.Config({"BLOCK": 64, "launch_pdl": True})])
    check_space(add, space)
    arguments = {"x_ptr": None, "y_ptr": None, "n": 8, "enable_fp_fusion": False}
    assert check_launch(add, arguments, (4,), space)
    assert launch_options(add, arguments, space) >= {"launch_pdl", "enable_fp_fusion"}
    with pytest.raises(InputError, match=r"launch_pdl=False is given .* set launch_pdl to True"):
        check_launch(add, {**arguments, "launch_pdl": False}, (4,), space)


def test_what_another_config_sets() -> None:
    """An argument that only a later config of a list sets is told, too."""
    space = Space.from_configs([Config({"BLOCK": 64}), Config({"BLOCK": 128, "EVEN": True})])
    arguments = {"x_ptr": None, "y_ptr": None, "n": 8, "EVEN": False}
    with pytest.raises(InputError, match="EVEN=False is given to the launch, and the configs set"):
        check_launch(add, arguments, (4,), space)


def test_by_place() -> None:
    """Arguments by position are named; too many, or one that is given twice, are told."""
    names = ("x", "n")
    assert positional_arguments("add", names, (1, 2), {"BLOCK": 4}) == {"x": 1, "n": 2}
    assert positional_arguments("add", names, (), {"x": 4}) == {}
    with pytest.raises(
        InputError, match=r"kernel add: 3 arguments, the last is 7: .* at most: x, n"
    ):
        positional_arguments("add", names, (1, 2, 7), {})
    with pytest.raises(InputError, match="argument x is given by position, 1, and by name, 5: giv"):
        positional_arguments("add", names, (1,), {"x": 5})


def test_an_empty_space() -> None:
    """Where no config is feasible for the arguments, the constraint at fault is told."""
    space = SPACE.where("more than a block", lambda BLOCK, n: n > BLOCK)
    with pytest.raises(SpaceError, match="none has 'more than a block' at n=8"):
        check_launch(add, {"x_ptr": None, "y_ptr": None, "n": 8}, (4,), space)


@pytest.mark.usefixtures("gpus")
def test_tensors_that_the_gpu_reaches() -> None:
    """Tensors of the current GPU, pinned, empty or without memory, and other pointers pass."""
    here, empty = at("cuda:0"), torch.empty(0)
    for value in (here, empty, at("meta"), Pointer(), (here, (here, 3)), 5, "text"):
        for strict in (True, False):
            assert launched(strict=strict, x_ptr=here, y_ptr=value)


@pytest.mark.usefixtures("gpus")
def test_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU reaches pinned memory of the CPU."""
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    assert launched(x_ptr=at("cpu"))


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (lambda x: x, "y_ptr"),
        (lambda x: (1, (2, x)), r"y_ptr\[1\]\[1\]"),
        (lambda x: TensorDescriptor(x, [8], [1], [4]), "y_ptr"),
        (lambda x: triton.reinterpret(x, tl.int32), "y_ptr"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.usefixtures("gpus")
def test_cpu_tensors(form: Any, name: str, strict: bool) -> None:
    """A tensor of the CPU is told, in a tuple, a descriptor and a wrapper as well."""
    message = rf"argument {name} is a tensor of fp32 \(8,\) on cpu: expected one on cuda:0; move"
    with pytest.raises(InputError, match=f"^kernel add: {message}"):
        launched(strict=strict, y_ptr=form(at("cpu")))


@pytest.mark.usefixtures("gpus")
def test_tensors_on_two_devices() -> None:
    """The first tensor that is elsewhere is told, with where the others are."""
    message = (
        r"kernel add: argument y_ptr is a tensor of fp32 \(8,\) on cuda:1, and x_ptr is on cuda:0: "
        r"expected all on one device; move it, y_ptr.to\('cuda:0'\)"
    )
    with pytest.raises(InputError, match=message):
        launched(x_ptr=at("cuda:0"), y_ptr=at("cuda:1"))
    assert launched(strict=False, x_ptr=at("cuda:0"), y_ptr=at("cuda:1"))


@pytest.mark.usefixtures("gpus")
def test_tensors_on_another_device() -> None:
    """Tensors that are all on another device than the current one are told, with what to do."""
    message = (
        "kernel add: argument x_ptr is on cuda:1, and the current device is cuda:0: expected the "
        r"same; launch under torch.cuda.device\(1\)"
    )
    with pytest.raises(InputError, match=message):
        launched(x_ptr=at("cuda:1"), y_ptr=at("cuda:1"))
    assert launched(strict=False, x_ptr=at("cuda:1"), y_ptr=at("cuda:1"))


def test_without_a_gpu_tensors_may_be_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be launched, as in a compilation alone, places are not looked at."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert launched(x_ptr=at("cpu"))


def test_the_interpreter_takes_what_it_likes() -> None:
    """A function of the interpreter has no parameters to check against."""

    class Interpreted:
        arg_names = ("x_ptr",)

        def run(self) -> None:
            """Stand for the interpreter's."""

        fn = staticmethod(lambda x_ptr: x_ptr)

    assert check_launch(Interpreted(), {"y": at("cpu")}, None, SPACE)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (5, "configs=5: expected a list of triton.Config"),
        ("ab", "configs='ab': expected a list"),
        ({"BLOCK": [1]}, r"configs=\{'BLOCK': \[1\]\}: expected a list"),
        ([Config({}), 3], r"configs\[1\] is 3: 3 is not a config: expected asmtune.Config, triton"),
        ([None], r"configs\[0\] is None: None is not a config"),
        ([triton.Config({"BLOCK": [1, 2]})], r"configs\[0\] is .*: unhashable type: 'list'; exp"),
        ([triton.Config(5)], r"configs\[0\] is .*: config: 5 is no mapping of constexprs by name"),
    ],
)
def test_configs_that_are_none(configs: Any, message: str) -> None:
    """What is no list of configs is told when decorating, by its place in the list."""
    with pytest.raises(InputError, match=f"^asm_autotune: {message}"):
        check_configs(configs)
    check_configs([triton.Config({"BLOCK": 64}), Config({"BLOCK": tl.float32}), {"BLOCK": 1}])
    check_configs([])


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["x_pt"],
            r"names 'x_pt', which is no parameter of add: they are .*; did you mean x_ptr\?",
        ),
        ("x_ptr", "='x_ptr': expected a list of names of arguments"),
        ([0], r"=\[0\]: expected a list of names"),
    ],
)
def test_names_of_arguments(option: str, names: Any, message: str) -> None:
    """An option that names what is no parameter is told when decorating, in both modes."""
    for strict in (True, False):
        options = DecoratorOptions(space=SPACE, choices={option: names}, strict=strict)
        with pytest.raises(InputError, match=f"^asm_autotune: {option} ?{message}"):
            check_decorated(add, options)
    check_decorated(add, DecoratorOptions(space=SPACE, choices={option: ("y_ptr",)}))


@pytest.mark.parametrize("space", [{"BLOK": [1]}, Space({"BLOK": [1]}), [Config({"BLOK": 1})]])
def test_axes_that_are_no_parameters(space: Any) -> None:
    """An axis that no launch can be given is told when decorating; Triton tells at the launch."""
    message = r"axis 'BLOK' of the space is no parameter of add \(x_ptr, .*\) and no option \(num_"
    with pytest.raises(InputError, match=rf"^asm_autotune: {message}.*; did you mean BLOCK\?"):
        check_decorated(add, DecoratorOptions(space=space))
    check_decorated(add, DecoratorOptions(space=space, strict=False))
    check_decorated(add, DecoratorOptions(space=lambda: space))


def test_axes_that_are_options() -> None:
    """Options of a launch are axes without being parameters."""
    axes = {"BLOCK": [64], "num_warps": [4], "num_stages": [2], "num_ctas": [1], "maxnreg": [None]}
    check_space(add, Space(axes))


@pytest.mark.parametrize("key", [["n", "BLOCK"], [pow2("BLOCK")], [lambda n, BLOCK: n // BLOCK]])
def test_keys_of_axes(key: Any) -> None:
    """A key that depends on what the configs set is told."""
    parts = key_parts(key, add.arg_names, "add")
    with pytest.raises(InputError, match=r"key .* depends on BLOCK, which is an axis of the space"):
        check_space(add, SPACE, parts)
    check_space(add, SPACE, key_parts(["n"], add.arg_names))
