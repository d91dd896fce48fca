"""Launches of the kernels' public functions, and the keys of their configs; needs no GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from asmtune.base.fingerprint import digest
from asmtune.compile.source import source_digest
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import autotuners
from benchmarks.kernels.plan import Place
from tests.kernels.accuracy import module_of

DEVICE = "NVIDIA H200"
"""The device that configs are shipped for."""

Identity = tuple[TuneKey, Provenance]


def identities(place: Place, device: str = DEVICE) -> list[Identity]:
    """The key of each launch that a row's public function makes, and what a record must hold.

    Tensors are without memory, and nothing is launched.

    Args:
        place: the row.
        device: the name of the GPU in the keys.
    """
    module = module_of(place.kernel)
    with described(device) as found, torch.no_grad():
        getattr(module, place.kernel)(**module.inputs(place.shape, place.dtype, "meta"))
    return found


@contextmanager
def described(device: str) -> Iterator[list[Identity]]:
    """Launches of decorated kernels are listed instead of made."""
    found: list[Identity] = []

    def launcher(tuner: AsmAutotuner, grid: Any) -> Any:  # noqa: ARG001 - Triton's
        def launch(*args: Any, **named: Any) -> None:
            placed = dict(zip(tuner.arg_names, args, strict=False))
            found.append(tuner.identity({**placed, **named}, device))

        return launch

    with mock.patch.object(AsmAutotuner, "__getitem__", launcher):
        yield found


@cache
def source_of(name: str) -> str:
    """Digest of the sources of all kernels that a module tunes; 12 digits."""
    tuners = autotuners(module_of(name))
    return digest(*sorted(source_digest(tuner.fn) for tuner in tuners))[:12]


def kernel_modules() -> list[ModuleType]:
    """The modules of `asmtune.kernels` that are loaded, those that kernels share among them."""
    return [m for n, m in sorted(sys.modules.items()) if n.startswith("asmtune.kernels.")]
