"""Code that a page carries: which configs' PTX and SASS, their sources, and the packing."""

from __future__ import annotations

import ast
import base64
import json
import linecache
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any, Final

from asmtune.base.errors import ParseError
from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.ir.asm.nvptx import Group
from asmtune.report.code.model import CodeView
from asmtune.report.code.views import CodeReader
from asmtune.report.explain.text import why_lines

MOST_LINES = 1500
"""Limit of one function; no kernel is longer, and what is longer is cut off."""


def pieces(path: str, number: int, lines: Iterable[int]) -> list[dict[str, Any]]:
    """Cut out the functions that hold some lines: `{"file", "title", "first", "text"}`.

    Cells of notebooks are found as well, as long as their kernel lives. Nothing, where the
    file is gone or is no Python. `number` is the file's in the page; lines count from 1.
    """
    text = linecache.getlines(path)
    name = PurePath(path).name
    wanted_lines = set(lines)
    return [
        {
            "file": number,
            "title": f"{name}: {function}",
            "first": first,
            "text": "".join(text[first - 1 : min(last, first + MOST_LINES)]).rstrip("\n"),
        }
        for function, first, last in _functions("".join(text))
        if any(first <= line <= last for line in wanted_lines)
    ]


def _functions(text: str) -> Iterator[tuple[str, int, int]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    open_nodes: list[ast.AST] = [tree]
    while open_nodes:
        for node in ast.iter_child_nodes(open_nodes.pop(0)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                yield node.name, first, node.end_lineno or node.lineno
            elif isinstance(node, ast.stmt):
                open_nodes.append(node)


BUDGET_BYTES: Final = 3_500_000
"""Limit of all packed code of a page: a page of 1,000 configs stays well under 6 MB."""

MOST_PTX: Final = 200
"""Configs of a report whose PTX is carried: reading one takes a twentieth of a second."""

MOST_SASS: Final = 32
"""Configs of a report whose SASS is made: the disassembler takes a third of a second each."""

_LETTERS: Final = dict(zip(Group, "tcsgbjlo", strict=True))


@dataclass(frozen=True)
class CarriedCode:
    """Code of some configs of some reports, the source that it comes from, and which these are.

    Attributes:
        packed: one a config that has code, for `Codes` in codes.js.
        index: for each report and verdict the place in `packed`; -1 where there is none.
    """

    packed: tuple[str, ...]
    index: tuple[tuple[int, ...], ...]
    sources: tuple[Mapping[str, Any], ...]
    note: str


def no_code(reports: Sequence[PruneReport]) -> CarriedCode:
    """Make an empty index, for reports that are read from a file."""
    index = tuple((-1,) * len(report.verdicts) for report in reports)
    return CarriedCode((), index, (), "This page was made from a saved report, without code.")


def carried_code(reports: Sequence[PruneReport], problem: Problem, maker: CodeMaker) -> CarriedCode:
    """Pack PTX of the best by rank within a budget, and SASS of the kept ones.

    `reports` has one a target of `maker`, in its order.

    Raises:
        StoreError: the folder of artifacts cannot be read.
        ProblemError: the grid of a config is none.
    """
    packed_code = _Shelf()
    index = []
    for number, (report, target) in enumerate(zip(reports, maker.targets, strict=True)):
        carrier = _Carrier(report, CodeReader(problem, target), maker)
        limit = BUDGET_BYTES * (number + 1) // len(reports)
        index.append(carrier.carry(packed_code, limit))
    note = (
        f"This page carries the PTX of the kept configs and of the best others, up to {MOST_PTX} "
        f"a target, and the SASS of up to {MOST_SASS} kept ones"
    )
    return CarriedCode(tuple(packed_code.packed), tuple(index), tuple(packed_code.sources()), note)


@dataclass(frozen=True)
class CodeMaker:
    """Targets of the reports, settings with the artifacts' folder, and a listener."""

    targets: Sequence[Target]
    settings: Settings
    progress: ProgressListener


class _Shelf:
    """Code packed so far, and the lines of source that it comes from."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self.bytes = 0
        self._files: dict[str, set[int]] = {}
        self._known: dict[str, int] = {}

    def source(self, path: str, line: int) -> int:
        """Note that code comes from a line of a file; return the file's place."""
        self._files.setdefault(path, set()).add(line)
        return list(self._files).index(path)

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.packed)
            self.packed.append(text)
            self.bytes += len(text)
        return self._known[text]

    def sources(self) -> Iterator[Mapping[str, Any]]:
        for number, (path, lines) in enumerate(self._files.items()):
            yield from pieces(path, number, lines)


@dataclass(frozen=True)
class _Carrier:
    """Chooses and reads the code of one report."""

    report: PruneReport
    reader: CodeReader
    maker: CodeMaker

    def carry(self, shelf: _Shelf, limit_bytes: int) -> tuple[int, ...]:
        """Return, for each verdict, the place of its code; -1 if it has none."""
        chosen, progress = self._chosen(), self.maker.progress
        progress.start("code", len(chosen))
        sass = self._sass(chosen)
        places: dict[int, int] = {}
        for row, verdict in chosen.items():
            if shelf.bytes >= limit_bytes:
                break
            progress.advance()
            code = self._code(verdict, sass.get(row), shelf)
            if code is not None:
                places[row] = shelf.add(packed(code))
        return tuple(places.get(row, -1) for row in range(len(self.report.verdicts)))

    def _chosen(self) -> dict[int, Verdict]:
        rows = [(row, v) for row, v in enumerate(self.report.verdicts) if v.artifact is not None]
        rows.sort(key=lambda item: (not item[1].kept, item[1].rank is None, item[1].rank or 0))
        return dict(rows[:MOST_PTX])

    def _sass(self, chosen: Mapping[int, Verdict]) -> dict[int, CodeView | Failure]:
        most = 0 if self.reader.language == "AMDGCN" else MOST_SASS
        rows = [row for row, verdict in chosen.items() if verdict.kept][:most]
        with ThreadPoolExecutor(self.maker.settings.jobs) as threads:
            views = threads.map(lambda row: self._one_sass(chosen[row]), rows)
            return {row: view for row, view in zip(rows, views, strict=True) if view is not None}

    def _one_sass(self, verdict: Verdict) -> CodeView | Failure | None:
        artifact = self._artifact(verdict)
        return None if artifact is None else _read(self.reader.sass, verdict.config, artifact)

    def _code(
        self, verdict: Verdict, sass: CodeView | Failure | None, shelf: _Shelf
    ) -> dict[str, Any] | None:
        artifact = self._artifact(verdict)
        if artifact is None:
            return None
        why = f"more than {MOST_SASS} are kept" if verdict.kept else "it is not among the kept"
        no_sass = f"SASS was not made, since {why}; `asmtune explain --code sass` shows it."
        if self.reader.language == "AMDGCN":
            no_sass = "An AMD device has AMDGCN, which stands in the place of PTX, and no SASS."
        code: dict[str, Any] = {"language": self.reader.language, "missing": {"sass": no_sass}}
        views = {"ptx": _read(self.reader.assembly, verdict.config, artifact), "sass": sass}
        for name, view in views.items():
            if isinstance(view, CodeView):
                code[name] = _listing(view, shelf)
            elif view is not None:
                code["missing"][name] = str(view)
        if verdict.kept and (reasons := self.reader.why(verdict, artifact, self.report.verdicts)):
            code["why"] = [line.plain for line in why_lines(reasons, verdict)]
        return code

    def _artifact(self, verdict: Verdict) -> Artifact | None:
        artifacts = ArtifactCache.of(self.maker.settings)
        artifact = None if verdict.artifact is None else artifacts.get(verdict.artifact)
        return artifact if isinstance(artifact, Artifact) else None


def _read(
    view: Callable[[Config, Artifact], CodeView | Failure], config: Config, artifact: Artifact
) -> CodeView | Failure:
    try:
        return view(config, artifact)
    except ParseError as error:
        return Failure("read", "parse", str(error))


def _listing(view: CodeView, shelf: _Shelf) -> dict[str, Any]:
    """Write a view in columns, for `Listing` in listing.js."""
    places: dict[tuple[int, int], int] = {}
    runs: dict[float, int] = {}
    at, times, groups = [], [], []
    for line in view.lines:
        place = -1
        if line.source is not None and (path := view.files.get(line.source[0])) is not None:
            key = (shelf.source(path, line.source[1]), line.source[1])
            place = places.setdefault(key, len(places))
        at.append(place)
        count = 0.0 if line.times is None else float(f"{line.times:.6g}")
        times.append(runs.setdefault(count, len(runs)))
        groups.append(" " if line.group is None else _LETTERS[line.group])
    return {
        "text": "\n".join(line.text for line in view.lines),
        "groups": "".join(groups),
        "at": at,
        "places": list(places),
        "times": times,
        "runs": list(runs),
        "hot": list(_ranges([line.hot for line in view.lines])),
    }


def _ranges(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    for is_true, group in groupby(range(len(flags)), flags.__getitem__):
        if is_true:
            places = list(group)
            yield places[0], places[-1]


def packed(value: Any) -> str:
    """Pack a JSON value as text for `unpack` in data.js."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Lone surrogates, which a name may hold, are no UTF-8.
    data = text.encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def unpacked(text: str) -> Any:
    """Reverse `packed`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))
