"""What Triton refuses, told in one line: arguments by name, and a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from asmtune import asm_autotune
from asmtune.base.errors import InputError, MeasureError
from asmtune.runtime.autotuner import AsmAutotuner
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


SPACE = {"BLOCK": [32, 64]}


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs."""


@pytest.fixture
def _no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def launched_add(kernel: AsmAutotuner) -> Any:
    """Launch as a program does."""
    return kernel[lambda meta: (meta["BLOCK"],)](torch.zeros(4), 4)


LAUNCHES: dict[str, Callable[[], Any]] = {
    "tune": lambda: launched_add(asm_autotune(space=SPACE)(add)),
    "predict": lambda: launched_add(asm_autotune(space=SPACE, on_miss="predict")(add)),
    "background": lambda: launched_add(asm_autotune(space=SPACE, on_miss="background")(add)),
    "raise": lambda: launched_add(asm_autotune(space=SPACE, on_miss="raise")(add)),
    "one config": lambda: launched_add(asm_autotune([triton.Config({"BLOCK": 32})])(add)),
    "a key": lambda: launched_add(asm_autotune(space=SPACE, key=["n"])(add)),
    "run": lambda: asm_autotune(space=SPACE)(add).run(torch.zeros(4), 4, grid=(1,)),
}


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_without_a_gpu(name: str) -> None:
    """A launch says in one line that there is no GPU, and names the two ways without one."""
    with pytest.raises(MeasureError) as raised:
        LAUNCHES[name]()
    line = str(raised.value)
    assert "\n" not in line
    assert "asmtune prune-report" in line
    assert "TRITON_INTERPRET=1" in line
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
