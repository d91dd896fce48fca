"""Result files, their provenance, and the tables that pages show of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, TypeVar

from website.blocks import ROOT

RESULTS: Final = ROOT / "benchmarks" / "results"
ERROR: Final = ROOT / "asmtune" / "predict" / "score" / "data" / "error.json"
_NOT_TYPED: Final = re.compile(r"\.__main__\b| --output \S+")


TABLES: Final[dict[str, Callable[[], str]]] = {}
"""Every table, by the name that a page has it under."""

Build = TypeVar("Build", bound=Callable[..., str])


def shown(**given: Any) -> Callable[[Build], Build]:
    """List a function's table under the function's name, or one for each argument under a name."""

    def listed(build: Build) -> Build:
        TABLES.update({name: partial(build, argument) for name, argument in given.items()})
        if not given:
            TABLES[build.__name__] = build
        return build

    return listed


@cache
def results(name: str) -> Any:
    """Read a result file, by its name without ending.

    Raises:
        KeyError: there is no such file.
    """
    path = ERROR if name == "error" else RESULTS / f"{name}.json"
    if not path.is_file():
        raise KeyError(f"no results {name!r}")
    return json.loads(path.read_text(), object_hook=_typed)


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    """Give a provenance its command as one types it."""
    if isinstance(value.get("command"), str):
        value["command"] = _NOT_TYPED.sub("", value["command"])
    return value


def link(name: str, page: str = "docs") -> str:
    """Link to a result file from a page of docs/, or from the repository's root."""
    up = "../" if page == "docs" else ""
    return f"[{name}.json]({up}benchmarks/results/{name}.json)"
