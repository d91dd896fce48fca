"""From an artifact to something that a GPU runs, without compiling again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton.compiler.compiler import CompiledKernel

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.config import Config
from asmtune.records import Artifact, Failure


@dataclass(frozen=True)
class Launch:
    """One config of a problem, ready to run.

    Attributes:
        prepare: runs the config's `pre_hook`, if it has one; not to be timed.
        run: launches once on the current stream.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]


def load_cached(
    lowering: Lowering, config: Config, cache: ArtifactCache, digest: str | None
) -> tuple[Artifact, Launch] | Failure:
    """A config's compiled artifact, found by its digest, and a launch of it.

    An artifact that the cache has dropped meanwhile is a failure of kind "lost".
    """
    artifact = None if digest is None else cache.get(digest)
    if artifact is None:
        return Failure("launch", "lost", "its artifact is no longer in the cache")
    if isinstance(artifact, Failure):
        return artifact
    launch = load(lowering, config, artifact)
    return launch if isinstance(launch, Failure) else (artifact, launch)


def load(lowering: Lowering, config: Config, artifact: Artifact) -> Launch | Failure:
    """Makes a launch of a compiled config with its problem's own arguments.

    Nothing reaches the GPU before the first `run`.
    """
    specialised = lowering.specialise(config)
    if isinstance(specialised, Failure):
        return specialised
    kernel = _compiled_kernel(specialised.source, artifact, lowering.machine)
    problem = lowering.problem
    values = problem.bind(config)
    arguments = [values.get(p.name, p.default) for p in specialised.source.fn.params]
    grid = problem.programs(config)

    def run() -> None:
        kernel[grid](*arguments)

    def prepare() -> None:
        if config.pre_hook is not None:
            config.pre_hook(values)

    return Launch(prepare, run)


def _compiled_kernel(source: Any, artifact: Artifact, machine: tuple[str, int, int]) -> Any:
    """Triton's own handle; it reads its files at once, so that they need not stay."""
    backend, arch, warp_size = machine
    metadata: Mapping[str, Any] = {
        **artifact.metadata,
        "hash": artifact.digest,
        "target": {"backend": backend, "arch": arch, "warp_size": warp_size},
    }
    with tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
        group = {}
        texts = {"json": json.dumps(metadata), **artifact.outputs}
        for suffix, text in texts.items():
            path = Path(folder) / f"kernel.{suffix}"
            path.write_text(text)
            group[path.name] = str(path)
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(artifact.cubin)
        group[cubin.name] = str(cubin)
        return CompiledKernel(source, group, artifact.digest)
