"""Imports of the user's Python: kernel files by path, modules by dotted name.

A file is imported as `python file.py` would run it: it finds its neighbours and packages, and
`sys.argv` has its path alone. A module's dotted name is looked up in the working directory as
well. What both print goes to stderr, and whatever ends the import is reported in one line.
Neighbours of two folders may have the same name.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import importlib.util
import os
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from asmtune.base.errors import ProblemError
from asmtune.base.fingerprint import digest
from asmtune.base.text import shortened
from asmtune.core import assumed_import

FILE_PREFIX: Final = "asmtune_kernel_"
_MESSAGE_LIMIT: Final = 400


@dataclass
class _Home:
    """A folder's modules, and the entries of `sys.path` that they are imported by.

    Attributes:
        paths: entries of `sys.path`: the folder, and what its files have added.
        modules: modules that were found by these entries alone, by name.
        last: entries that are looked at after all others.
    """

    paths: list[str]
    modules: dict[str, ModuleType] = field(default_factory=dict)
    last: list[str] = field(default_factory=list)


_homes: dict[str, _Home] = {}
_home_of: dict[str, _Home] = {}
"""Homes of imported kernel files and modules, by the module's name."""

_importable: dict[str, str] = {}
"""Dotted names by which programs import files, by the module's name here."""


def import_file(path: Path) -> ModuleType:
    """Import a file of kernels; the same file is one module under any path.

    Raises:
        ProblemError: it is no Python file, or its code ended the import; names the line.
    """
    check_file(path)
    real = path.resolve()
    unique = f"{FILE_PREFIX}{path.stem}_{digest(str(real))[:12]}"
    if unique in sys.modules and assumed_import.is_valid(unique):
        return sys.modules[unique]
    is_again = unique in sys.modules
    spec = importlib.util.spec_from_file_location(unique, path)
    if spec is None or spec.loader is None:
        raise ProblemError(f"kernel file {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    own = Package.of(real)
    _importable[unique] = ".".join(filter(None, (own.name, real.stem)))
    if own.name:  # relative imports work, as with `python -m`
        spec.name, module.__package__ = f"{own.name}.{unique}", own.name
    home = _homes.setdefault(str(real.parent), _Home([str(own.root)], last=own.last))
    if is_again:  # its neighbours may have asked the GPU as well
        home.modules.clear()
    sys.modules[unique] = module
    with ExitStack() as undo:
        # The next import would take a half-executed module for a whole one.
        undo.callback(sys.modules.pop, unique, None)
        with _importing(home, str(path), path):
            with assumed_import.answering(unique):
                imported = own.imported(real.stem)
            if imported is not None:
                sys.modules[unique] = module = imported
            elif not assumed_import.execute(module, real):
                spec.loader.exec_module(module)
        undo.pop_all()
    _home_of[module.__name__] = home
    return module


def importable_name(module: str) -> str:
    """Return the name by which a program imports a module that is imported by its file here."""
    return _importable.get(module, module)


def file_mode(path: Path) -> int:
    """Return the mode of a file; 0 for one that cannot be, or whose name is too long."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def check_file(path: Path) -> None:
    """Make sure that a path is a file that can be imported; import nothing.

    Raises:
        ProblemError: there is no such file, or it is a folder or a notebook.
    """
    mode = file_mode(path)
    if stat.S_ISDIR(mode):
        raise ProblemError(f"kernel file {path}: a folder; name a Python file in it")
    if not stat.S_ISREG(mode):
        kind = "not a regular file" if mode else "no such file"
        raise ProblemError(f"kernel file {shortened(str(path), 200)}: {kind}")
    if path.suffix == ".ipynb":
        raise ProblemError(
            f"kernel file {path}: a notebook, not a Python file; write its cells to one with "
            f"jupyter nbconvert --to script {path}, or call asmtune.prune_report in the notebook"
        )


def find_module(reference: str) -> tuple[str, ...] | None:
    """Return what `sys.path` needs for a dotted name: nothing, or the working directory.

    None if there is no such top-level module, or the name has no dot.
    """
    root, dot, _ = reference.partition(".")
    if not dot or not all(part.isidentifier() for part in reference.split(".")):
        return None
    try:
        if importlib.util.find_spec(root) is not None:
            return ()
    except ValueError:  # a module without a spec, such as __main__
        return None
    here = str(Path.cwd())
    return (here,) if PathFinder.find_spec(root, [here]) is not None else None


def import_dotted(reference: str) -> ModuleType:
    """Import a module by the dotted name that `find_module` has found.

    Raises:
        ProblemError: its code ended the import; names the line.
    """
    paths = find_module(reference) or ()
    home = _homes.setdefault("".join(paths), _Home(list(paths)))
    with _importing(home, reference, None):
        module = importlib.import_module(reference)
    _home_of[module.__name__] = home
    return module


@contextmanager
def user_code(module: ModuleType) -> Iterator[None]:
    """Run a function of an imported module where it finds what its import has found.

    What it prints goes to stderr.

    Raises:
        ProblemError: it calls `sys.exit`.
    """
    home = _home_of.get(module.__name__)
    if home is None:
        yield
        return
    with _on_path(home), stdout_to_stderr():
        try:
            yield
        except SystemExit as error:
            raise ProblemError(f"{module.__file__}: sys.exit({error.code!r})") from error


@contextmanager
def called_function(module: ModuleType, where: str) -> Iterator[None]:
    """Call a function of an imported module.

    Raises:
        ProblemError: it raises; names the line.
    """
    path = Path(module.__file__ or "")
    home = _home_of.get(module.__name__, _Home([str(path.parent)]))
    with _Errors(where, home, path), user_code(module):
        yield


@contextmanager
def _importing(home: _Home, where: str, path: Path | None) -> Iterator[None]:
    arguments = sys.argv
    with _Errors(where, home, path), _on_path(home), stdout_to_stderr():
        sys.argv = [where]
        try:
            yield
        finally:
            sys.argv = arguments


class _Errors(AbstractContextManager[None]):
    """Raises what ends an import as a `ProblemError`: any exception but Ctrl-C."""

    def __init__(self, where: str, home: _Home, path: Path | None) -> None:
        self._where = where
        self._file = None if path is None else path.resolve()
        self._folders = [Path(p).resolve() for p in (*home.paths, *home.last)]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, KeyboardInterrupt | GeneratorExit):
            return
        raise ProblemError(f"{self._place(error)}: {self._cause(error)}") from error

    def _cause(self, error: BaseException) -> str:
        text = shortened(" ".join(str(error).split()), _MESSAGE_LIMIT)
        match error:
            case SystemExit():
                told = f"sys.exit({shortened(repr(error.code))}) while it is imported"
                return f"{told}; put what runs under if __name__ == '__main__':"
            case SyntaxError() if self._is_own(error.filename):
                return shortened(" ".join((error.msg or "").split()), _MESSAGE_LIMIT)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def _place(self, error: BaseException) -> str:
        """Name the last line of the user's own on the way to the error."""
        places = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError):
            places.append((error.filename or "", error.lineno))
        own = [(file, line) for file, line in places if self._is_own(file)]
        if not own:
            return self._where
        file, line = Path(own[-1][0]).resolve(), own[-1][1]
        where = self._where if file == self._file else f"{self._where}: {file.name}"
        return f"{where}, line {line}" if line else where

    def _is_own(self, file: str | None) -> bool:
        if not file or file.startswith("<"):
            return False
        path = Path(file).resolve()
        is_installed = "site-packages" in path.parts
        is_beside = any(map(path.is_relative_to, self._folders)) and not is_installed
        return path.is_file() and (path == self._file or is_beside)


