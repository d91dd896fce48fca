"""Loads an artifact for a launch, without compiling again.

A launch needs nothing of the kernel's source: a `Binary` is text and bytes, and any process can run
it on its own arguments.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver

from asmtune.base.child import temporary_files
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.core.alternatives import calls_in_race
from asmtune.core.config import Config
from asmtune.core.problem import Problem, jit_function
from asmtune.core.records.artifacts import Artifact, Failure


@dataclass(frozen=True)
class LoadedLaunch:
    """Holds one config of a problem, ready to run.

    Attributes:
        prepare: runs the config's `pre_hook`, if it has one; not timed.
        run: launches once on the current stream.
        finish: runs after a launch that raised nothing; not timed.
        complete: writes what `run` has left unwritten, before `finish`; not timed, except in a
            graph.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]
    finish: Callable[[], None] = lambda: None
    complete: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Binary:
    """Holds a compiled config and how to launch it, without any code of the user.

    Attributes:
        digest: the artifact's digest.
        cubin: the ELF file.
        metadata: Triton's own, as JSON values.
        machine: Triton's (backend, arch, warp size).
        signature: Triton's type of every parameter, in order; of a tuple, a tuple of types.
        grid: programs along three axes.
    """

    digest: str
    cubin: bytes
    metadata: Mapping[str, Any]
    machine: tuple[str, int | str, int]
    signature: Mapping[str, Any]
    grid: tuple[int, int, int]

    @classmethod
    def of(cls, lowering: Lowering, config: Config, artifact: Artifact) -> Binary | Failure:
        """Make the binary of a compiled config, or return why options or grid are refused."""
        specialised = lowering.specialise(config)
        if isinstance(specialised, Failure):
            return specialised
        signature = dict(specialised.source.signature)
        grid = lowering.problem.grid_of(config)
        if isinstance(grid, Failure):
            return grid
        return cls(
            artifact.digest,
            artifact.cubin,
            artifact.metadata,
            lowering.machine,
            signature,
            grid,
        )


def launch_values(problem: Problem, config: Config) -> dict[str, Any]:
    """Return the values of all parameters and the options."""
    defaults = {p.name: p.default for p in jit_function(problem.kernel).params if p.has_default}
    return {**defaults, **problem.bind(config)}


def load_cached(
    lowering: Lowering, config: Config, cache: ArtifactCache, digest: str | None
) -> tuple[Artifact, LoadedLaunch] | Failure:
    """Load a config's compiled artifact by its digest, and make a launch of it.

    If the cache has dropped the artifact meanwhile, returns a failure of kind "lost".
    """
    artifact = None if digest is None else cache.get(digest)
    if artifact is None:
        return Failure("launch", "lost", "its artifact is no longer in the cache")
    if isinstance(artifact, Failure):
        return artifact
    launch = load(lowering, config, artifact)
    return launch if isinstance(launch, Failure) else (artifact, launch)


def load(lowering: Lowering, config: Config, artifact: Artifact) -> LoadedLaunch | Failure:
    """Make a launch of a compiled config with its problem's own arguments.

    Nothing reaches the GPU before the first `run`.
    """
    binary = Binary.of(lowering, config, artifact)
    if isinstance(binary, Failure):
        return binary
    return launch_of(binary, launch_values(lowering.problem, config), config.pre_hook)


def launch_of(
    binary: Binary, values: Mapping[str, Any], pre_hook: Callable[..., Any] | None
) -> LoadedLaunch:
    """Make a launch of a binary.

    `values` are those of all parameters, maybe of others too; `prepare` gives the hook all of them,
    and the grid, of which only the sizes are known here.
    """
    kernel = handle(binary)
    arguments = [values[name] for name in binary.signature]
    grid = binary.grid

    def run() -> None:
        kernel[grid](*arguments)

    def prepare() -> None:
        if pre_hook is not None:
            pre_hook({**values, "grid": grid, "warmup": False})

    return LoadedLaunch(prepare, run)


def build_launcher(lowering: Lowering, config: Config, artifact: Artifact) -> None:
    """Have Triton's cache hold its launcher, which all configs of a kernel have in common.

    The C compiler takes 0.24 s on an H200's host, which need not wait for the first launch. Where
    it fails, that launch says why.
    """
    import torch

    binary = Binary.of(lowering, config, artifact)
    if isinstance(binary, Binary) and torch.cuda.is_available():
        kernel = handle(binary)
        driver.active.launcher_cls(kernel.src, kernel.metadata)


def call_alternative(function: Callable[..., Any], problem: Problem) -> LoadedLaunch:
    """Make a launch that calls an alternative with a problem's arguments; it has no `pre_hook`."""
    parameters = [p.name for p in jit_function(problem.kernel).params]
    run, complete = calls_in_race(function, parameters, problem.arguments)
    return LoadedLaunch(lambda: None, run, complete=complete)


def handle(binary: Binary) -> Any:
    """Make Triton's `CompiledKernel` of a binary; the GPU loads it at its first launch."""
    backend, arch, warp_size = binary.machine
    metadata: Mapping[str, Any] = {
        **binary.metadata,
        "hash": binary.digest,
        "target": {"backend": backend, "arch": arch, "warp_size": warp_size},
    }
    with temporary_files(), tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
        suffix = "hsaco" if backend == "hip" else "cubin"
        described, code = Path(folder) / "kernel.json", Path(folder) / f"kernel.{suffix}"
        described.write_text(json.dumps(metadata))
        code.write_bytes(binary.cubin)
        group = {path.name: str(path) for path in (described, code)}
        # The part of an `ASTSource` that Triton's launcher is made from. The launcher knows a
        # constexpr by its type in the signature, and does not need its value.
        function = SimpleNamespace(arg_names=tuple(binary.signature))
        source = SimpleNamespace(signature=binary.signature, fn=function, constants={})
        # It reads its files at once, so they can be deleted.
        return CompiledKernel(source, group, binary.digest)
