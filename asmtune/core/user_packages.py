"""The package that a file of the user's belongs to, which its imports may need."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


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
