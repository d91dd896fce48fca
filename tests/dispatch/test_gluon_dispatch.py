"""Gluon kernels under `@asm_autotune` and `patch()`: tuned, stored, predicted and launched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.patching.redirect import patch
from asmtune.store.database import Store
from tests.dispatch.host_gpu import EFFORT, KERNELS, HostGpu, host_gpu
from tests.gluon_kernels import blocks, scale, scale_space

N = 4096


def _doubled(values: Mapping[str, Any]) -> None:
    values["y_ptr"].copy_(values["x_ptr"] * 2)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A host that stands for a GPU, for Gluon's kernels too."""
    monkeypatch.setitem(KERNELS, scale, _doubled)
    return host_gpu(tmp_path, monkeypatch)


def tuned(**options: Any) -> AsmAutotuner:
    """Decorate `scale` anew, as another process would."""
    return asm_autotune(
        space=scale_space, key=["n"], skip_tuning_below_us=None, effort=EFFORT, **options
    )(scale)


def launched(kernel: Any) -> None:
    """Launch it once, and check what it computes."""
    x, y = torch.arange(float(N)), torch.empty(N)
    kernel[blocks](x, y, N)
    assert torch.equal(y, 2 * x)


def test_a_gluon_kernel_is_tuned_and_stored(gpu: HostGpu, tmp_path: Path) -> None:
    """The first launch times configs, and a decorator that finds the winner stored times none."""
    first = tuned()
    launched(first)
    assert (gpu.tuned, first.best_config.kwargs["BLOCK"]) == (1, 512)
    with Store.open(tmp_path / "store.sqlite") as store:
        (record,) = store.records()
    assert not record.failures
    second = tuned()
    launched(second)
    assert gpu.tuned == 1
    assert second.best_config.all_kwargs() == first.best_config.all_kwargs()
    assert gpu.launched[-1]["num_warps"] == first.best_config.num_warps


def test_an_unchanged_program_tunes_its_gluon_kernels(gpu: HostGpu) -> None:
    """`triton.autotune` of a Gluon kernel goes to asmtune under a patch."""
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 512)]
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        kernel = triton.autotune(configs, key=["n"])(scale)
        launched(kernel)
    assert (gpu.tuned, kernel.best_config.kwargs) == (1, {"BLOCK": 512})