@contextmanager
def _on_path(home: _Home) -> Iterator[None]:
    """Let code import what lies in a home; afterwards `sys.path` is as before.

    Modules that were found by the home's paths alone leave `sys.modules` with it, so that a
    neighbour of the same name in another folder, or a package, can be imported next.
    """
    before, loaded = list(sys.path), set(sys.modules)
    sys.modules.update(home.modules)
    sys.path[:] = [*home.paths, *before, *home.last]
    try:
        yield
    finally:
        own = [*home.paths, *home.last]
        home.paths += [p for p in sys.path if p not in before and p not in own]
        sys.path[:] = before
        added = {Path(p).resolve() for p in (*home.paths, *home.last) if p not in before}
        for name, module in list(sys.modules.items()):
            package = name.partition(".")[0]
            is_new = package not in loaded and not name.startswith(FILE_PREFIX)
            if is_new and _folder_of(package) in added:
                home.modules[name] = module
        for name in home.modules:
            sys.modules.pop(name, None)


def _folder_of(package: str) -> Path | None:
    """Return the folder in which a top-level package or module lies."""
    spec = getattr(sys.modules.get(package), "__spec__", None)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
    return Path(places[0]).resolve().parent


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what Python and native code print to stderr: stdout is for results."""
    with _descriptor_to_stderr(), redirect_stdout(sys.stderr):
        yield


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    if sys.__stdout__ is None or sys.__stderr__ is None:  # closed: other files have the numbers
        yield
        return
    _flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(saved, 1)
        os.close(saved)


def _flush() -> None:
    """Write what Python and C hold back of stdout."""
    streams: tuple[Any, ...] = (sys.stdout, sys.__stdout__)
    for stream in streams:
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    ctypes.CDLL(None).fflush(None)


@dataclass(frozen=True)
class Package:
    """The package of a file: its dotted name, "" for none, and where it is found.

    Attributes:
        name: of the innermost.
        folder: the file's.
        root: the folder that the outermost lies in.
        needed: the package that the file's own imports import: it, or the outermost; "" for none.
    """

    name: str
    folder: Path
    root: Path
    needed: str

    @classmethod
    def of(cls, file: Path) -> Package:
        """Find the package of a file.

        Its folders are those with an `__init__.py`, and those that relative imports go through.
        """
        try:
            body = ast.parse(file.read_bytes()).body
        except (OSError, SyntaxError, ValueError):  # told where it is imported
            body = []
        level = max((one.level for one in body if isinstance(one, ast.ImportFrom)), default=0)
        root, names = file.parent, list[str]()
        while root != root.parent and (len(names) < level or (root / "__init__.py").is_file()):
            root, names = root.parent, [root.name, *names]
        absolute = {name.partition(".")[0] for one in body for name in _imported_names(one)}
        name = ".".join(names)
        outermost = names[0] if names and names[0] in absolute else ""
        return cls(name, file.parent, root, name if level else outermost)

    @property
    def last(self) -> list[str]:
        """Return what `sys.path` ends with: the file's folder, if that is a package's.

        A module of a package may have the name of an installed one, whose users mean that.
        """
        return [str(self.folder)] if self.name else []

    def imported(self, stem: str) -> ModuleType | None:
        """Import the package that is needed; return the file's module if that has imported it.

        Executing the file again would register operators twice.
        """
        if not self.needed:
            return None
        importlib.import_module(self.needed)
        return sys.modules.get(f"{self.name}.{stem}")


def _imported_names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Import():
            yield from (alias.name for alias in statement.names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
