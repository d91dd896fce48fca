"""Bad use is told before a launch: each kind of it, with argument, value and expectation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime.checks import (
    check_decorated,
    check_launch,
    check_space,
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
    grid: Any = (4,),
    strict: bool = True,
    kernel: Any = add,
    space: Space | None = None,
    **changes: Any,
) -> Space | None:
    """Check a launch with changed arguments; None leaves one out."""
    x = at("meta")
    arguments = {"x_ptr": x, "y_ptr": x, "n": 8, **changes}
    given = {name: value for name, value in arguments.items() if value is not None}
    return check_launch(kernel, given, grid, space or SPACE, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
def test_good_launches(strict: bool) -> None:
    """A grid is a tuple, a list or a function of all arguments; options of Triton's pass."""
    for grid in (
        (4,),
        [4, 2, 1],
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), int(meta["factor"])),
        (np.int64(4), torch.tensor(2)),
        (2**31 - 1, 65535, 65535),
    ):
        assert launched(grid, strict)
        assert launched(grid, strict, kernel=even)
    assert launched(strict=strict, launch_pdl=True, enable_fp_fusion=False, maxnreg=64)


BAD_GRIDS: list[Any] = [None, "12", 5, (), (1.5,), (8 / 64,), (2**31,), (1, 1, 65536)]
STRICTLY_BAD = [(4, -1), (-1,), (False,), (True,), (1, 2, 3, 4)]


@pytest.mark.parametrize("grid", [*BAD_GRIDS, *STRICTLY_BAD], ids=repr)
def test_bad_grids(grid: Any) -> None:
    """The error of a grid that cannot be launched has its value, as it is and from a function.

    Under a patch what Triton takes passes: other numbers, and sizes that it does not read.
    """
    for form in (grid, lambda _: grid):
        with pytest.raises(InputError) as caught:
            launched(form)
        assert str(caught.value).startswith(f"kernel add: grid {grid!r} at {FIRST}: ")
    if grid in STRICTLY_BAD:
        assert (launched(grid, strict=False) is None) == (grid not in ((True,), (1, 2, 3, 4)))
    else:
        with pytest.raises(InputError, match="kernel add: grid "):
            launched(grid, strict=False)


LISTED = Space.from_configs([Config({"BLOCK": 64}), Config({"BLOCK": 128, "EVEN": True})])


BAD_ARGUMENTS: dict[str, dict[str, Any]] = {
    "x_ptr, n;": {"x_ptr": None, "n": None},
    "'facter'.*mean factor": {"facter": 1.0},
    "'launch_pld'.*mean launch_pdl": {"launch_pld": True},
    "BLOCK=32 .* 64, 128;": {"BLOCK": 32},
    "num_stages=2 .* to 3;": {"num_stages": 2},
    "EVEN=False": {"EVEN": False, "space": LISTED},
}


@pytest.mark.parametrize("strict", [True, False])
def test_bad_arguments(strict: bool) -> None:
    """An argument that is missing, unknown or set by a config is told with its value."""
    for message, changes in BAD_ARGUMENTS.items():
        with pytest.raises(InputError, match=f"^kernel add.*{message}"):
            launched(strict=strict, **changes)


def test_by_place() -> None:
    """Arguments by position are named; too many, or one that is given twice, are told."""
    names = ("x", "n")
    assert positional_arguments("add", names, (1, 2), {"BLOCK": 4}) == {"x": 1, "n": 2}
    for given, named in (((1, 2, 7), {}), ((1,), {"x": 5})):
        with pytest.raises(InputError, match="add: "):
            positional_arguments("add", names, given, named)


@pytest.mark.usefixtures("gpus")
def test_tensors_that_the_gpu_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the current GPU, pinned, empty or without memory, and other pointers pass."""
    here, empty = at("cuda:0"), torch.empty(0)
    for value in (here, empty, at("meta"), Pointer(), (here, (here, 3)), 5, "text"):
        for strict in (True, False):
            assert launched(strict=strict, x_ptr=here, y_ptr=value)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    assert launched(x_ptr=at("cpu"))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # to compile alone
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


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (("cuda:0", "cuda:1"), r"y_ptr is .* on cuda:1, and x_ptr is on cuda:0: .*to\('cuda:0'\)"),
        (("cuda:1", "cuda:1"), r"x_ptr is on cuda:1, and the current device .*cuda.device\(1\)"),
    ],
)
@pytest.mark.usefixtures("gpus")
def test_tensors_of_other_gpus(places: tuple[str, str], message: str) -> None:
    """The first tensor that is elsewhere is told, with what to do; Triton lets it pass."""
    x, y = map(at, places)
    with pytest.raises(InputError, match=f"^kernel add: argument {message}"):
        launched(x_ptr=x, y_ptr=y)
    assert launched(strict=False, x_ptr=x, y_ptr=y)


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
def test_names_of_arguments(option: str) -> None:
    """An option that names no parameter is refused when decorating."""
    for name in ("x_pt", 0):
        options = DecoratorOptions(space=SPACE, choices={option: [name]})
        with pytest.raises(InputError, match=f"^asm_autotune: {option} names {name!r}, "):
            check_decorated(add, options)
    check_decorated(add, DecoratorOptions(space=SPACE, choices={option: ("y_ptr",)}))


def test_axes_that_are_no_parameters() -> None:
    """An axis that no launch can be given is told when decorating; Triton tells at the launch."""
    for space in ({"BLOK": [1]}, [Config({"BLOK": 1})]):
        with pytest.raises(InputError, match=r"^asm_autotune: axis 'BLOK'.*mean BLOCK"):
            check_decorated(add, DecoratorOptions(space=space))
        check_decorated(add, DecoratorOptions(space=space, strict=False))
    check_decorated(add, DecoratorOptions(space=lambda: {"BLOK": [1]}))
    options = {"num_warps": [4], "num_stages": [2], "num_ctas": [1], "maxnreg": [None]}
    check_space(add, Space({"BLOCK": [64], **options}))
