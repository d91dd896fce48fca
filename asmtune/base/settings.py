"""Settings from environment variables; no other module reads them.

| variable | meaning | default |
|---|---|---|
| ASMTUNE_CACHE_DIR | folder of the store and of compiled artifacts | the user's cache folder |
| ASMTUNE_STORE_URL | store: a path, or a URL such as postgresql://user@host/db | in that folder |
| ASMTUNE_TARGETS | folder of your own descriptors of devices | targets in that folder |
| ASMTUNE_WAIT_S | seconds to wait for a process that tunes the same key; 0 does not wait | 600 |
| ASMTUNE_ARTIFACTS_MB | size limit of the artifacts, in MiB | 2048 |
| ASMTUNE_JOBS | compiles at once; at most four a CPU, or eight | one per CPU |
| ASMTUNE_COMPILE_TIMEOUT_S | seconds after which one compile is ended | 30 |
| ASMTUNE_COMPILE_MEMORY_MB | address space of one compile, in MiB | 16384 |
| ASMTUNE_DETERMINISTIC | 1: launches time nothing, and a key gets the same config everywhere | 0 |
| ASMTUNE_LAUNCH | launcher: "python" (slow), or "auto": the C part if it builds | auto |
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean, user_stacklevel
from asmtune.base.trust import UntrustedError, private_folder, trusted_folder

_MIB = 1 << 20
_MOST_JOBS: Final = 4096
_MOST_SECONDS: Final = 1e6  # the system refuses to wait for more than 25 days
_MOST_MIB: Final = 1 << 30  # sizes in bytes stay within the numbers that the system takes

KNOWN: Final = frozenset(
    f"ASMTUNE_{name}"
    for name in (
        *("CACHE_DIR", "STORE_URL", "TARGETS", "WAIT_S", "ARTIFACTS_MB", "JOBS"),
        *("COMPILE_TIMEOUT_S", "COMPILE_MEMORY_MB", "DETERMINISTIC", "LAUNCH"),
    )
)
"""The variables of the table above, which `python -OO` leaves out."""

_INTERNAL: Final = ("ASMTUNE_TEST", "ASMTUNE_COUNTED_LAUNCH")
"""Beginnings of variables of the project's tests, and of processes that it starts."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and folders, taken from the environment unless given; sizes are in bytes.

    The fields are the variables of the table above. A URL of a store may hold a password. On a
    16-core machine with all cores busy a GEMM config took at most 0.65 s to compile; one softmax
    config kept LLVM busy for 9 minutes.
    """

    cache_dir: Path
    store_url: str = field(default="", repr=False)
    targets: str = ""
    wait_s: float = 600.0
    artifacts_bytes: int = 2048 * _MIB
    jobs: int = 1
    compile_timeout_s: float = 30.0
    compile_memory_bytes: int = 16384 * _MIB
    launch: str = "auto"

    @property
    def artifacts_dir(self) -> Path:
        """Return the folder of compiled artifacts."""
        return self.cache_dir / "artifacts"

    @property
    def overrides_dir(self) -> Path:
        """Return the folder of copies of hand-edited IR files that configs name."""
        return self.cache_dir / "overrides"

    @property
    def store_path(self) -> Path:
        """Return the store's SQLite file, unless `store_url` names another database."""
        return self.cache_dir / "store.sqlite"

    @property
    def store_where(self) -> str:
        """Return the path or URL of the store; not for messages, since it may hold a password."""
        return self.store_url or str(self.store_path)

    @property
    def targets_dir(self) -> Path:
        """Return the folder of the user's descriptors of devices."""
        return Path(self.targets).expanduser() if self.targets else self.cache_dir / "targets"

    @property
    def runs_dir(self) -> Path:
        """Return the folder of the traces of tuning runs."""
        return self.cache_dir / "runs"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read settings from `environ`, by default the process's own environment.

        A launch reads the process's own, and does not fail for want of a cache: where others may
        write in the folder, a private one is used until the process ends, with a warning.

        Raises:
            InputError: a variable has an invalid value, or one of `environ` names a cache folder
                that others may write; names it.
        """
        env, cpus = os.environ if environ is None else environ, len(os.sched_getaffinity(0))
        for name in env:
            if name.startswith("ASMTUNE_") and name not in KNOWN:
                _warn_unknown(name)
        jobs = int(_number(env, "ASMTUNE_JOBS", cpus, _MOST_JOBS, "whole"))
        return cls(
            cache_dir=_cache_folder(
                env.get("ASMTUNE_CACHE_DIR", ""), is_strict=environ is not None
            ),
            store_url=env.get("ASMTUNE_STORE_URL", ""),
            targets=env.get("ASMTUNE_TARGETS", ""),
            wait_s=_number(env, "ASMTUNE_WAIT_S", 600, _MOST_SECONDS, "of 0 or more"),
            artifacts_bytes=int(_number(env, "ASMTUNE_ARTIFACTS_MB", 2048, _MOST_MIB) * _MIB),
            # A setting that many machines share must not overwhelm the small ones.
            jobs=min(jobs, max(8, 4 * cpus)),
            compile_timeout_s=_number(env, "ASMTUNE_COMPILE_TIMEOUT_S", 30, _MOST_SECONDS),
            compile_memory_bytes=int(
                _number(env, "ASMTUNE_COMPILE_MEMORY_MB", 16384, _MOST_MIB) * _MIB
            ),
            launch=_one_of(env, "ASMTUNE_LAUNCH", ("auto", "python")),
        )


def deterministic_by_environment() -> bool:
    """Return whether ASMTUNE_DETERMINISTIC is set; a launch asks, and has no time for the rest.

    Raises:
        InputError: it is neither 0 nor 1.
    """
    return _one_of(os.environ, "ASMTUNE_DETERMINISTIC", ("0", "1")) == "1"


class SettingWarning(UserWarning):
    """An environment variable is named like a setting, but no setting has its name."""


@cache
def _warn_unknown(name: str) -> None:
    if not name.startswith(_INTERNAL):
        warnings.warn(
            f"environment variable {name} is no setting and has no effect: they are "
            f"{', '.join(sorted(KNOWN))}{did_you_mean(name, KNOWN)}",
            SettingWarning,
            stacklevel=user_stacklevel("functools"),
        )


def check_cache_folder() -> None:
    """Refuse a cache folder that the user named and others may write; a launch only warns.

    Raises:
        InputError: others may; says what to do.
    """
    if named := os.environ.get("ASMTUNE_CACHE_DIR", ""):
        _cache_folder(named, is_strict=True)


def _cache_folder(named: str, *, is_strict: bool) -> Path:
    """Return the folder that the user named, or the usual one, if only the user may write it."""
    folder = Path(named).expanduser() if named else user_cache_path("asmtune")
    try:
        trusted_folder(folder)
    except UntrustedError as error:
        problem = f"{error}, or set ASMTUNE_CACHE_DIR to a folder of your own"
    except OSError:
        return folder  # the first to write says why it cannot be used
    else:
        return folder
    if named and is_strict:
        raise InputError(f"environment variable ASMTUNE_CACHE_DIR={named!r}: {problem}")
    try:
        return private_folder(folder, "cache folder", problem)
    except OSError as error:
        raise InputError(f"cache folder {folder}: {problem} ({error.strerror})") from error


def _one_of(env: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = env.get(name, "") or known[0]
    if value not in known:
        allowed = ", ".join(known)
        raise InputError(f"environment variable {name}={value!r}: expected one of {allowed}")
    return value


def _number(
    env: Mapping[str, str], name: str, default: float, most: float, kind: str = "above 0"
) -> float:
    """Read a number of a kind: "above 0", "of 0 or more" or "whole", which is above 0."""
    text = env.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    fits = 0 <= value < float("inf") and (value > 0 or kind == "of 0 or more")
    if not fits or (kind == "whole" and value != int(value)):
        wanted = "a whole number above 0" if kind == "whole" else f"a number {kind}"
        raise InputError(f"environment variable {name}={text!r}: expected {wanted}")
    if value > most:
        raise InputError(f"environment variable {name}={text!r}: expected at most {most:,.0f}")
    return value
