"""Hands an artifact to Triton, so that its next launch of the config does not compile again.

Triton's own `compile` runs with its own front end, and writes its own cache, which the launch then
reads. TTIR and TTGIR are made again, a tenth of a compile. If both are those of the artifact, the
stages after them, LLVM and the assembler, return what the artifact holds; if not, nothing is
written that Triton would read, and the launch compiles as ever.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from inspect import getfile
from types import FunctionType
from typing import Any, Final

import torch
from triton import knobs
from triton.compiler import compiler
from triton.runtime.cache import triton_key
from triton.runtime.driver import driver

from asmtune.base.errors import StoreError
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.compile.toolchain import (
    Specialised,
    StageFunction,
    Toolchain,
    compiler_identity,
    environment,
)
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Artifact, Failure

_WATCHES: Final = re.compile(
    "(TRITON|MLIR|LLVM|NVPTX|AMDGCN)_.*(DUMP|TIMING|DEBUG|DIAGNOSTICS|REPRODUCER|PLUGIN|ASAN|EXTRACT)"
).match
"""Variables that show or change what the compiler does while it runs."""

_LLVM_WRITES: Final = "num_warps"
"""The option that LLVM's stage writes again: a warp-specialised kernel gets more."""

_WATCHED_KNOBS: Final = (
    "override", "dump_ir", "always_compile", "use_ir_loc", "enable_asan", "instrumentation_mode",
)  # fmt: skip


def hand_to_triton(lowering: Lowering, config: Config, cache: ArtifactCache) -> bool:
    """Put a config's artifact into Triton's cache by Triton's own `compile`.

    Does nothing where Triton would compile for another GPU, where the artifact is no longer in the
    cache or not by this process's compiler, or where the user watches or changes what Triton
    compiles: hooks, dumps, overrides, knobs, patched stages. What fails here fails again in the
    launch, which tells it.

    Returns:
        Whether a launch of the config will find it.
    """
    if _is_watched() or not _is_here(lowering.machine):
        return False
    request = lowering.request(config)
    if isinstance(request, Failure) or request.override is not None:
        return False
    if (request.compiler, request.environment) != (compiler_identity(), environment()):
        return False
    artifact = None
    with contextlib.suppress(StoreError):
        artifact = cache.get(request.digest)
    if not isinstance(artifact, Artifact) or "llir" not in artifact.outputs:
        return False
    specialised = lowering.specialise(config)
    if isinstance(specialised, Failure):
        return False
    backend = compiler.make_backend(compiler.GPUTarget(*lowering.machine))
    if not _is_plain(backend):
        return False
    stages = _Stages(request.ttir, artifact, backend, lowering.toolchain)
    # Triton caches what its backends compute, and with it the backends.
    backend.add_stages = stages.add
    try:
        return not isinstance(guarded("launch", lambda: _compile(backend, specialised)), Failure)
    finally:
        del backend.add_stages


def hash_triton(lowering: Lowering) -> None:
    """Have Triton hash its files for the keys of its cache, if `hand_to_triton` will use one.

    It does so once a process: 0.3 to 0.5 s on an H200's host, in which other threads run.
    """
    if _is_here(lowering.machine):
        triton_key()


def _compile(backend: Any, specialised: Specialised) -> None:
    """Run Triton's `compile` with a backend of this call alone: nothing that is shared changes."""
    own = compiler.compile
    scope = {**own.__globals__, "make_backend": lambda _target: backend}
    run = FunctionType(own.__code__, scope, own.__name__, own.__defaults__)
    run(specialised.source, target=backend.target, options=specialised.options.__dict__)


def _is_here(machine: tuple[str, int | str, int]) -> bool:
    """Return whether a launch of this thread would be compiled for a machine."""
    # To ask would initialise CUDA, which breaks processes that are forked later.
    if driver._active is None and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    target = guarded("launch", lambda: driver.active.get_current_target())
    if isinstance(target, Failure):  # there is no GPU
        return False
    return (target.backend, target.arch, target.warp_size) == machine


def _is_watched() -> bool:
    """Return whether the user watches or changes what Triton compiles."""
    compilation, runtime = knobs.compilation, knobs.runtime
    if any(getattr(compilation, name, None) for name in _WATCHED_KNOBS):
        return True
    if compilation.listener is not None:
        return True
    if getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return True
    # A knob set in Python need not be a variable too, and the workers read variables.
    groups = (compilation, knobs.nvidia, knobs.amd, knobs.language)
    if any(value is not None for group in groups for value in vars(group).values()):
        return True
    return any(map(_WATCHES, os.environ))


def _is_plain(backend: Any) -> bool:
    """Return whether compile and stages are those of Triton's files: nobody patched them."""
    kind, run = type(backend), compiler.compile
    stages = [
        getattr(value, "__func__", value) for name, value in vars(kind).items() if "make_" in name
    ]
    own = _is_of(run, compiler) and all(_is_of(stage, kind) for stage in (kind.add_stages, *stages))
    return (
        own
        and "make_backend" in run.__code__.co_names
        and not getattr(kind, "instrumentation", None)
    )


def _is_of(function: Any, place: Any) -> bool:
    """Return whether a function is written in the file of a module or class."""
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_filename == getfile(place))


class _OtherwiseError(Exception):
    """Says that Triton would compile something else than the artifact."""


class _Stages:
    """Stages of a backend that return an artifact's outputs from LLVM on."""

    def __init__(self, ttir: str, artifact: Artifact, backend: Any, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._ttir = ttir
        self._artifact = artifact
        self._binary = backend.binary_ext
        self._own = backend.add_stages

    def add(self, stages: dict[str, StageFunction], *rest: Any) -> None:
        """Fill in the stages in the place of the backend's own method."""
        self._own(stages, *rest)
        outputs = self._artifact.outputs
        names = list(stages)
        if (
            names[-4:-2] != ["ttgir", "llir"]
            or names[-2] not in outputs
            or names[-1] != self._binary
        ):
            raise _OtherwiseError
        stages[names[0]] = _checked(stages[names[0]], self._ttir.__eq__)
        stages["llir"] = _checked(self._llir, self._is_ttgir)
        stages[names[-2]] = lambda _module, _metadata: outputs[names[-2]]
        stages[names[-1]] = lambda _module, _metadata: self._artifact.cubin

    def _is_ttgir(self, text: str) -> bool:
        """Return whether a TTGIR text is the artifact's, but for the names of values.

        The artifact's was made from parsed TTIR, and a parser drops the names of a loop's
        variables, which mean nothing: of 65 compiles of the shipped kernels 11 differed so.
        """
        own = self._artifact.outputs["ttgir"]
        return text == own or self._printed(text) == self._printed(own)

    def _printed(self, text: str) -> str:
        return str(self._toolchain.parse(text))

    def _llir(self, _module: Any, metadata: dict[str, Any]) -> str:
        metadata.update(_written(self._artifact.metadata, metadata))
        return self._artifact.outputs["llir"]


def _written(stored: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that the stages after TTGIR wrote."""
    return {k: v for k, v in stored.items() if k not in before or k == _LLVM_WRITES}


def _checked(stage: StageFunction, accepts: Callable[[str], bool]) -> StageFunction:
    """Return a stage that runs only on a module whose text is accepted."""

    def checked(module: Any, metadata: dict[str, Any]) -> Any:
        if not accepts(str(module)):
            raise _OtherwiseError
        return stage(module, metadata)

    return checked
