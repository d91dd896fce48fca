"""Sketches of single requests, made here and now."""

from __future__ import annotations

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import LowerRequest
from asmtune.compile.sandbox import borrow_sandbox
from asmtune.compile.worker import CompileItem, CompileSite, make_sketch
from asmtune.core.records.artifacts import Failure, Sketch


def sketch_one(request: LowerRequest, settings: Settings) -> Sketch | Failure:
    """Compile one request as far as LLVM, and keep it as workers do."""
    cache = ArtifactCache.of(settings)
    place = cache.prepare()
    with borrow_sandbox(settings.compile_memory_bytes) as sandbox:
        site = CompileSite(settings, place, sandbox)
        outcome, entry = make_sketch(CompileItem(0, request), site)
    if entry is not None:
        cache.keep(request.digest, entry)
    return outcome
