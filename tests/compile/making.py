"""Single requests compiled in a sandbox's child, as workers do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache, ArtifactFolders
from asmtune.compile.lower import LowerRequest
from asmtune.compile.pool import whole
from asmtune.compile.sandbox import Sandbox, borrow_sandbox
from asmtune.compile.worker import (
    CompileItem,
    CompileSite,
    Made,
    Maker,
    made_in,
    make_artifact,
    make_sketch,
)
from asmtune.core.records.artifacts import Artifact, Failure, Sketch


@dataclass(frozen=True)
class _SiteWithParent(CompileSite):
    """A site in whose folder a config without its register cap lies."""

    parent: Artifact | None = None

    def stored(self, digest: str) -> Artifact | Failure | None:
        """Return the one."""
        is_asked = self.parent is not None and self.parent.digest == digest
        return self.parent if is_asked else None


def _of_parent(parent: Artifact | None, item: CompileItem, site: CompileSite) -> Made:
    return make_artifact(item, _SiteWithParent(site.place, site.compiler, parent))


NOWHERE = ArtifactFolders((Path("/nowhere"),), b"x")


def _made(sandbox: Sandbox, make: Maker, request: LowerRequest, limit_s: float) -> Any:
    settings = replace(Settings(cache_dir=Path("unused")), compile_timeout_s=limit_s)
    result = made_in(sandbox, CompileItem(0, request), (make, whole, NOWHERE), settings)
    outcome = result.outcome
    return outcome if isinstance(outcome, Failure) else outcome.reading


def compiled_in(
    sandbox: Sandbox, request: LowerRequest, limit_s: float = 60, parent: Artifact | None = None
) -> Artifact | Failure:
    """Compile a request; `parent` is the artifact without its register cap."""
    made: Artifact | Failure = _made(sandbox, partial(_of_parent, parent), request, limit_s)
    return made


def sketched_in(sandbox: Sandbox, request: LowerRequest, limit_s: float = 60) -> Sketch | Failure:
    """Compile a request as far as LLVM."""
    made: Sketch | Failure = _made(sandbox, make_sketch, request, limit_s)
    return made


def sketch_one(request: LowerRequest, settings: Settings) -> Sketch | Failure:
    """Compile one request as far as LLVM, and keep it as workers do."""
    cache = ArtifactCache.of(settings)
    how = make_sketch, whole, cache.prepare()
    with borrow_sandbox(settings.compile_memory_bytes) as sandbox:
        result = made_in(sandbox, CompileItem(0, request), how, settings)
    if result.entry is not None:
        cache.keep(request.digest, result.entry)
    outcome: Any = result.outcome
    return outcome if isinstance(outcome, Failure) else outcome.reading
