"""Chooses where a test of a kernel runs: a GPU, or Triton's interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from asmtune.base.errors import InputError
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting


def choose_device() -> str:
    """Return "cuda" where there is a GPU, else "cpu", and choose Triton's interpreter there.

    Raises:
        InputError: Triton was imported before: it decides then how it runs kernels.
    """
    import torch

    if not is_interpreting():
        if torch.cuda.is_available():
            return "cuda"
        if "triton.language" in sys.modules:
            raise InputError(
                f"Triton was imported before its interpreter was chosen, and there is no GPU: set "
                f"{INTERPRET}=1, or import kernels by asmtune.kernel_checks.import_kernel"
            )
        os.environ[INTERPRET] = "1"
    return "cpu"


def import_kernel(kernel: str | Path) -> tuple[ModuleType, str]:
    """Import a kernel module for a test, and return it with the device to make inputs on.

    Args:
        kernel: a file, a dotted name, or the name of a shipped kernel.

    Raises:
        InputError: as `choose_device`, or there is no such module.
    """
    device = choose_device()
    from asmtune.core.kernel_module import import_module

    return import_module(str(kernel)), device
