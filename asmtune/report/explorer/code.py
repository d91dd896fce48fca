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
from itertools import groupby, islice
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
from asmtune.report.code import CodeReader, CodeView
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


MOST_CONFIGS: Final = 32
"""Kept configs of a report whose code is carried: disassembling one takes a third of a second."""

_LETTERS: Final = dict(zip(Group, "tcsgbjlo", strict=True))


@dataclass(frozen=True)
class CarriedCode:
    """Code of some configs of some reports, the source that it comes from, and which these are.

    Attributes:
        packed: one a config that has code, for `Codes` in codes.js.
        index: for each report and verdict the place in `packed`; -1 without code.
    """

    packed: tuple[str, ...]
    index: tuple[tuple[int, ...], ...]
    sources: tuple[Mapping[str, Any], ...]
    note: str


def no_code(reports: Sequence[PruneReport]) -> CarriedCode:
    """Make an empty index, for reports that are read from a file."""
    index = tuple((-1,) * len(report.verdicts) for report in reports)
    return CarriedCode((), index, (), "This page was made from a saved report, without code.")


@dataclass(frozen=True)
class CodeMaker:
    """Targets of the reports, settings with the artifacts' folder, and a listener."""

    targets: Sequence[Target]
    settings: Settings
    progress: ProgressListener


def carried_code(reports: Sequence[PruneReport], problem: Problem, maker: CodeMaker) -> CarriedCode:
    """Pack the code of the best kept configs: PTX and SASS, or AMDGCN.

    `reports` has one a target of `maker`, in its order.

    Raises:
        StoreError: the folder of artifacts cannot be read.
        ProblemError: the grid is invalid for a config.
    """
    sources = _Sources()
    all_packed: list[str] = []
    index = []
    for report, target in zip(reports, maker.targets, strict=True):
        codes = _Codes(report, CodeReader(problem, target), sources)
        chosen = dict(islice(_kept(report, ArtifactCache.of(maker.settings)), MOST_CONFIGS))
        maker.progress.start("code", len(chosen))
        places: dict[int, int] = {}
        # A disassembler is a process, for which a thread waits.
        with ThreadPoolExecutor(maker.settings.jobs) as threads:
            made = threads.map(codes.sass, *zip(*chosen.values(), strict=True)) if chosen else ()
            for row, sass in zip(chosen, made, strict=True):
                maker.progress.advance()
                places[row] = len(all_packed)
                all_packed.append(packed(codes.code(*chosen[row], sass)))
        index.append(tuple(places.get(row, -1) for row in range(len(report.verdicts))))
    note = f"This page carries the code of the kept configs, of up to {MOST_CONFIGS} a target"
    return CarriedCode(tuple(all_packed), tuple(index), tuple(sources.pieces()), note)


class _Sources:
    """Lines of source files that code comes from."""

    def __init__(self) -> None:
        self._files: dict[str, set[int]] = {}

    def place(self, path: str, line: int) -> int:
        """Note that code comes from a line of a file; return the file's place."""
        self._files.setdefault(path, set()).add(line)
        return list(self._files).index(path)

    def pieces(self) -> Iterator[Mapping[str, Any]]:
        for number, (path, lines) in enumerate(self._files.items()):
            yield from pieces(path, number, lines)


def _kept(
    report: PruneReport, artifacts: ArtifactCache
) -> Iterator[tuple[int, tuple[Verdict, Artifact]]]:
    """Yield the kept configs that have an artifact, by their rows, the best first."""
    rows = [(row, verdict) for row, verdict in enumerate(report.verdicts) if verdict.kept]
    for row, verdict in sorted(rows, key=lambda item: (item[1].rank is None, item[1].rank or 0)):
        artifact = None if verdict.artifact is None else artifacts.get(verdict.artifact)
        if isinstance(artifact, Artifact):
            yield row, (verdict, artifact)


@dataclass(frozen=True)
class _Codes:
    """Reads the code of one report's configs."""

    report: PruneReport
    reader: CodeReader
    sources: _Sources

    def sass(self, verdict: Verdict, artifact: Artifact) -> CodeView | Failure:
        return _read(self.reader.sass, verdict.config, artifact)

    def code(
        self, verdict: Verdict, artifact: Artifact, sass: CodeView | Failure
    ) -> dict[str, Any]:
        code: dict[str, Any] = {"language": self.reader.language, "missing": {}}
        views = {"ptx": _read(self.reader.assembly, verdict.config, artifact), "sass": sass}
        for name, view in views.items():
            if isinstance(view, CodeView):
                code[name] = _listing(view, self.sources)
            else:
                code["missing"][name] = str(view)
        if reasons := self.reader.why(verdict, artifact, self.report.verdicts):
            code["why"] = [line.plain for line in why_lines(reasons)]
        return code


def _read(
    view: Callable[[Config, Artifact], CodeView | Failure], config: Config, artifact: Artifact
) -> CodeView | Failure:
    try:
        return view(config, artifact)
    except ParseError as error:
        return Failure("read", "parse", str(error))


def _listing(view: CodeView, sources: _Sources) -> dict[str, Any]:
    """Write a view in columns, for `Listing` in listing.js."""
    places: dict[tuple[int, int], int] = {}
    runs: dict[float, int] = {}
    at, times, groups = [], [], []
    for line in view.lines:
        place = -1
        if line.source is not None and (path := view.files.get(line.source[0])) is not None:
            key = (sources.place(path, line.source[1]), line.source[1])
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
