"""Single requests compiled in a sandbox's child, as workers do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton import knobs

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one, whole
from asmtune.compile.sandbox import Sandbox, borrow_sandbox
from asmtune.compile.worker import Job, Maker, made_in, make_artifact, make_sketch
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact, Failure, Sketch

NOWHERE = (Path("/dev/null/artifacts"),)


def assembler(script: Path, body: str) -> dict[str, str]:
    """Write an assembler that says its version as Triton's own; return the variables for it."""
    own = knobs.nvidia.ptxas.path
    script.write_text(f'#!/bin/sh\nptxas={own}\n[ "$1" = --version ] && exec $ptxas "$1"\n{body}\n')
    script.chmod(0o755)
    return dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(script))


def accepted(lowering: Lowering, config: Config) -> LowerRequest:
    """Lower a config that the front end is to accept."""
    request = lowering.request(config)
    assert isinstance(request, LowerRequest), request
    return request


def compiled(lowering: Lowering, config: Config, settings: Settings) -> Artifact:
    """Compile a config that is to compile."""
    made = compile_one(accepted(lowering, config), settings)
    assert isinstance(made, Artifact), made
    return made


def _made(
    sandbox: Sandbox,
    make: Maker,
    request: LowerRequest,
    limit_s: float,
    folders: Sequence[Path] = NOWHERE,
) -> Any:
    settings = replace(Settings(cache_dir=Path("unused")), compile_timeout_s=limit_s)
    outcome = made_in(sandbox, request, Job(make, whole, folders), settings).outcome
    return outcome if isinstance(outcome, Failure) else outcome.reading


def compiled_in(sandbox: Sandbox, request: LowerRequest, limit_s: float = 60) -> Artifact | Failure:
    """Compile a request."""
    made: Artifact | Failure = _made(sandbox, make_artifact, request, limit_s)
    return made


def sketched_in(sandbox: Sandbox, request: LowerRequest, limit_s: float = 60) -> Sketch | Failure:
    """Compile a request as far as LLVM."""
    made: Sketch | Failure = _made(sandbox, make_sketch, request, limit_s)
    return made


def sketch_one(request: LowerRequest, settings: Settings) -> Sketch | Failure:
    """Compile one request as far as LLVM, and keep it as workers do."""
    folders = ArtifactCache.of(settings).prepare()
    with borrow_sandbox(settings.compile_memory_bytes) as sandbox:
        made: Sketch | Failure = _made(
            sandbox, make_sketch, request, settings.compile_timeout_s, folders
        )
    return made
