"""Prints the tests that a change can reach, for pytest's command line.

    python -m tests.reach [BASE]

The core's tests always run. A wing's tests, those of kernels and those of benchmarks run where
they, or what they import, changed since the merge base with BASE (origin/main unless given). A
module counts as imported where a text names it too, since child processes and commands are named
so. Without a merge base behind HEAD, or where a file changed that decides how tests run, it
prints `tests`: all of them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("asmtune", "kernels", "benchmarks", "website", "tests")
PACKAGES = {"asmtune.kernels": "kernels", "asmtune.shipped": "cache"}
"""Packages that lie elsewhere than their names say."""

NAMED = re.compile(r"(?:asmtune|benchmarks|website|tests)(?:\.\w+)+")
CORE = (
    "asmtune",
    "docs",
    "tests",
    "README.md",
    "AGENTS.md",
    "llms.txt",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
)
"""Where a change does not concern every test: the core's run anyway, groups name what they read."""

GROUPS = {
    **{f"tests/workshop/{wing.name}": () for wing in (ROOT / "tests/workshop").iterdir()},
    "tests/kernels": ("kernels", "cache"),
    "tests/benchmarks": ("benchmarks",),
}
"""Folders of tests that run on demand, and folders of files that they read."""


def groups() -> dict[str, tuple[str, ...]]:
    """Return the groups that exist."""
    return {name: files for name, files in GROUPS.items() if (ROOT / name).is_dir()}


def _git(*arguments: str) -> str | None:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


def changed(base: str) -> list[str] | None:
    """List the files that differ from the merge base; None where there is none behind HEAD."""
    start = _git("merge-base", base, "HEAD")
    if not start or start == _git("rev-parse", "HEAD"):
        return None
    files = _git("diff", "--name-only", start)
    return None if files is None else files.splitlines()


@cache
def _file_of(module: str) -> str | None:
    """Return the file of a module, or of the longest module that its dotted name begins with."""
    for package, folder in PACKAGES.items():
        if module == package or module.startswith(f"{package}."):
            module = folder + module.removeprefix(package)
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return str(file.relative_to(ROOT))
    return None


def _names(path: Path) -> Iterator[str]:
    """Yield dotted names that a file imports, or has in its texts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            # Helpers beside a test are imported by their bare names.
            yield from (f"{_package(path)}.{node.module}", f"{node.module}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from NAMED.findall(node.value)


def _package(path: Path) -> str:
    return ".".join(path.parent.relative_to(ROOT).parts)


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return the files that each file imports."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        str(path.relative_to(ROOT)): frozenset(filter(None, map(_file_of, _names(path))))
        for path in paths
    }


def reached_from(folder: str) -> set[str]:
    """Return the files of a folder of tests, and all that they import."""
    graph = imports()
    waiting = [file for file in graph if file.startswith(f"{folder}/")]
    waiting.append("tests/conftest.py")
    found: set[str] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            # The root names all commands and functions as text, and imports none of them.
            if file not in ("asmtune/__init__.py", "asmtune/cli/app.py"):
                waiting += graph.get(file, ())
    return found


def chosen(files: list[str] | None) -> list[str]:
    """Return what pytest is to run after a change of files; all where they are not known."""
    if files is None or any(not _is_ordinary(file) for file in files):
        return ["tests"]
    skipped = [
        f"--ignore={name}"
        for name, read in groups().items()
        if not any(_touches(file, name, read) for file in files)
    ]
    return ["tests", *skipped]


def _is_ordinary(file: str) -> bool:
    top = file.split("/")[0]
    return top in (*CORE, *FOLDERS, "cache", "examples") and file != "tests/conftest.py"


def _touches(file: str, group: str, read: tuple[str, ...]) -> bool:
    under = any(file.startswith(f"{folder}/") for folder in (group, *read))
    return under or file in reached_from(group)


if __name__ == "__main__":
    sys.stdout.write(" ".join(chosen(changed((sys.argv[1:] or ["origin/main"])[0]))) + "\n")
