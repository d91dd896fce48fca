"""Kernel files imported as on a GPU that is assumed: their questions are answered for it.

A statement that asks for the GPU and then fails wants results that only a GPU has, as a test at the
end of a tutorial does. It is left out, unless it defines or imports something.
"""

from __future__ import annotations
import __future__

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from asmtune.base.errors import USER_CODE_ERRORS
from asmtune.base.text import shortened

if TYPE_CHECKING:
    from asmtune.triton_api.assumed_gpu import AssumedGpu

_assumed: list[AssumedGpu] = []

_answered_by: dict[str, str] = {}
"""Names of the GPUs that answered while files were imported, by module."""

_left_out: dict[str, dict[int, str]] = {}
"""Statements that failed while a file was imported for an assumed GPU, by module."""

_DEFINITIONS: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Import, ast.ImportFrom),
)
_FUTURE: Final = sum(
    getattr(__future__, name).compiler_flag
    for name in __future__.all_feature_names
    if name != "nested_scopes"  # its flag is that of another
)


@contextmanager
def importing_for(gpu: AssumedGpu) -> Iterator[None]:
    """Import kernel files as on an assumed GPU."""
    _assumed.append(gpu)
    try:
        yield
    finally:
        _assumed.pop()


def left_out(module: ModuleType) -> str | None:
    """Say which statements of a kernel file were left out, and why the first; None if none was."""
    lines = _left_out.get(module.__name__)
    if not lines:
        return None
    where = Path(module.__file__ or module.__name__).name
    told = "; ".join(f"line {line}: {cause}" for line, cause in [*lines.items()][:2])
    more = f"; and {len(lines) - 2} more" if len(lines) > 2 else ""
    return f"{where}: left out at import, for want of a GPU's results: {told}{more}"


@contextmanager
def answering(module: str) -> Iterator[None]:
    """Import what a module's file needs first, on the GPU that is assumed, where one is."""
    _answered_by.pop(module, None)
    if not _assumed:
        yield
        return
    from asmtune.core.assumed_tensors import on_assumed_gpu

    gpu = _assumed[-1]
    gpu.was_asked = False
    with on_assumed_gpu(gpu):
        yield
    if gpu.was_asked:
        _answered_by[module] = gpu.name


def is_valid(module: str) -> bool:
    """Return whether an imported file is as it would be if it was imported now."""
    name = _assumed[-1].name if _assumed else None
    return _answered_by.get(module) in (None, name)


def execute(module: ModuleType, file: Path) -> bool:
    """Execute a file's statements one after another; return False where no GPU is assumed."""
    failed = _left_out[module.__name__] = {}
    if not _assumed:
        return False
    from asmtune.core.assumed_tensors import on_assumed_gpu

    gpu = _assumed[-1]
    tree = ast.parse(file.read_bytes(), str(file))
    module.__doc__ = ast.get_docstring(tree)
    future, was_asked = 0, False
    with on_assumed_gpu(gpu):
        for statement in tree.body:
            gpu.was_asked = False
            one = ast.Module([statement], [])
            code = compile(one, str(file), "exec", future, dont_inherit=True)
            future |= code.co_flags & _FUTURE
            try:
                exec(code, vars(module))
            except (*USER_CODE_ERRORS, OSError, RuntimeError) as error:
                wants = gpu.was_asked or _wants_gpu(error, failed)
                if not wants or isinstance(statement, _DEFINITIONS):
                    raise
                cause = " ".join(f"{type(error).__name__}: {error}".split())
                failed[statement.lineno] = shortened(cause, 80)
            finally:
                was_asked |= gpu.was_asked
    gpu.was_asked = was_asked
    if was_asked:
        _answered_by[module.__name__] = gpu.name
    return True


def _wants_gpu(error: Exception, failed: dict[int, str]) -> bool:
    """Return whether a statement that did not ask failed for want of a GPU all the same.

    It reads a value of a tensor, calls what only CUDA's build has, or follows on a statement that
    was left out.
    """
    from asmtune.core.assumed_tensors import UnknownValueError

    is_later = isinstance(error, NameError) and bool(failed)
    return isinstance(error, UnknownValueError) or is_later or "CUDA" in str(error)


def note_asked(module: ModuleType, name: str) -> None:
    """Note that a file's functions were answered by an assumed GPU, and may have kept it."""
    _answered_by[module.__name__] = name
