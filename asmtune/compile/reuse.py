"""Hands an artifact to Triton, so that its next launch of the config does not compile again."""

from __future__ import annotations

import contextlib

from asmtune.base.errors import StoreError
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.triton_api import caches
from asmtune.triton_api.launching import machine_in_use


def hand_to_triton(lowering: Lowering, config: Config, cache: ArtifactCache) -> bool:
    """Put a config's artifact into Triton's cache by Triton's own `compile`.

    Does nothing where Triton would compile for another GPU, where the artifact is no longer in the
    cache or not by this process's compiler, or where the user watches or changes what Triton
    compiles. What fails here fails again in the launch, which says so.

    Returns:
        Whether a launch of the config will find it.
    """
    if machine_in_use() != lowering.machine:
        return False
    request = lowering.request(config)
    if isinstance(request, Failure) or request.override is not None:
        return False
    here = caches.compiler_identity(), caches.environment()
    if (request.compiler, request.environment) != here:
        return False
    artifact = None
    with contextlib.suppress(StoreError):
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
    if machine_in_use() == lowering.machine:
        caches.hash_triton()
