"""What the environment sets: read here, once, and nowhere else.

| variable | meaning | default |
|---|---|---|
| ASMTUNE_CACHE_DIR | folder of the store and of compiled artifacts | the user's cache folder |
| ASMTUNE_ARTIFACTS_MB | size limit of the artifacts, in MiB | 2048 |
| ASMTUNE_JOBS | compiles at once | one a CPU |
| ASMTUNE_COMPILE_TIMEOUT_S | seconds after which one compile is ended | 30 |
| ASMTUNE_COMPILE_MEMORY_MB | address space of one compile, in MiB | 16384 |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from asmtune.errors import InputError

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and places, taken from the environment unless given.

    Attributes:
        cache_dir: folder of the store (`store.sqlite`) and of the artifacts.
        artifacts_bytes: the artifacts on disk take no more than this; the
            least recently used go first.
        jobs: compiles at once.
        compile_timeout_s: seconds one compile may take. On a 16-core machine
            with all cores busy a GEMM config took at most 0.65 s, while one
            softmax config kept LLVM busy for 9 minutes.
        compile_memory_bytes: address space one compile may take.
    """

    cache_dir: Path
    artifacts_bytes: int = 2048 * _MIB
    jobs: int = 1
    compile_timeout_s: float = 30.0
    compile_memory_bytes: int = 16384 * _MIB

    @property
    def artifacts_dir(self) -> Path:
        """Folder of compiled artifacts."""
        return self.cache_dir / "artifacts"

    @property
    def store_path(self) -> Path:
        """File of the store of tuned configs and timings."""
        return self.cache_dir / "store.sqlite"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Settings as `environ` (the process's own by default) gives them.

        Raises:
            InputError: a variable is not a positive number; names it.
        """
        env = os.environ if environ is None else environ
        folder = env.get("ASMTUNE_CACHE_DIR")
        return cls(
            cache_dir=Path(folder).expanduser() if folder else user_cache_path("asmtune"),
            artifacts_bytes=int(_positive(env, "ASMTUNE_ARTIFACTS_MB", 2048) * _MIB),
            jobs=_whole(env, "ASMTUNE_JOBS", len(os.sched_getaffinity(0))),
            compile_timeout_s=_positive(env, "ASMTUNE_COMPILE_TIMEOUT_S", 30),
            compile_memory_bytes=int(_positive(env, "ASMTUNE_COMPILE_MEMORY_MB", 16384) * _MIB),
        )


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    value = _positive(env, name, default)
    if value != int(value):
        raise InputError(f"environment variable {name}={env[name]!r}: expected a whole number")
    return int(value)


def _positive(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise InputError(f"environment variable {name}={text!r}: expected a number above 0")
    return value
