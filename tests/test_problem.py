"""`Problem`: binding arguments and configs to kernels, and the identity of their source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.config import Config
from asmtune.errors import ProblemError
from asmtune.problem import Problem, heuristic_values, jit_function


@triton.jit
def scale(x_ptr, out_ptr, n, factor=2.0, BLOCK: tl.constexpr = 64, EVEN: tl.constexpr = False):
    """Multiplies by a factor."""


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


def test_outer_heuristics_run_first() -> None:
    """Of two layers the outer one is evaluated first and the inner one sees its value."""
    inner = triton.heuristics({"EVEN": lambda values: values["BLOCK"] == 256})(scale)
    outer = triton.heuristics({"BLOCK": lambda values: values["n"] // 4})(inner)
    assert heuristic_values(outer, {"n": 1024}) == {"BLOCK": 256, "EVEN": True}
    assert heuristic_values(scale, {"n": 1024}) == {}


def test_name_that_is_argument_and_axis() -> None:
    """A parameter that both the problem and the config give is refused by name."""
    problem = Problem(scale, {**arguments(), "BLOCK": 64}, (8,))
    with pytest.raises(ProblemError, match="kernel scale: BLOCK is both an argument and an axis"):
        problem.bind(CONFIG)


def test_unknown_parameter() -> None:
    """An argument or an axis that the kernel has no parameter for is refused by name."""
    expected = "kernel scale has no parameter 'm': its parameters are x_ptr, out_ptr, n, factor"
    with pytest.raises(ProblemError, match=expected):
        Problem(scale, {**arguments(), "m": 1}, (8,)).bind(CONFIG)
    with pytest.raises(ProblemError, match="has no parameter 'TILE'"):
        Problem(scale, arguments(), (8,)).bind(Config({"TILE": 1}))


def test_missing_parameters() -> None:
    """All parameters without value or default are named at once."""
    with pytest.raises(ProblemError, match="kernel scale: no value for out_ptr, n; bind it"):
        Problem(scale, {"x_ptr": None}, (8,)).bind(CONFIG)


@pytest.mark.parametrize(
    ("grid", "programs"),
    [
        ((8,), (8, 1, 1)),
        ((8, 2), (8, 2, 1)),
        ([8, 2, 3], (8, 2, 3)),
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


@pytest.mark.parametrize("grid", [(), (0,), (-1, 2), (1, 2, 3, 4), (1.5,), (True,), ("x",), None])
def test_malformed_grids(grid: Any) -> None:
    """A grid that is not one to three whole numbers above 0 is shown, with the config."""
    problem = Problem(scale, arguments(), lambda _: grid)
    with pytest.raises(ProblemError) as caught:
        problem.programs(CONFIG)
    assert str(caught.value) == (
        f"kernel scale: grid {grid!r} at {CONFIG}: expected one to three whole numbers above 0"
    )


def test_jit_function_is_under_every_decorator() -> None:
    """Heuristics and autotune are taken off; what is no kernel is refused by name."""
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(even)
    assert jit_function(scale) is jit_function(even) is jit_function(tuned) is scale
    with pytest.raises(ProblemError, match=r"'arguments' is not a Triton kernel: .*@triton.jit"):
        jit_function(arguments)
    with pytest.raises(ProblemError, match="3 is not a Triton kernel"):
        Problem(3, {}, (1,))
