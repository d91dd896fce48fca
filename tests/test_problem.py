"""`Problem`: binding arguments and configs to kernels, and the identity of their source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import ProblemError
from asmtune.core.config import Config
from asmtune.core.problem import Problem


@triton.jit
def scale(x_ptr, out_ptr, n, factor=2.0, BLOCK: tl.constexpr = 64, EVEN: tl.constexpr = False):
    """Multiply by a factor."""


even = triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})(scale)

CONFIG = Config({"BLOCK": 128}, num_warps=8, maxnreg=64)


def arguments(n: int = 1024) -> dict[str, Any]:
    """Arguments of `scale` on meta tensors."""
    x = torch.empty(n, dtype=torch.float16, device="meta")
    return {"x_ptr": x, "out_ptr": x.float(), "n": n}


def test_bind_gives_all_keywords() -> None:
    """A launch's keywords are the arguments, the constexprs and the options."""
    problem = Problem(scale, arguments(), (8,))
    assert problem.bind(CONFIG) == {**problem.arguments, **CONFIG.all_kwargs()}
    assert problem.name == "scale"
    assert problem.dtypes == {"x_ptr": "fp16", "out_ptr": "fp32"}


def test_heuristics_see_the_config() -> None:
    """`@triton.heuristics` are evaluated on arguments and config, and bound."""
    assert Problem(even, arguments(1024), (8,)).bind(CONFIG)["EVEN"] is True
    assert Problem(even, arguments(1000), (8,)).bind(CONFIG)["EVEN"] is False


def launched(kernel: Any = scale, grid: Any = (8,), **more: Any) -> Problem:
    """A launch with other arguments."""
    return Problem(kernel, {**arguments(), **more}, grid)


broken = triton.heuristics({"EVEN": lambda values: values["n"].shape})(scale)
REFUSED: dict[str, Any] = {
    "@triton.heuristics 'EVEN' failed at BLOCK=128 .*: AttributeError": launched(broken),
    "the grid's function failed at BLOCK=128 .*: ZeroDivisionError": launched(
        grid=lambda v: (v["n"] // (v["BLOCK"] - 128),)
    ),
    "BLOCK is both an argument and an axis": launched(BLOCK=64),
    "has no parameter 'm': its parameters are x_ptr, out_ptr, n, factor": launched(m=1),
    "no value for out_ptr, n; give it as an argument": Problem(scale, {"x_ptr": None}, (8,)),
    "grid .*axis x has 2147483648 programs, and the limit is 2147483647": launched(grid=(1 << 31,)),
    "grid .*axis z has 65536 programs, and the limit is 65535": launched(grid=(1, 1, 65536)),
    "the grid's function asks for 'BLOK' at .*: there are .*; did you mean BLOCK": launched(
        grid=lambda v: (v["BLOK"],)
    ),
    "the grid's function failed at .*: KeyError: 'n'": launched(grid=lambda _: ({}["n"],)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_launches_that_are_refused(message: str) -> None:
    """One line names the kernel, what is at fault, and the config."""
    with pytest.raises(ProblemError, match=f"^kernel scale:? {message}") as caught:
        REFUSED[message].programs(CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "programs"),
    [
        ((8,), (8, 1, 1)),
        ((8, 2), (8, 2, 1)),
        (5, (5, 1, 1)),
        (
            lambda values: (triton.cdiv(values["n"], values["BLOCK"]), values["num_warps"]),
            (8, 8, 1),
        ),
    ],
)
def test_grid_fills_three_axes(grid: Any, programs: tuple[int, int, int]) -> None:
    """A grid of one to three axes, or a function of the launch's keywords, gives three."""
    assert Problem(scale, arguments(), grid).programs(CONFIG) == programs


def test_malformed_grids() -> None:
    """A grid that is not one to three whole numbers above 0 is shown, with the config."""
    for grid in ((), (0,), (-1, 2), (1, 2, 3, 4), (1.5,), (True,), ("x",), None):
        with pytest.raises(ProblemError) as caught:
            launched(grid=lambda _, grid=grid: grid).programs(CONFIG)  # type: ignore[misc]
        text = str(caught.value)
        assert text.startswith(f"kernel scale: grid {grid!r} at {CONFIG}: expected one to three")
        assert ("return before it" in text) == (grid == (0,))
        assert ("// or triton.cdiv" in text) == (grid == (1.5,))


def test_grids_within_the_limits() -> None:
    """As many programs as an axis can have are launched, and a grid sees the defaults."""
    most = (2**31 - 1, 65535, 65535)
    assert launched(grid=most).programs(CONFIG) == most
    assert launched(grid=lambda v: (int(v["factor"]),)).programs(CONFIG) == (2, 1, 1)


def test_memory_behind_arguments() -> None:
    """Tensors and host descriptors count with their bytes; of a tensor's part only that part."""
    whole = torch.empty(64, 32, dtype=torch.float16, device="meta")
    arguments = {
        "x": whole,
        "all": TensorDescriptor(whole, [64, 32], [32, 1], [16, 16]),
        "part": TensorDescriptor(whole, [16, 32], [32, 1], [16, 16]),
        "again": TensorDescriptor(whole, [64, 4, 32], [32, 0, 1], [16, 4, 16]),
        "n": 64,
    }
    sizes = Problem(scale, arguments, (1,)).tensor_bytes
    assert sizes == {"x": 4096, "all": 4096, "part": 1024, "again": 4096}
