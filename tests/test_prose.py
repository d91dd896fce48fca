"""Six patterns that make sentences hard to read, over docstrings, pages and error texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("asmtune", "kernels", "benchmarks", "website", "examples")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "cache" / "README.md"]

DEVICE_DECORATORS = ("jit", "constexpr_function")

PATTERNS = {
    # "the grid is none" -> "there is no grid", "the grid is invalid"
    "is none": r"\b(?:is|are|was|were|be) none\b",
    # "it is told as" -> "the report says", "is reported as"
    "is told": r"\b(?:is|are|was|were|be|been) told\b|\btells? of\b|\btold apart\b",
    # "figures stand in" -> "are in"
    "stands": r"\b(?:stands?|stood) (?:in|on|at|for|where|above|below|beside|there|before)\b",
    # words of a tale
    "as ever": r"\b(?:as ever|likewise|hands? on|handed on|lets? go of|let go)\b",
    # "Of a large space a sample is sketched" -> "For a large space, ..."
    "fronted of": r"(?:^|[.:;] |\n)Of (?:a|an|the|what|each|all|two|those|these|them) ",
    # "so many processes" -> "the number of processes"
    "so many": r"\bso (?:many|much) (?!that\b|as\b)\w+",
}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a module, without the functions that a GPU runs."""
    for node in ast.iter_child_nodes(tree):
        names = [ast.unparse(getattr(d, "func", d)) for d in getattr(node, "decorator_list", ())]
        # Shipped configs record a hash of such a function's source, with its docstring: another
        # wording would make them unusable.
        if not any(name.rpartition(".")[2] in DEVICE_DECORATORS for name in names):
            yield node
            yield from nodes(node)


def texts() -> Iterator[tuple[str, int, str]]:
    """Texts of the repository: file, line, text; of code its docstrings and its messages."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        blocks = re.split(r"^```", page.read_text(), flags=re.MULTILINE)
        line = 1
        for number, block in enumerate(blocks):
            if number % 2 == 0:
                yield str(page.relative_to(ROOT)), line, block
            line += block.count("\n")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in nodes(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield str(path.relative_to(ROOT)), node.lineno, node.value


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str) -> None:
    """No sentence of a docstring, a page or an error has the pattern."""
    pattern = re.compile(PATTERNS[name].replace(" ", r"\s+"))  # a line may end in the phrase
    wrong = [
        f"{file}:{line + text[: found.start()].count(chr(10))}: "
        f"{' '.join(text[max(0, found.start() - 40) : found.end() + 40].split())}"
        for file, line, text in texts()
        for found in pattern.finditer(text)
    ]
    assert wrong == [], "\n".join(wrong)
