"""Files and modules of kernels: which there are, and their import, told in one line if it fails."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

from asmtune.base.errors import ProblemError
from asmtune.base.fingerprint import digest
from asmtune.base.text import did_you_mean


def kernel_names() -> tuple[str, ...]:
    """Names of the kernels that come with asmtune."""
    package = importlib.import_module("asmtune.kernels")
    names = (m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in names if not name.startswith("_")))


def kernel_file(reference: str) -> Path:
    """The file of the kernel module that a reference names, without importing it.

    Raises:
        ProblemError: there is no such module, or no such file.
    """
    path = Path(reference)
    if path.suffix != ".py" and "/" not in reference:
        name = f"asmtune.kernels.{reference}" if reference in kernel_names() else reference
        spec = importlib.util.find_spec(name) if _is_package_path(name) else None
        if spec is None or spec.origin is None:
            raise ProblemError(f"unknown kernel {reference!r}: no module of this name")
        path = Path(spec.origin)
    if not path.is_file():
        raise ProblemError(f"kernel file {path}: no such file")
    return path


def import_module(reference: str) -> ModuleType:
    """The module of a shipped kernel's name, of a file, or of a package's module.

    Raises:
        ProblemError: there is none, or its code raised; names the line.
    """
    path = Path(reference)
    if path.suffix == ".py" or "/" in reference:
        return _import_file(path)
    if reference in kernel_names():
        return importlib.import_module(f"asmtune.kernels.{reference}")
    if _is_package_path(reference):
        return _guarded_import(reference, lambda: importlib.import_module(reference))
    hint = did_you_mean(reference, kernel_names())
    raise ProblemError(
        f"unknown kernel {reference!r}: the kernels are {', '.join(kernel_names())}{hint}; "
        "give a file as path/to/kernel.py"
    )


def _is_package_path(reference: str) -> bool:
    root, dot, _ = reference.partition(".")
    if not root or not dot:
        return False
    try:
        return importlib.util.find_spec(root) is not None
    except ValueError:  # a module without a spec, such as __main__
        return False


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ProblemError(f"kernel file {path}: no such file")
    # The same file is one module, whatever the path; two files never collide.
    unique = f"asmtune_kernel_{path.stem}_{digest(str(path.resolve()))[:12]}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, path)
    if spec is None or spec.loader is None:
        raise ProblemError(f"kernel file {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    loader = spec.loader

    def execute() -> ModuleType:
        with _packages_beside(path):
            loader.exec_module(module)
        return module

    with ExitStack() as undo:
        # Half a module, left there, would be taken for whole by the next import.
        undo.callback(sys.modules.pop, unique, None)
        whole = _guarded_import(str(path), execute)
        undo.pop_all()
        return whole


@contextmanager
def _packages_beside(path: Path) -> Iterator[None]:
    """A file that lies in a package can import the package's other modules meanwhile."""
    folder = path.resolve().parent
    inside = (folder / "__init__.py").is_file()
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    before = list(sys.path)
    sys.path[:0] = [str(folder)] * inside
    try:
        yield
    finally:
        sys.path[:] = before


def _guarded_import(where: str, execute: Callable[[], ModuleType]) -> ModuleType:
    try:
        return execute()
    except SyntaxError as error:
        raise ProblemError(f"{where}, line {error.lineno}: {error.msg}") from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, NameError) as error:
        raise _import_failure(where, error) from error
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise _import_failure(where, error) from error


def _import_failure(where: str, error: Exception) -> ProblemError:
    file = str(Path(where).absolute())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    line = f", line {frames[-1].lineno}" if frames else ""
    return ProblemError(f"{where}{line}: {type(error).__name__}: {error}")
