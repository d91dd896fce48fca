"""A decorated kernel without a GPU: one line that says what works, in the place of a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.base.errors import MeasureError
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.calls import KernelCall, memory_key
from asmtune.runtime.decorator import asm_autotune

SPACE = {"BLOCK": [32, 64]}


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs."""


@pytest.fixture
def _no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def launched(kernel: AsmAutotuner) -> Any:
    """Launch as a program does."""
    return kernel[lambda meta: (meta["BLOCK"],)](torch.zeros(4), 4)


LAUNCHES: dict[str, Callable[[], Any]] = {
    "tune": lambda: launched(asm_autotune(space=SPACE)(add)),
    "predict": lambda: launched(asm_autotune(space=SPACE, on_miss="predict")(add)),
    "background": lambda: launched(asm_autotune(space=SPACE, on_miss="background")(add)),
    "raise": lambda: launched(asm_autotune(space=SPACE, on_miss="raise")(add)),
    "one config": lambda: launched(asm_autotune([triton.Config({"BLOCK": 32})])(add)),
    "a key": lambda: launched(asm_autotune(space=SPACE, key=["n"])(add)),
    "run": lambda: asm_autotune(space=SPACE)(add).run(torch.zeros(4), 4, grid=(1,)),
}


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("name", LAUNCHES)
def test_launch(name: str) -> None:
    """A launch says in one line that there is no GPU, and names the two ways without one."""
    with pytest.raises(MeasureError) as raised:
        LAUNCHES[name]()
    line = str(raised.value)
    assert "\n" not in line
    assert "asmtune prune-report" in line
    assert "TRITON_INTERPRET=1" in line
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("what", ["warmup", "cached"])
def test_triton_finds_no_driver(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Triton itself is the first to miss the GPU, its error becomes the same line."""

    def none(*_: Any, **__: Any) -> None:
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(add, "run", none)
    monkeypatch.setattr(add, "warmup", none)
    kernel = asm_autotune(space=SPACE)(add)
    call = KernelCall((1,), (torch.zeros(4), 4), {}, kernel.arg_names)
    kernel.cache[memory_key(call, {})] = triton.Config({"BLOCK": 32})
    launch = kernel.warmup if what == "warmup" else kernel.run
    with pytest.raises(MeasureError, match="TRITON_INTERPRET=1") as raised:
        launch(torch.zeros(4), 4, grid=(1,))
    assert raised.value.__suppress_context__


@pytest.mark.usefixtures("_no_gpu")
def test_other_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of a launch is the program's own."""

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of something")

    monkeypatch.setattr(add, "warmup", fails)
    with pytest.raises(RuntimeError, match=r"^out of something$"):
        asm_autotune(space=SPACE)(add).warmup(torch.zeros(4), 4, grid=(1,))
