"""A kernel's PTX, SASS or AMDGCN by line, with what is known of each line: the view of a reader.

SASS comes from the `nvdisasm` that ships with Triton. It takes a third to half a second per kernel
of 500 to 2,000 instructions, most of it the tool's start (triton 3.6, nvdisasm 12.8). So only
configs that somebody looks at are disassembled.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, Literal

from rich.console import Group as Lines
from rich.text import Text

from asmtune.base.child import temporary_files
from asmtune.base.errors import ParseError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.asm.amdgcn import amdgcn_kernel, parse_amdgcn
from asmtune.ir.asm.amdgpu import classify_amdgpu
from asmtune.ir.asm.counts import hottest_loop
from asmtune.ir.asm.nvptx import Group, OpClass, classify, group_of
from asmtune.ir.asm.program import AsmFunction, Instruction, Listing
from asmtune.ir.asm.ptx import parse_ptx, ptx_kernel
from asmtune.ir.asm.sass import classify_sass, parse_sass, relocated
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.execution import executions
from asmtune.predict.prune.front import Judge
from asmtune.predict.why.findings import Explanation, reasons

Language = Literal["PTX", "SASS", "AMDGCN"]

NO_SOURCES: Final = (
    "compiled without debug information (TRITON_DISABLE_LINE_INFO): no line says what it comes from"
)


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code as it is shown.

    Attributes:
        number: line number in the compiler's own text, from 1; empty lines are left out.
        text: without address, trailing comment and indentation by tabs.
        kind: class of its first instruction; None for a label, a directive or a brace.
        source: (index into `CodeView.files`, line), where the debug information tells.
        hot: whether it is in the hottest loop.
    """

    number: int
    text: str
    kind: OpClass | None
    source: tuple[int, int] | None
    hot: bool


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The loop where the work is; its depth counts itself, its trips in a program are the PTX's."""

    depth: int
    instructions: int
    times: float | None


@dataclass(frozen=True, slots=True)
class CodeView:
    """The code of one compiled config in one launch.

    Attributes:
        kernel: name of the entry.
        files: paths of source files, as the compiler got them, by index.
        hot: None where the kernel has no loop.
        notes: caveats for the reader.
    """

    language: Language
    kernel: str
    lines: tuple[CodeLine, ...]
    files: Mapping[int, str]
    hot: HotLoop | None
    notes: tuple[str, ...]


STYLES: Final = {
    Group.TENSOR: "green",
    Group.COPY: "cyan",
    Group.SHARED: "blue",
    Group.GLOBAL: "magenta",
    Group.BARRIER: "yellow",
    Group.BRANCH: "bright_black",
    Group.SPILL: "red",
    Group.OTHER: "",
}
"""Colours of a terminal, by group."""


def hot_loop(view: CodeView) -> Lines:
    """Tabulate the hottest loop, each line with its source line and class."""
    notes = [Text(note, "yellow") for note in view.notes]
    if view.hot is None:
        return Lines(Text("It has no loop."), *notes)
    hot = view.hot
    title = f"Hottest loop in {view.language}: depth {hot.depth}, {hot.instructions} instructions"
    title += "" if hot.times is None else f", {hot.times:,.4g} trips a program"
    lines = [line for line in view.lines if line.hot]
    files = [view.files[index] for index in _files(lines) if index in view.files]
    if files:
        title += f"; lines of {', '.join(PurePath(name).name for name in files)}"
    width = max(len(_source(line, lines)) for line in lines)
    # A terminal breaks lines at spaces, and a wgmma lists a hundred registers without one.
    codes = (line.text.replace(",%", ", %") for line in lines)
    sources = (f"{_source(line, lines):>{width}}" for line in lines)
    texts = (f"{source}  {code}" for source, code in zip(sources, codes, strict=True))
    shown = [Text(text, _style(line)) for text, line in zip(texts, lines, strict=True)]
    return Lines(Text(title, "italic"), *notes, *shown)


def _files(lines: list[CodeLine]) -> list[int]:
    return list(dict.fromkeys(line.source[0] for line in lines if line.source is not None))


def _source(line: CodeLine, lines: list[CodeLine]) -> str:
    """Format a source line as `44`; with a dot for the second file, `.263`."""
    if line.source is None:
        return ""
    return "." * _files(lines).index(line.source[0]) + str(line.source[1])


