"""Result files, their provenance, and the tables that pages show of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, TypeVar

from website.blocks import ROOT

RESULTS: Final = ROOT / "benchmarks" / "results"
FILES: Final = {
    "error": ROOT / "asmtune" / "predict" / "score" / "data" / "error.json",
    "attention_backward-h100": ROOT / "cache" / "attention_backward-h100.json",
    "attention_backward-h200": ROOT / "cache" / "attention_backward-h200.json",
}
_NOT_TYPED: Final = re.compile(r"\.__main__\b| --output \S+")


TABLES: Final[dict[str, Callable[[], str]]] = {}
"""Every table, by the name that a page has it under."""

Build = TypeVar("Build", bound=Callable[..., str])


def shown(**files: str) -> Callable[[Build], Build]:
    """List a function's table under the function's name, or one of each file under a name."""

    def listed(build: Build) -> Build:
        TABLES.update({name: partial(build, file) for name, file in files.items()})
        if not files:
            TABLES[build.__name__] = build
        return build

    return listed


@cache
def results(name: str) -> Any:
    """Read a result file, by its name without ending.

    Raises:
        KeyError: there is no such file.
    """
    path = FILES.get(name, RESULTS / f"{name}.json")
    if not path.is_file():
        raise KeyError(f"no results {name!r}")
    return json.loads(path.read_text())


def provenance(name: str) -> Mapping[str, Any]:
    """Read where a result comes from: command, date, commit, device, CPUs."""
    found = results(name)
    origin: Mapping[str, Any] = found["provenance"] if "provenance" in found else found["meta"]
    return origin


def command(origin: Mapping[str, Any]) -> str:
    """Give the command of a provenance as one types it."""
    return _NOT_TYPED.sub("", str(origin["command"]))


def link(name: str, page: str = "docs") -> str:
    """Link to a result file from a page of docs/, or from the repository's root."""
    up = "../" if page == "docs" else ""
    return f"[{name}.json]({up}benchmarks/results/{name}.json)"
