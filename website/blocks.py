"""Pages as blocks: every fenced block of a Markdown page, with the marks above it.

A mark is an HTML comment right above a block:

    <!-- needs: gpu -->            runs where there is a GPU, and is parsed elsewhere
    <!-- runs: FILE -->            too long to run here: FILE runs what the block says
    <!-- exits: 2 -->              the last command ends with this code
    <!-- first: 9 -->              above an output: as many of its lines are shown
    <!-- in: repository -->        anywhere: the page's folder is a copy of the repository

`python` and `sh` are run, `diff` is applied. One with a
title (`title="add.py"`) is a file of the page's folder. A `text` block right below a block
that runs is what that one printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"

RUNS: Final = ("python", "sh", "diff")
LANGUAGES: Final = (*RUNS, "text")
MARKS: Final = ("needs", "runs", "exits", "first")

_MARK: Final = re.compile(r"<!--\s*(?P<name>\w+)(:\s*(?P<value>.*?))?\s*-->")
_TITLE: Final = re.compile(r'title="(?P<title>[^"]*)"')
_REPOSITORY: Final = re.compile(r"^<!-- in: repository -->$", re.MULTILINE)


class PageError(ValueError):
    """Report a block or mark of a page that cannot be understood; names page and line."""


@dataclass(frozen=True)
class Output:
    """A block that shows what the one above it printed.

    Attributes:
        first: index of its first line in the page, that of the fence.
        last: index after its closing fence.
        text: what it shows.
        varies: whether another run may print another text.
        most: lines that are shown at most; None for all.
    """

    first: int
    last: int
    text: str
    varies: bool
    most: int | None = None

    def of(self, printed: str) -> str:
        """Cut printed text to the lines shown, without trailing blanks and outer empty lines."""
        lines = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n").splitlines()
        if self.most is not None and len(lines) > self.most:
            lines = [*lines[: self.most], "..."]
        return "\n".join(lines)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: the page's path.
        line: of the fence, from 1 on.
        language: one of `LANGUAGES`.
        code: its text.
        title: the file that it is; None where it is code to run.
        marks: those above it, by name.
        output: what it printed, where the page shows it.
    """

    page: Path
    line: int
    language: str
    code: str
    title: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    output: Output | None = None

    @property
    def where(self) -> str:
        """Give page and line, as an error names them."""
        return f"{self.page.name}, line {self.line}"

    @property
    def needs_gpu(self) -> bool:
        """Say if it runs only on a GPU."""
        return self.marks.get("needs") == "gpu"

    @property
    def elsewhere(self) -> str | None:
        """Name the file that runs its commands."""
        return self.marks.get("runs")


def pages() -> tuple[Path, ...]:
    """List README, AGENTS.md and every page of docs/, by name."""
    return (ROOT / "README.md", ROOT / "AGENTS.md", *sorted(DOCS.rglob("*.md")))


def in_repository(page: Path) -> bool:
    """Say if a page's commands are given in the repository's root."""
    return bool(_REPOSITORY.search(page.read_text(encoding="utf-8")))


def blocks(page: Path) -> list[Block]:
    """List a page's blocks in order, outputs with the blocks that printed them.

    Raises:
        PageError: a block is indented or of an unknown language, a mark is unknown, or a
            `first` is above no output.
    """
    text = page.read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark").parse(text)
    listed: list[Block] = []
    for token, before in zip(tokens, _before(tokens), strict=True):
        if token.type == "code_block":
            raise PageError(f"{_at(page, token)}: an indented block; fence it, so that it runs")
        if token.type != "fence":
            continue
        marks = dict(_marks(page, before))
        if _is_output(token, listed, before, tokens):
            listed[-1] = _with_output(listed[-1], token, marks)
        else:
            listed.append(_block(page, token, marks))
    return listed


def inline_code(page: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every span of code outside of blocks."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    for token in tokens:
        for child in token.children or ():
            if child.type == "code_inline":
                yield (token.map or [0])[0] + 1, child.content


def _block(page: Path, token: Token, marks: Mapping[str, str]) -> Block:
    where = _at(page, token)
    language, _, rest = token.info.strip().partition(" ")
    if language not in LANGUAGES:
        raise PageError(f"{where}: language {language!r} is not one of {', '.join(LANGUAGES)}")
    if "first" in marks:
        raise PageError(f"{where}: 'first' is above no output")
    title = _TITLE.search(rest)
    line = (token.map or [0])[0] + 1
    return Block(page, line, language, token.content, title and title["title"], marks)


def _with_output(block: Block, token: Token, marks: Mapping[str, str]) -> Block:
    first, last = token.map or [0, 0]
    most = int(marks["first"]) if "first" in marks else None
    shown = Output(first, last, token.content, block.needs_gpu, most)
    return replace(block, output=shown)


def _is_output(
    token: Token, listed: Sequence[Block], before: Sequence[Token], tokens: Sequence[Token]
) -> bool:
    """Say if a text block is right below one that runs, with only marks between them."""
    if token.info.partition(" ")[0] != "text" or not listed:
        return False
    above = tokens.index(token) - len(before) - 1
    runs = listed[-1].language in RUNS and listed[-1].title is None
    return runs and listed[-1].output is None and above >= 0 and tokens[above].type == "fence"


def _before(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Yield for each token the comments right above it."""
    comments: tuple[Token, ...] = ()
    for token in tokens:
        yield comments
        comments = (*comments, token) if token.type == "html_block" else ()


def _marks(page: Path, comments: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for comment in comments:
        for line in comment.content.strip().splitlines():
            if _REPOSITORY.match(line):
                continue
            mark = _MARK.fullmatch(line.strip())
            if mark is None or mark["name"] not in MARKS:
                known = ", ".join(MARKS)
                raise PageError(f"{_at(page, comment)}: {line!r} is no mark of {known}")
            yield mark["name"], mark["value"] or ""


def _at(page: Path, token: Token) -> str:
    return f"{page.name}, line {(token.map or [0])[0] + 1}"