def _style(line: CodeLine) -> str:
    return "bold" if line.kind is None else STYLES[group_of(line.kind)]


_CLASS_OF: Final[Mapping[Language, Callable[[str], OpClass]]] = {
    "PTX": classify,
    "SASS": classify_sass,
    "AMDGCN": classify_amdgpu,
}


def _view(
    language: Language,
    text: str,
    listing: Listing,
    entry: AsmFunction,
    times: Sequence[float] | None = None,
) -> CodeView:
    """Make a view of a text that was parsed; `times` has executions of each loop, if known."""
    class_of = _CLASS_OF[language]
    loop = hottest_loop(entry, class_of, times)
    hot = [entry.body(block) for block in loop.blocks] if loop else []
    lines = tuple(_lines(language, text, listing, {i.line for body in hot for i in body}))
    shown = None
    if loop is not None:
        trips = None if times is None else times[entry.loops.index(loop)]
        shown = HotLoop(loop.depth, sum(map(len, hot)), trips)
    return CodeView(
        language=language,
        kernel=entry.name,
        lines=lines,
        files=listing.files,
        hot=shown,
        notes=() if any(line.source for line in lines) else (NO_SOURCES,),
    )


def _lines(language: Language, text: str, listing: Listing, hot: set[int]) -> Iterator[CodeLine]:
    shown = {"PTX": _shown_ptx, "SASS": _shown_sass, "AMDGCN": _shown_amdgcn}[language]
    texts = text.split("\n")
    for program in listing.programs:
        owner: dict[int, Instruction] = {}
        for item in program.instructions:
            owner.setdefault(item.line, item)
        numbers = sorted(owner)
        for number in _span(texts, numbers, language):
            if not (line := shown(texts[number - 1])):
                continue
            # What is no instruction has the place of the one that follows it.
            place = numbers[min(bisect_left(numbers, number), len(numbers) - 1)]
            own = owner.get(number)
            source = own.source if own is not None and own.source and own.source[1] else None
            kind = None if own is None else _CLASS_OF[language](own.opcode)
            yield CodeLine(number, line, kind, source, place in hot)


def _span(texts: Sequence[str], numbers: Sequence[int], language: Language) -> range:
    first, last = numbers[0], numbers[-1]
    heads = _PTX_HEAD if language == "PTX" else _LABEL_HEAD
    while first > 1 and not heads(texts[first - 1]):
        first -= 1
    while language == "PTX" and last < len(texts) and texts[last - 1].strip() != "}":
        last += 1
    return range(first, last + 1)


_PTX_HEAD: Final = re.compile(r".*\.(?:entry|func)\b").match
_LABEL_HEAD: Final = re.compile(r"[^\s.][\w$.@]*:").match
_LABEL: Final = re.compile(r"([\w$.@%]+):$").match
_SILENT: Final = re.compile(r"(?:\.loc|\.file|\$L__(?:tmp|func_)\w+:|//)").match
_COMMENT: Final = re.compile(r"\s*//.*")
_ADDRESS: Final = re.compile(r"/\*[0-9a-f]{4,16}\*/\s*")
_GAP: Final = re.compile(r"\s{3,}")
_TABS: Final = re.compile(r"\s*\t\s*")


def _shown_ptx(line: str) -> str:
    """Strip a line of PTX of its comment; empty if it only tells where code comes from."""
    bare = line.strip()
    if _SILENT(bare):
        return ""
    if '"' not in bare:
        bare = _COMMENT.sub("", bare)
    indent = "    " if line[:1].isspace() else ""
    return indent + _TABS.sub(" ", bare) if bare else ""


def _shown_amdgcn(line: str) -> str:
    """Strip a line of AMDGCN of its comment; empty for directives and debug labels."""
    bare = line.partition(";")[0].strip()
    if not bare or _UNSHOWN(bare):
        return ""
    indent = "    " if line[:1].isspace() else ""
    return indent + _TABS.sub(" ", bare)


_UNSHOWN: Final = re.compile(r"\.(?:loc|file|p2align|cfi_\w+|L(?:tmp|func_)\w+:)").match


