"""`asmtune.kernel_checks`: wrong functions are found, right ones pass; the plugin."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.workshop.kernel_checks import (
    Tolerance,
    WrongResultError,
    check_kernel,
    odd_shapes,
)
from asmtune.workshop.kernel_checks.checks import KINDS
from asmtune.workshop.kernel_checks.reports import ResultComparison
from asmtune.workshop.kernel_checks.tolerances import excess

Function = Callable[..., Any]


def cases(dtype: torch.dtype = torch.float32) -> list[dict[str, torch.Tensor]]:
    """Two matrices of each odd shape."""
    torch.manual_seed(0)
    return [
        {name: torch.randn(shape["M"], shape["N"]).to(dtype) for name in "xy"}
        for shape in odd_shapes("M", "N")
    ]


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add."""
    return x + y


def changes_input(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add into an input."""
    return x.add_(y)


def ignores_strides(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Read x as if it were contiguous."""
    return x.as_strided(x.shape, (x.shape[1], 1)) + y


def ignores_offset(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Read x from the start of its memory."""
    return x.as_strided(x.shape, x.stride(), 0) + y


def hides_nan(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Turn NaN to 0."""
    return (x + y).nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf"))


def wrong_at_odd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Leave the last column out where 4 does not divide the columns."""
    result = x + y
    if x.shape[1] % 4:
        result[:, -1] = 0
    return result


def differs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add, with a last digit by chance."""
    return (x + y) * (1 + 2e-7 * torch.randint(0, 2, x.shape))


def wrong_gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add; y gets half of its gradient."""
    return x + y / 2 + (y / 2).detach()


def flushes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Refuse halves that are no normal numbers."""
    if bool((x.abs() < torch.finfo(x.dtype).tiny).any()):
        raise RuntimeError("a denormal number")
    return x + y


@pytest.mark.parametrize(
    ("function", "check", "name"),
    [
        (changes_input, "shapes", "x (17, 33)"),
        (ignores_strides, "layouts", "x transposed"),
        (ignores_offset, "layouts", "x one element off"),
        (hides_nan, "values", "x nan"),
        (wrong_at_odd, "shapes", "x (17, 33)"),
        (differs, "repeats", "3 runs"),
        (wrong_gradient, "gradients", "gradients at"),
        (flushes, "values", "x denormals"),
    ],
)
def test_wrong_functions_are_found(function: Function, check: str, name: str) -> None:
    """Each fault shows in the check that is for it, and the report says where."""
    report = check_kernel(function, add, cases(), gradients=("x", "y"), deterministic=True)
    assert any(one.check == check and one.name.startswith(name) for one in report.wrong), report
    with pytest.raises(WrongResultError, match="comparisons are wrong"):
        report.raise_if_wrong()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_right_function_passes(dtype: torch.dtype) -> None:
    """All checks run on a plain function, and none is wrong; digits that differ are a note."""
    report = check_kernel(add, add, cases(dtype), gradients=("x", "y"))
    report.raise_if_wrong()
    assert {one.check for one in report.comparisons} == set(KINDS)
    assert len(report.comparisons) > 30
    report = check_kernel(differs, add, cases())
    assert not report.wrong
    assert any("bytes differ between runs, within the tolerance" in note for note in report.notes)


def test_gradients_of_all_outputs() -> None:
    """A wrong gradient of a second output is found; one that has none by design is left out."""

    def pair(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * y, x + y

    def wrong(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * y, wrong_gradient(x, y)

    def constant(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * y, (x + y).detach()

    options = {"gradients": ("x", "y"), "checks": ("gradients",)}
    (found, *_) = check_kernel(wrong, pair, cases()[:1], **options).wrong
    assert found.detail.startswith("result 1: ")
    for right in (pair, constant):
        check_kernel(right, pair, cases()[:1], **options).raise_if_wrong()


@pytest.mark.parametrize("activation", [torch.relu, torch.nn.functional.leaky_relu])
def test_gradients_of_results_that_rounding_turns(activation: Function) -> None:
    """Either side's gradient is right where a right result has the other sign, and nowhere else."""
    x = torch.cat([torch.tensor([-1e-4, 1e-4]), torch.randn(30)])

    def off(by: float) -> Function:
        return lambda x: activation(x + by)

    def passes_all(x: torch.Tensor) -> torch.Tensor:
        return x + (activation(x) - x).detach()

    def wrong(function: Function) -> tuple[ResultComparison, ...]:
        options = {"gradients": ("x",), "checks": ("gradients",), "tolerances": {"fp32": "tf32"}}
        return check_kernel(function, off(0), [{"x": x}], **options).wrong

    assert not wrong(off(2e-4))
    assert not wrong(off(-2e-4))
    assert wrong(passes_all)
    assert wrong(off(0.5))


def biased(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Double, and add what is there."""
    return x * 2 if bias is None else x * 2 + bias


def accumulate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add into y."""
    return y.add_(x)


def inexact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add, and be off by 1%."""
    return 1.01 * (x + y)


def scaled_pair(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Double the first in place, and add the second."""
    pair[0].mul_(2)
    return pair[0] + pair[1]


def exact_pair(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Compute the same of float64, and change nothing."""
    assert {one.dtype for one in pair} == {torch.float64}
    return pair[0] * 2 + pair[1]


ONES = torch.ones(3)
BIASED = [{"x": ONES, "bias": None}, {"x": ONES, "bias": ONES}]
PAIR = [{"pair": (torch.randn(5, 7), torch.randn(5, 7))}]


@pytest.mark.parametrize(
    ("function", "reference", "given", "options"),
    [
        (add, add, [{"x": torch.ones(1), "y": torch.ones(1)}], {}),
        (add, add, [{"x": torch.arange(35.0).view(5, 7), "y": torch.tensor(2.0)}], {}),
        (changes_input, add, cases()[:1], {"writes": ("x",)}),
        (accumulate, add, cases()[:1], {"writes": ("y",)}),
        (biased, biased, BIASED, {"varied": ("x", "bias"), "gradients": ("x", "bias")}),
        (biased, biased, BIASED[::-1], {"gradients": ("x", "bias")}),
        (scaled_pair, exact_pair, PAIR, {"writes": ("pair",)}),
        (inexact, add, cases()[:1], {"tolerances": Tolerance(0.02, 0, 0)}),
        (inexact, add, cases()[:1], {"tolerances": {torch.float32: Tolerance(0.02, 0, 0)}}),
        (inexact, add, cases()[:1], {"tolerances": {"torch.float32": Tolerance(0.02, 0, 0)}}),
    ],
)
def test_right_functions_of_awkward_arguments(
    function: Function, reference: Function, given: list[Any], options: dict[str, Any]
) -> None:
    """Small, written, optional and nested tensors are compared, and a case stays as it was."""
    before = copy.deepcopy(given)
    checks = ("shapes", "layouts", "aliasing", "repeats", "gradients")
    check_kernel(function, reference, given, checks=checks, **options).raise_if_wrong()
    assert str(given) == str(before)


def test_what_is_refused() -> None:
    """A written part is named, a function returns its output, and a refused layout is a note."""
    (wrong, *_) = check_kernel(scaled_pair, exact_pair, PAIR, checks=("shapes",)).wrong
    assert wrong.detail == "the input pair.0 was written to"
    (wrong,) = check_kernel(lambda **_: None, add, cases()[:1], checks=("shapes",)).wrong
    assert "returns NoneType" in wrong.detail

    def strict(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not (x.is_contiguous() and y.is_contiguous()):
            raise ValueError("only contiguous tensors")
        return x + y

    report = check_kernel(strict, add, cases())
    assert not report.wrong
    assert any("x transposed is refused: ValueError: only" in note for note in report.notes)


def test_output_over_an_input() -> None:
    """A function that writes its output before it has read its input is found."""

    def reversed_sum(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        result = torch.empty_like(x) if out is None else out
        for row in range(x.shape[0]):
            result[row] = x[row] + x[-1 - row]
        return result

    def reference(x: torch.Tensor) -> torch.Tensor:
        return x + x.flip(0)

    inputs = [{"x": torch.randn(4, 4)}]
    assert not check_kernel(reversed_sum, reference, inputs).wrong
    wrong = check_kernel(reversed_sum, reference, inputs, out="out").wrong
    assert [one.name for one in wrong] == ["x as out"]


@pytest.mark.parametrize(
    ("given", "result", "reference", "right"),
    [
        (torch.float32, torch.float16, torch.Tensor.clone, False),
        (torch.float16, torch.bfloat16, torch.Tensor.clone, False),
        (torch.float16, torch.float32, torch.Tensor.clone, True),
        (torch.float32, torch.float8_e4m3fn, torch.Tensor.clone, True),
        (torch.bfloat16, torch.bfloat16, torch.Tensor.float, True),
        (torch.float32, torch.float16, torch.Tensor.double, True),
    ],
)
def test_dtypes_of_results(
    given: torch.dtype, result: torch.dtype, reference: Function, right: bool
) -> None:
    """A result in fewer digits than the reference keeps is wrong; sums and conversions are not."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(result)

    case = {"x": torch.ones(5, 7, dtype=given)}
    report = check_kernel(rounded, lambda x: reference(x), [case], checks=("shapes", "dtypes"))
    assert [one.check for one in report.wrong] == ([] if right else ["dtypes"])
    assert right or "; the reference's is fp" in report.wrong[0].detail


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint32, torch.int8, torch.bool])
def test_integers_are_compared_exactly(dtype: torch.dtype) -> None:
    """Integers that float64 rounds to the same differ, and so do those that a cast wraps."""
    most = 1 if dtype == torch.bool else torch.iinfo(dtype).max
    values = torch.tensor([most, 0]).to(dtype)
    assert excess(values, values) == 0
    assert excess(values, torch.tensor([most - 1, 0])) == float("inf")
    if dtype == torch.int8:
        assert excess(values, torch.tensor([most + 256, 0])) == float("inf")


TEST = """
import torch

def test_right(check_kernel, kernel_device):
    case = {"x": torch.randn(5, 7, device=kernel_device)}
    check_kernel(lambda x: x * 2, lambda x: x * 2, [case])

def test_wrong(check_kernel, kernel_device):
    case = {"x": torch.randn(5, 7, device=kernel_device)}
    check_kernel(lambda x: x * 2.1, lambda x: x * 2, [case])
"""


@pytest.mark.slow
def test_plugin(tmp_path: Path) -> None:
    """One line in a conftest gives the fixtures."""
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["asmtune.workshop.kernel_checks.pytest_plugin"]\n'
    )
    (tmp_path / "test_mine.py").write_text(TEST)
    variables = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout
    assert "comparisons are wrong" in ran.stdout
