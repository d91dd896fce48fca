"""Fixtures of what PyTorch does with autotuned kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.dispatch.host import Host, make_host
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
