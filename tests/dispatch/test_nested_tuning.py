"""Alternatives that are tuned themselves: a Gluon kernel beside a plain one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.store.database import Store
from tests.dispatch.host_gpu import EFFORT, KERNELS, HostGpu, copy, host_gpu
from tests.gluon_kernels import blocks, scale

N = 4096
OUTER = Space({"BLOCK": (64, 128), "num_warps": (1, 2)}, default=Config({"BLOCK": 64}, num_warps=1))


def _doubled(values: Mapping[str, Any]) -> None:
    values["y_ptr"][: values["n"]] = values["x_ptr"][: values["n"]] * 2


def us(config: Config) -> float:
    """The alternatives win: the function of the inner kernel before the vendor's."""
    names = {"gluon": 3.0, "vendor": 5.0, None: float(config.kwargs.get("BLOCK", 1))}
    return names[config.alternative]


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A host that stands for a GPU."""
    monkeypatch.setitem(KERNELS, scale, _doubled)
    made = host_gpu(tmp_path, monkeypatch)
    made.us = us
    return made


def vendor(x_ptr: torch.Tensor, out_ptr: torch.Tensor, n: int, scale: int) -> None:
    """Do what the outer kernel does."""
    torch.mul(x_ptr[:n], scale, out=out_ptr[:n])


def inner() -> AsmAutotuner:
    """A Gluon kernel whose configs have hooks, which its compiling threads run."""

    def hook(values: Mapping[str, Any]) -> None:
        hooked.add(threading.current_thread().name)

    hooked: set[str] = set()
    configs = [
        Config({"BLOCK": block}, num_warps=warps, pre_hook=hook)
        for block in (512, 1024)
        for warps in (2, 4)
    ]
    kernel = asm_autotune(
        space=Space.from_configs(configs), key=["n"], skip_tuning_below_us=None, effort=EFFORT
    )(scale)
    vars(kernel)["hooked"] = hooked
    return kernel


def outer(**alternatives: Callable[..., Any]) -> AsmAutotuner:
    """The plain kernel beside functions."""
    return asm_autotune(
        space=OUTER, key=["n"], skip_tuning_below_us=None, effort=EFFORT, alternatives=alternatives
    )(copy)


def launched(kernel: AsmAutotuner) -> None:
    """Launch with a factor of two, and check the output and what must not change."""
    x, out = torch.arange(float(N)), torch.full((N + 8,), 7.0)
    kernel[(1,)](x, out, N, 2)
    assert torch.equal(out[:N], 2 * torch.arange(float(N)))
    assert torch.equal(out[N:], torch.full((8,), 7.0))
    assert torch.equal(x, torch.arange(float(N)))


def calling(kernel: AsmAutotuner, seen: list[float] | None = None) -> Callable[..., None]:
    """A function of the outer kernel's arguments that launches the inner one."""

    def gluon(x_ptr: torch.Tensor, out_ptr: torch.Tensor, n: int, scale: int) -> None:
        assert scale == 2
        if seen is not None:
            seen.append(float(out_ptr[0]))
        kernel[blocks](x_ptr, out_ptr, n)

    return gluon


def test_an_alternative_tunes_its_kernel_before_the_race(gpu: HostGpu, tmp_path: Path) -> None:
    """Both keys are stored, outputs are poisoned and checked, and a later process times nothing."""
    nested, seen = inner(), []
    kernel = outer(vendor=vendor, gluon=calling(nested, seen))
    launched(kernel)
    assert gpu.tuned == 2
    assert kernel.best_config.alternative == "gluon"
    assert any(name != threading.main_thread().name for name in nested.hooked)
    assert any(value != value for value in seen)  # NaN, before the check
    with Store.open(tmp_path / "store.sqlite") as store:
        records = {record.key.kernel.rpartition(".")[2]: record for record in store.records()}
    assert records.keys() == {"copy", "scale"}
    assert not records["copy"].failures
    assert not records["scale"].failures
    again = outer(vendor=vendor, gluon=calling(inner()))
    launched(again)
    assert gpu.tuned == 2
    assert again.best_config.alternative == "gluon"
