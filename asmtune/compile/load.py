"""Loads an artifact for a launch, or hands it to Triton for its next one, without compiling again.

A launch needs nothing of the kernel's source: a `Binary` is text and bytes, and any process can run
it on its own arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.core.alternatives import calls_in_race
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.triton_api import caches, launching
from asmtune.triton_api.jit_functions import defaults, parameters


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
        signature = specialised.signature
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

    def compiled(self) -> Any:
        """Make Triton's `CompiledKernel`; the GPU loads it at its first launch."""
        return launching.compiled_kernel(
            self.machine, self.digest, self.cubin, self.metadata, self.signature
        )


def launch_values(problem: Problem, config: Config) -> dict[str, Any]:
    """Return the values of all parameters and the options."""
    return {**defaults(problem.kernel), **problem.bind(config)}


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
    kernel = binary.compiled()
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
        launching.build_launcher(binary.compiled())


def call_alternative(function: Callable[..., Any], problem: Problem) -> LoadedLaunch:
    """Make a launch that calls an alternative with a problem's arguments; it has no `pre_hook`."""
    names = [p.name for p in parameters(problem.kernel)]
    run, complete = calls_in_race(function, names, problem.arguments)
    return LoadedLaunch(lambda: None, run, complete=complete)


def hand_to_triton(lowering: Lowering, config: Config, cache: ArtifactCache) -> bool:
    """Put a config's artifact into Triton's cache by Triton's own `compile`.

    Does nothing where Triton would compile for another GPU, where the artifact is no longer in the
    cache or not by this process's compiler, or where the user watches or changes what Triton
    compiles. What fails here fails again in the launch, which says so.

    Returns:
        Whether a launch of the config will find it.
    """
    if launching.machine_in_use() != lowering.machine:
        return False
    request = lowering.request(config)
    if isinstance(request, Failure) or request.override is not None:
        return False
    here = caches.compiler_identity(), caches.environment()
    if (request.compiler, request.environment) != here:
        return False
    artifact = cache.get(request.digest)
    if not isinstance(artifact, Artifact) or "llir" not in artifact.outputs:
        return False
    specialised = lowering.specialise(config)
    if isinstance(specialised, Failure):
        return False
    compiled = caches.CompiledCode(artifact.outputs, artifact.cubin, artifact.metadata)
    put = guarded(
        "launch", lambda: caches.put_into_cache(specialised, lowering.toolchain, compiled)
    )
    return put is True


def hash_triton(lowering: Lowering) -> None:
    """Have Triton hash its files for the keys of its cache, if `hand_to_triton` will use one.

    It does so once a process: 0.3 to 0.5 s on an H200's host, in which other threads run.
    """
    if launching.machine_in_use() == lowering.machine:
        caches.hash_triton()