def _shown_sass(line: str) -> str:
    """Strip a line of SASS of its address; empty for directives and source lines."""
    text = line.strip()
    if not _ADDRESS.match(text):
        return text if _LABEL(text) and not text.startswith(".text.") else ""
    bare = _GAP.sub("  ", _ADDRESS.sub("", text))
    return f"    {bare}" if bare[0] == "@" else f"        {bare}"


class CodeReader:
    """Reads artifacts of one problem on one target; what configs share is read once."""

    def __init__(self, problem: Problem, target: Target) -> None:
        self._problem, self._target = problem, target
        self._judge = Judge(problem, target, {})
        self._read = reader_for(target)

    @property
    def language(self) -> Language:
        """Return the language of the target's assembly."""
        return "AMDGCN" if self._target.backend == "hip" else "PTX"

    def assembly(self, config: Config, artifact: Artifact) -> CodeView:
        """Make a view of a config's PTX, or AMDGCN.

        Raises:
            ParseError: the artifact is damaged.
            ProblemError: the grid is invalid for this config.
        """
        text = artifact.outputs[self.language.lower()]
        work, lanes = self._work(config, artifact), self._target.warp_size
        runs = executions(self._read(artifact), work, lanes)
        times = tuple(run.times for run in runs[1:])
        if self.language == "AMDGCN":
            listing = parse_amdgcn(text)
            return _view("AMDGCN", text, listing, amdgcn_kernel(listing), times)
        listing = parse_ptx(text)
        return _view("PTX", text, listing, ptx_kernel(listing), times)

    def sass(self, artifact: Artifact) -> CodeView | Failure:
        """Make a view of an artifact's SASS, or say why it cannot be shown.

        Raises:
            ParseError: the artifact is damaged.
        """
        text = disassemble(artifact.cubin)
        if isinstance(text, Failure):
            return text
        try:
            listing = parse_sass(text)
        except ParseError as error:
            return Failure("sass", "parse", str(error))
        sourced = relocated(listing, parse_ptx(artifact.outputs["ptx"]))
        return _view("SASS", text, sourced, sourced.entry)

    def guesses(self, config: Config, artifact: Artifact) -> tuple[str, ...]:
        """List the assumptions behind counts and predicted times, a phrase each.

        Raises:
            ProblemError: the grid is invalid for this config.
        """
        return tuple(map(str, self._work(config, artifact).assumptions))

    def why(
        self, verdict: Verdict, artifact: Artifact, others: Sequence[Verdict] = ()
    ) -> Explanation | None:
        """Say why a config takes its time, and which of the others to try.

        Raises:
            ParseError: the artifact is damaged.
            ProblemError: the grid is invalid for this config.
        """
        work, profile = self._work(verdict.config, artifact), self._read(artifact)
        return reasons(profile, work, self._target, verdict, others)

    def _work(self, config: Config, artifact: Artifact) -> Work:
        return self._judge.work(config, artifact.outputs["ttir"])


STAGE: Final = "sass"
"""The stage of a failure to disassemble."""

TIMEOUT_S: Final = 30.0

_SHOWN: Final = 400  # characters of the tool's own message


def disassemble(cubin: bytes, timeout_s: float = TIMEOUT_S) -> str | Failure:
    """Run `nvdisasm -g -c` on an ELF file: code with labels, and source lines if it has some.

    The tool is ended after `timeout_s` seconds.
    """
    from asmtune.triton_api.compiler import disassembler

    try:
        tool = disassembler()
    except (RuntimeError, OSError) as error:
        detail = f"{error}; install triton with its tools, or set TRITON_NVDISASM_PATH"
        return Failure(STAGE, "tool", detail)
    with temporary_files(), tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "-g", "-c", str(path)],
                capture_output=True,
                timeout=timeout_s,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            detail = f"nvdisasm took too long: {error.timeout:g} s for {len(cubin):,} bytes"
            return Failure(STAGE, "timeout", detail)
        except OSError as error:
            return Failure(STAGE, "tool", f"{tool}: {error.strerror or error}")
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        message = " ".join((done.stderr.decode(errors="replace") or text).split())
        message = message.replace(str(path), "the cubin")[:_SHOWN]
        return Failure(STAGE, "nvdisasm", f"nvdisasm ended with {done.returncode}: {message}")
    return text
