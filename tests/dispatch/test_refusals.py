"""Arguments that Triton does not take are named, with what to pass instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from asmtune import asm_autotune
from asmtune.base.errors import AsmtuneError, InputError
from tests.dispatch.host_gpu import EFFORT, KERNELS, HostGpu, host_gpu

CONFIGS = [triton.Config({"BLOCK": block}) for block in (32, 64)]
SIZE = 64


@triton.jit
def scaled(x_ptr, n, scale, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply in the dtype `KIND`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, (x * scale).to(KIND), mask=at < n)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A machine that does nothing for the kernel."""
    monkeypatch.setitem(KERNELS, scaled, lambda _: None)
    return host_gpu(tmp_path, monkeypatch)


def launch(given: dict[str, Any], configs: Any = CONFIGS, key: Any = ("n",)) -> Any:
    """Launch with other arguments than the usual; return the kernel."""
    kernel = asm_autotune(configs, key=list(key), skip_tuning_below_us=None, effort=EFFORT)(scaled)
    usual = {"x_ptr": torch.zeros(SIZE), "n": SIZE, "scale": 2.0, "KIND": tl.float32}
    kernel[(2,)](**usual | given)
    return kernel


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("n", np.int64(SIZE), "int(n)"),
        ("n", np.array(SIZE), "int(n)"),
        ("scale", np.float32(2), "float(scale)"),
        ("scale", np.bool_(True), "bool(scale)"),
        ("scale", np.ones(3), "torch.from_numpy(scale)"),
        ("scale", np.float16, "tl.float16"),
        ("scale", torch.float16, "tl.float16"),
        ("scale", 2j, "a number, a tensor"),
        ("x_ptr", torch.zeros(SIZE, dtype=torch.complex64), "torch.view_as_real(x_ptr)"),
        ("x_ptr", torch.zeros(SIZE, dtype=torch.uint8).view(torch.float8_e8m0fnu), "x_ptr.view("),
    ],
    ids=str,
)
def test_the_argument_and_what_to_pass_are_named(
    gpu: HostGpu, name: str, value: Any, instead: str
) -> None:
    """A number or dtype of another library that Triton refuses is one line with its argument."""
    with pytest.raises(InputError) as caught:
        launch({name: value})
    text = str(caught.value)
    assert f"argument {name} is " in text
    assert instead in text
    assert "\n" not in text
    assert gpu.tuned == 0


@pytest.mark.parametrize("kind", [np.float16, torch.float16, np.dtype("float16")], ids=str)
def test_a_foreign_dtype_that_the_kernel_uses_is_named(gpu: HostGpu, kind: Any) -> None:
    """Where nothing compiles with another library's dtype as a constexpr, the error names it."""
    with pytest.raises(AsmtuneError, match=r"; argument KIND is .*: pass a dtype .* tl\.float16"):
        launch({"KIND": kind})
    assert gpu.tuned == 1


@pytest.mark.parametrize(
    "given",
    [
        {"scale": np.float64(2)},
        {"x_ptr": torch.zeros(SIZE, dtype=torch.uint16), "scale": 2, "KIND": tl.uint16},
        {"x_ptr": torch.zeros(SIZE, dtype=torch.uint64), "scale": 2, "KIND": tl.uint64},
        {"x_ptr": torch.zeros(SIZE, dtype=torch.bool), "scale": 1, "KIND": tl.int1},
    ],
    ids=str,
)
def test_what_triton_takes_is_taken(gpu: HostGpu, given: dict[str, Any]) -> None:
    """NumPy's doubles are Python's, and tensors of unsigned integers and bools have pointers."""
    launch(given)
    assert gpu.tuned == 1


def test_a_launch_that_is_not_tuned_names_the_argument(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Triton's own launch is the first to look, its error gets the argument's name."""

    def refusing(*_: Any, **named: Any) -> None:
        raise TypeError(f"failed to specialize argument of type: {type(named['n'])}")

    monkeypatch.setattr(scaled, "run", refusing)
    with pytest.raises(TypeError, match=r"argument n is .*numpy.int64.*: pass int\(n\)"):
        launch({"n": np.int64(SIZE)}, CONFIGS[:1])
    with pytest.raises(TypeError, match="failed to specialize"):
        launch({}, CONFIGS[:1])


def test_an_error_of_the_users_own_blames_no_argument(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a heuristic computes an argument, an error of the launch stays as it was raised."""

    def failing(*_: Any, **__: Any) -> None:
        raise KeyError("of the grid")

    monkeypatch.setattr(scaled, "run", failing)
    ruled = triton.heuristics({"KIND": lambda _: tl.float32})(scaled)
    kernel = asm_autotune(CONFIGS[:1], key=["n"])(ruled)
    with pytest.raises(KeyError, match="of the grid"):
        kernel[(2,)](torch.zeros(SIZE), SIZE, 2.0)
    with pytest.raises(TypeError, match=r"argument n is .*numpy.int64.*: pass int\(n\)"):
        kernel[(2,)](torch.zeros(SIZE), np.int64(SIZE), 2.0)
    assert gpu.tuned == 0


@triton.jit
def switched(x_ptr, n, ON: tl.constexpr, BLOCK: tl.constexpr):
    """Write; `ON` is for show."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 1.0, mask=at < n)


def test_a_bool_of_numpys_may_be_in_a_key(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constexpr that is NumPy's bool has the key of Python's."""
    monkeypatch.setitem(KERNELS, switched, lambda _: None)
    monkeypatch.setattr(switched, "run", gpu.runs(switched))
    kernel = asm_autotune(CONFIGS, key=["ON"], skip_tuning_below_us=None, effort=EFFORT)(switched)
    kernel[(2,)](torch.zeros(SIZE), SIZE, np.bool_(True))
    (key,) = kernel.cache
    assert key[0] is True
    assert gpu.tuned == 1
