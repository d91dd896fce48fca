"""Fixtures of machines without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.runtime.patching.redirect import patch
from tests.dispatch.host import Host, Told, make_host
from tests.dispatch.host_gpu import EFFORT, HostGpu, host_gpu
from tests.dispatch.torch_support import Imagined


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imagined:
    """A machine with an imagined GPU, a fresh cache folder, and PyTorch's compiler for it."""
    torch.compiler.reset()
    return Imagined().installed(tmp_path, monkeypatch)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A machine with an imagined H200 and an empty store, on which keys are missed."""
    return make_host(tmp_path / "cache", monkeypatch)


@pytest.fixture
def told() -> Told:
    """Nothing told yet."""
    return Told()


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A host in the place of a GPU, and a fresh store."""
    return host_gpu(tmp_path, monkeypatch)


@pytest.fixture(params=["asm_autotune", "patched"])
def autotune(request: pytest.FixtureRequest, gpu: HostGpu) -> Iterator[Callable[..., Any]]:
    """The decorator as asmtune has it, and Triton's own, patched."""
    if request.param == "asm_autotune":
        yield partial(asm_autotune, skip_tuning_below_us=None, effort=EFFORT)
        return
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        yield triton.autotune
