"""Untuned Triton kernels for AI-Bench8, as one writes them at first: the baseline.

Each module has `kernel`, `CONFIGS` (launches of which the fastest counts, with Triton's own
warps and stages), `OUTPUTS`, and `problem(inputs)`, a launch from the arguments of the public
function in `asmtune.kernels`. Sizes are plain arguments, so that Triton sees which of them
are multiples of 16.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from asmtune.workshop.kernel_checks.reports import as_tuple
from benchmarks.aibench8.tasks import Task


def baseline_of(name: str) -> Any:
    """Import a kernel's baseline module."""
    return importlib.import_module(f"benchmarks.aibench8.baselines.{name}")


def exact(task: Task, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the expected outputs of the baseline in float64; integers for int8."""
    doubled = {
        name: value.double() if torch.is_tensor(value) else value for name, value in inputs.items()
    }
    own = getattr(baseline_of(task.name), "reference", None)
    expected = own(doubled) if own is not None else task.module.baseline(**doubled)
    return as_tuple(expected)
