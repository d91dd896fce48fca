"""The finder that waits for Triton in a program of `asmtune run`."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import asmtune.cli
from asmtune.core.kernel_module import import_module


class Loader:
    """Loads a module that has kernels, or none."""

    def __init__(self, *, has_kernels: bool) -> None:
        self.has_kernels = has_kernels

    def create_module(self, _: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module."""
        vars(module).update({"JITFunction": object} if self.has_kernels else {})


@pytest.mark.parametrize(
    ("name", "has_kernels", "patches"),
    [("triton", True, 1), ("triton", False, 0), ("asmtune.odd", True, 0), ("torch", True, 0)],
)
def test_triton_alone_is_patched(
    name: str, has_kernels: bool, patches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton is patched once it is loaded; what only has its name, or its kernels, is not."""
    prelude = import_module(str(Path(asmtune.cli.__file__).parent / "prelude/sitecustomize.py"))
    waiting, patched = prelude._Waiting("", False), list[int]()
    program: Any = SimpleNamespace(patch=lambda: patched.append(1))
    monkeypatch.setattr(waiting, "_loaded", lambda: program)
    loader = Loader(has_kernels=has_kernels)
    other = SimpleNamespace(find_spec=lambda found, *_: ModuleSpec(found, loader))
    monkeypatch.setattr(sys, "meta_path", [waiting, other])
    spec = waiting.find_spec(name) or other.find_spec(name)
    spec.loader.exec_module(ModuleType(name))
    assert len(patched) == patches
