"""The lock files: every package that make installs, with the hashes of all its published files.

    python requirements/lock.py

Needs `uv`, the package index, and no GPU. A layer holds what its extras need on top of the
layers before it, so that make installs one after the other with `--require-hashes --no-deps`.
Versions stay what the lock files have; delete a line to get that package's newest.
PyTorch is in none of them: its builds (CPU, CUDA) have one version number and different files.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parent

LAYERS: Final = {"run": (), "dev": ("dev",), "docs": ("docs",), "all": ("all",)}
"""Extras of pyproject.toml by lock file, from what a user needs up to everything."""

OF_TORCH: Final = (
    "filelock",
    "fsspec>=0.8.5",
    "jinja2",
    "networkx>=2.5.1",
    "setuptools>=77.0.3",
    "sympy>=1.13.3",
    "typing-extensions>=4.10",
)
"""Requirements of PyTorch's CPU build, which is not resolved here."""

_ENTRY: Final = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)[^\n]*(\n    [^\n]+)*", re.MULTILINE
)
_SELF: Final = re.compile(r"asmtune\[(?P<extras>[\w,]+)\]")


def main() -> None:
    """Write all lock files."""
    versions = "".join(
        f"{entry['name']}=={entry['version']}\n"
        for name in LAYERS
        if (FOLDER / f"{name}.txt").is_file()
        for entry in _ENTRY.finditer((FOLDER / f"{name}.txt").read_text())
    )
    lower: dict[str, str] = {}
    below = "pyproject.toml"
    wanted = requirements(())
    for name, extras in LAYERS.items():
        wanted += requirements(extras)
        locked = {entry["name"]: entry[0] for entry in _ENTRY.finditer(resolve(wanted, versions))}
        head = (
            f"# Written by requirements/lock.py: what the {name} layer needs on top of {below}.\n"
        )
        # A layer below may lock a package for Windows alone that this one needs everywhere.
        body = [text for package, text in sorted(locked.items()) if lower.get(package) != text]
        (FOLDER / f"{name}.txt").write_text("\n".join([head, *body, ""]))
        lower |= locked
        below = f"{name}.txt"


def requirements(extras: tuple[str, ...]) -> list[str]:
    """List the requirements of extras, or of the package itself for none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if not extras:
        own = [line for line in project["dependencies"] if not line.startswith("torch")]
        return [*own, *OF_TORCH]
    listed: list[str] = []
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            inner = _SELF.fullmatch(line)
            listed += requirements(tuple(inner["extras"].split(","))) if inner else [line]
    return listed


def resolve(wanted: list[str], versions: str) -> str:
    """Resolve requirements for every platform and Python from 3.11 on, with hashes."""
    pins = FOLDER / "versions.part"
    pins.write_text(versions)
    command = ["uv", "pip", "compile", "-", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--constraint", str(pins)]
    command += ["--constraint", str(ROOT / "constraints.txt")]
    try:
        given = "\n".join(wanted)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    finally:
        pins.unlink()
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()
