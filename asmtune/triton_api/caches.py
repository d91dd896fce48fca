"""Keys of Triton's caches, and compiled code put into them.

Triton's own `compile` runs with its own front end, and writes its own cache, which a launch then
reads. TTIR and TTGIR are made again, a tenth of a compile. If both are those of the compiled code,
the stages after them, LLVM and the assembler, return what is there; if not, nothing is written that
Triton would read.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from inspect import getfile
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.compiler import compiler
from triton.runtime.cache import triton_key

from asmtune.base.fingerprint import canonical, digest, version_of
from asmtune.triton_api.compiler import Specialised, StageFunction, Toolchain

_VARIABLES: Final = {
    "DISABLE_PTXAS_OPT",
    "PTXAS_OPTIONS",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
}
"""Variables that Triton keys on by what they change; those that were ever set are added."""


def environment() -> dict[str, str | None]:
    """Return the variables that change what Triton's compiler emits; None for one not set."""
    _VARIABLES.update(get_cache_invalidating_env_vars())
    return {name: os.environ.get(name) for name in sorted(_VARIABLES)}


def compiler_identity() -> str:
    """Return what tells this compiler from another: Triton's files, and the user's own tools.

    Triton hashes its files' content, which takes 1.4 s in each process; sizes and times of change
    take 10 ms.
    """
    own = (os.environ.get(f"TRITON_{name}_PATH") for name in ("PTXAS", "PTXAS_BLACKWELL"))
    tools = [_tool_identity(path, _state(Path(path))) for path in own if path]
    library = os.environ.get("TRITON_LIBDEVICE_PATH")
    return canonical([_triton_identity(), *tools, _state(Path(library)) if library else None])


def front_end_identity() -> tuple[str, str | None]:
    """Return what tells this process's front end from another: Triton's files, and its knob.

    The knob may be set without its variable.
    """
    return _triton_identity(), knobs.language.fp32_default


@cache
def _triton_identity() -> str:
    root = Path(triton.__file__).parent
    folders = [root / name for name in ("_C", "backends", "compiler", "language")]
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    states = [(str(file.relative_to(root)), *_state(file)) for file in files if _is_code(file)]
    return digest(version_of("triton"), canonical(states))


def _is_code(file: Path) -> bool:
    return file.suffix in (".py", ".so", ".bc") or file.parent.name == "bin"


@lru_cache
def _tool_identity(path: str, state: tuple[int, ...]) -> list[Any]:
    """Return a tool's state and version: a script that calls another tool has the latter's."""
    try:
        version = subprocess.run(
            [path, "--version"],
            capture_output=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        version = type(error).__name__
    return [*state, version]


def _state(path: Path) -> tuple[int, ...]:
    """Return a file's size and time of change, which show a new content; () if it is missing."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_size, stat.st_mtime_ns


def hash_triton() -> None:
    """Have Triton hash its files for the keys of its cache, which it does once a process."""
    triton_key()


class CompiledCode(NamedTuple):
    """Holds what the stages of a compile gave: texts by stage, machine code, metadata."""

    outputs: Mapping[str, str]
    code: bytes
    metadata: Mapping[str, Any]


def put_into_cache(specialised: Specialised, toolchain: Toolchain, compiled: CompiledCode) -> bool:
    """Put compiled code into Triton's cache by Triton's own `compile`.

    Returns:
        Whether it is there. It is not where the user watches or changes what Triton compiles:
        hooks, dumps, overrides, knobs, patched stages.

    Raises:
        OtherCodeError: Triton would compile something else than this code.
        Exception: whatever Triton's front end raises.
    """
    backend = compiler.make_backend(toolchain.target)
    if _is_watched() or not _is_plain(backend):
        return False
    # Triton caches what its backends compute, and with it the backends.
    backend.add_stages = _Stages(compiled, backend, toolchain).add
    try:
        _compile(backend, specialised)
    finally:
        del backend.add_stages
    return True


def _compile(backend: Any, specialised: Specialised) -> None:
    """Run Triton's `compile` with a backend of this call alone: nothing that is shared changes."""
    own = compiler.compile
    scope = {**own.__globals__, "make_backend": lambda _target: backend}
    run = FunctionType(own.__code__, scope, own.__name__, own.__defaults__)
    run(specialised.source, target=backend.target, options=specialised.options.__dict__)


_WATCHES: Final = re.compile(
    "(TRITON|MLIR|LLVM|NVPTX|AMDGCN)_.*(DUMP|TIMING|DEBUG|DIAGNOSTICS|REPRODUCER|PLUGIN|ASAN|EXTRACT)"
).match
"""Variables that show or change what the compiler does while it runs."""

_LLVM_WRITES: Final = "num_warps"
"""The option that LLVM's stage writes again: a warp-specialised kernel gets more."""

_WATCHED_KNOBS: Final = (
    "override", "dump_ir", "always_compile", "use_ir_loc", "enable_asan", "instrumentation_mode",
)  # fmt: skip


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


class OtherCodeError(Exception):
    """Says that Triton would compile something else than the compiled code."""


class _Stages:
    """Stages of a backend that return compiled code from LLVM on."""

    def __init__(self, compiled: CompiledCode, backend: Any, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._compiled = compiled
        self._binary = backend.binary_ext
        self._own = backend.add_stages

    def add(self, stages: dict[str, StageFunction], *rest: Any) -> None:
        """Fill in the stages in the place of the backend's own method."""
        self._own(stages, *rest)
        outputs = self._compiled.outputs
        names = list(stages)
        if (
            names[-4:-2] != ["ttgir", "llir"]
            or names[-2] not in outputs
            or names[-1] != self._binary
        ):
            raise OtherCodeError
        stages[names[0]] = _checked(stages[names[0]], outputs["ttir"].__eq__)
        stages["llir"] = _checked(self._llir, self._is_ttgir)
        stages[names[-2]] = lambda _module, _metadata: outputs[names[-2]]
        stages[names[-1]] = lambda _module, _metadata: self._compiled.code

    def _is_ttgir(self, text: str) -> bool:
        """Return whether a TTGIR text is that of the compiled code, but for the names of values.

        That was made from parsed TTIR, and a parser drops the names of a loop's
        variables, which mean nothing: of 65 compiles of the shipped kernels 11 differed so.
        """
        own = self._compiled.outputs["ttgir"]
        return text == own or self._printed(text) == self._printed(own)

    def _printed(self, text: str) -> str:
        return str(self._toolchain.parse(text))

    def _llir(self, _module: Any, metadata: dict[str, Any]) -> str:
        metadata.update(_written(self._compiled.metadata, metadata))
        return self._compiled.outputs["llir"]


def _written(stored: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that the stages after TTGIR wrote."""
    return {k: v for k, v in stored.items() if k not in before or k == _LLVM_WRITES}


def _checked(stage: StageFunction, accepts: Callable[[str], bool]) -> StageFunction:
    """Return a stage that runs only on a module whose text is accepted."""

    def checked(module: Any, metadata: dict[str, Any]) -> Any:
        if not accepts(str(module)):
            raise OtherCodeError
        return stage(module, metadata)

    return checked
