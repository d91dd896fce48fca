"""Launches of the kernels' public functions and the keys of their configs; without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from triton.runtime.jit import JITFunction

from asmtune.base.fingerprint import digest
from asmtune.compile.source import source_digest
from asmtune.core.alternatives import call_of
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.kernels import (
    _gemm_host,
    _hopper,
    _scaled,
    attention,
    attention_backward,
)
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import autotuners
from benchmarks.kernels.plan import Place
from tests.kernels.accuracy import module_of

DEVICE = "NVIDIA H200"
"""The target that configs are shipped for."""

OURS = ("gluon",)
"""Alternatives that launch kernels with configs of their own."""

_ASK = (_gemm_host, _hopper, _scaled, attention, attention_backward)
"""Modules that ask if a device has the instructions of Hopper."""

Identity = tuple[TuneKey, Provenance]


def identities(
    place: Place, device: str = DEVICE, *, inside: Collection[str] = (), **options: bool
) -> list[Identity]:
    """List the key of each launch of a row's public function, and what its record must hold.

    Tensors are without memory, and nothing is launched.

    Args:
        place: the row.
        device: the name of the GPU in the keys.
        inside: alternatives whose launches in the place of another are listed too.
        options: further arguments of the public function.
    """
    module = module_of(place.kernel)
    with described(device, inside=inside) as launches, torch.no_grad():
        given = module.inputs(place.shape, place.dtype, "meta")
        getattr(module, place.kernel)(**given, **options)
    return launches


@contextmanager
def described(device: str, *, inside: Collection[str] = ()) -> Iterator[list[Identity]]:
    """List the launches of decorated kernels instead of making them, as `identities` does."""
    launches: list[Identity] = []
    # A kernel that is launched once a step is described once: its 2000 launches took 2 s.
    known: dict[object, Identity] = {}

    def launcher(tuner: AsmAutotuner, grid: Any) -> Any:  # noqa: ARG001 - Triton's
        def launch(*args: Any, **named: Any) -> None:
            if tuner.space.is_listed and tuner.space.size == 1:  # that is looked up nowhere
                return
            given = {**dict(zip(tuner.arg_names, args, strict=False)), **named}
            alike = (tuner, *((name, _kind(value)) for name, value in given.items()))
            met = alike in known
            if not met:
                request = tuner.request({}, given, (1,), device)
                known[alike] = request.key, request.expected
            launches.append(known[alike])
            named = {} if met else tuner.options.choices.get("alternatives") or {}
            for name in named.keys() & set(inside):
                call_of(named[name], tuner.arg_names, given)()

        return launch

    hopper = load_target(device, own=False).capability == 90
    with ExitStack() as patched:
        patched.enter_context(mock.patch.object(AsmAutotuner, "__getitem__", launcher))
        patched.enter_context(mock.patch.object(JITFunction, "run"))
        for module in _ASK:
            patched.enter_context(mock.patch.object(module, "is_hopper", return_value=hopper))
        yield launches


def _kind(value: Any) -> Any:
    """Return what tells a tensor of a launch from others, or the value itself."""
    if not isinstance(value, torch.Tensor):
        return type(value), repr(value)
    return value.dtype, value.shape, value.stride()


@cache
def source_of(name: str) -> str:
    """Digest the sources of all kernels that a module tunes, to 12 digits."""
    tuners = autotuners(module_of(name))
    return digest(*sorted({source_digest(tuner.fn) for tuner in tuners}))[:12]


def kernel_modules() -> list[ModuleType]:
    """List the loaded modules of `asmtune.kernels`, shared ones included."""
    return [m for n, m in sorted(sys.modules.items()) if n.startswith("asmtune.kernels.")]
