"""A kernel's PTX, SASS or AMDGCN by line, with what is known of each line: the view of a reader.

A terminal and a page show the same values. How often a line runs is the weight that the features
use; the SASS has that of the PTX that it comes from.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.base.errors import ParseError
from asmtune.compile.disassembly import disassemble
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.asm.amdgcn import amdgcn_kernel, parse_amdgcn
from asmtune.ir.asm.amdgpu import classify_amdgpu
from asmtune.ir.asm.counts import hottest_loop
from asmtune.ir.asm.flow import postorder
from asmtune.ir.asm.nvptx import Group, OpClass, classify, group_of
from asmtune.ir.asm.program import AsmFunction, Instruction, Listing, Loop
from asmtune.ir.asm.ptx import parse_ptx, ptx_kernel
from asmtune.ir.asm.sass import classify_sass, parse_sass, relocated
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.execution import SegmentRun, executions
from asmtune.predict.prune.front import Judge
from asmtune.predict.why.findings import Explanation, reasons
from asmtune.report.loop_origins import origins

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
        group: the group of `kind`; None where that is.
        source: (index into `CodeView.files`, line), where the debug information tells.
        depth: loops around it that work.
        times: executions by one program, on average; 0 of machine code that no path reaches, such
            as what fills it up; None in a function that is called, of which nothing says how often.
        hot: whether it is in the hottest loop.
    """

    number: int
    text: str
    kind: OpClass | None
    group: Group | None
    source: tuple[int, int] | None
    depth: int
    times: float | None
    hot: bool


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Instructions of one class, of the kernel without functions that it calls.

    They are counted in the text, in the hottest loop, and as executed by one thread of one program.
    """

    kind: OpClass
    group: Group
    instructions: int
    hot: int
    executed: float


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The loop where the work is, with its executions by one program; its depth counts itself."""

    depth: int
    instructions: int
    times: float


@dataclass(frozen=True, slots=True)
class CodeView:
    """The code of one compiled config in one launch.

    Attributes:
        kernel: name of the entry.
        files: paths of source files, as the compiler got them, by index.
        classes: one a class that occurs, most executed first.
        hot: None where the kernel has no loop.
        notes: caveats for the reader.
    """

    language: Language
    kernel: str
    lines: tuple[CodeLine, ...]
    files: Mapping[int, str]
    classes: tuple[ClassCount, ...]
    hot: HotLoop | None
    notes: tuple[str, ...]


def _sass_view(
    text: str, listing: Listing, ptx: AsmFunction, runs: Sequence[SegmentRun]
) -> CodeView:
    """Make a view of SASS, as `disassemble` gives it; its loops come from the PTX's."""
    entry = listing.entry
    loop_origins = origins(entry, ptx, runs)
    hottest = hottest_loop(ptx, classify, tuple(run.times for run in runs[1:]))
    hottest_index = None if hottest is None else ptx.loops.index(hottest)
    times = tuple(origin.times for origin in loop_origins)
    copies = [
        i
        for i, origin in enumerate(loop_origins)
        if hottest_index is not None and origin.loop == hottest_index
    ]
    # A loop may have a main part and a rest: take the one that runs. ptxas may have unrolled both.
    best = max(copies, key=lambda i: (times[i], len(entry.loops[i].blocks)), default=None)
    hot = hottest_loop(entry, classify_sass) if best is None else entry.loops[best]
    return _view("SASS", text, listing, _Weights(entry, classify_sass, times, hot))


def _assembly_view(
    language: Language, text: str, listing: Listing, entry: AsmFunction, runs: Sequence[SegmentRun]
) -> CodeView:
    """Make a view of PTX or AMDGCN from its text and the same parsed."""
    class_of = classify if language == "PTX" else classify_amdgpu
    times = tuple(run.times for run in runs[1:])
    hot = hottest_loop(entry, class_of, times)
    return _view(language, text, listing, _Weights(entry, class_of, times, hot))


class _Weights:
    """Holds what is known of the instructions of an entry, with those of what it calls."""

    def __init__(
        self,
        entry: AsmFunction,
        class_of: Callable[[str], OpClass],
        times: Sequence[float],
        hot: Loop | None,
    ) -> None:
        self.entry, self.class_of, self.hot = entry, class_of, hot
        self._times = times
        # The features count all PTX; SASS ends in a branch to itself and in what fills it up.
        successors = [block.successors for block in entry.blocks]
        self._reached = frozenset(postorder(successors)) if entry.addresses else None
        self._hot_blocks = frozenset(() if hot is None else hot.blocks)
        self._copies: dict[int, list[Instruction]] = {}
        last = 0
        for item in entry.instructions:
            if item.line != last:  # else it is on one line with the one before
                self._copies.setdefault(item.line, []).append(item)
            last = item.line

    def copies(self, line: int) -> Sequence[Instruction]:
        """Return the first instruction of a line, once for each call of its function."""
        return self._copies.get(line, ())

    def times(self, item: Instruction) -> float:
        block = self.entry.block_of(item.index)
        loop = self.entry.innermost_loops[block]
        if loop is None:
            return 1.0 if self._reached is None or block in self._reached else 0.0
        return self._times[loop]

    def is_hot(self, item: Instruction) -> bool:
        return self.entry.block_of(item.index) in self._hot_blocks

    def classes(self) -> tuple[ClassCount, ...]:
        instructions: Counter[OpClass] = Counter()
        hot: Counter[OpClass] = Counter()
        executed: dict[OpClass, float] = {}
        for item in self.entry.instructions:
            kind = self.class_of(item.opcode)
            instructions[kind] += 1
            hot[kind] += self.is_hot(item)
            executed[kind] = executed.get(kind, 0.0) + self.times(item)
        counts = [
            ClassCount(k, group_of(k), n, hot[k], executed[k]) for k, n in instructions.items()
        ]
        return tuple(sorted(counts, key=lambda count: (-count.executed, count.kind)))

    def loop(self) -> HotLoop | None:
        if self.hot is None:
            return None
        blocks = self.entry.blocks
        size = sum(blocks[block].end - blocks[block].start for block in self.hot.blocks)
        times = self._times[self.entry.loops.index(self.hot)]
        return HotLoop(self.hot.depth, size, times)


def _view(language: Language, text: str, listing: Listing, weights: _Weights) -> CodeView:
    lines = tuple(_lines(language, text, listing, weights))
    sourced = any(line.source is not None for line in lines)
    return CodeView(
        language=language,
        kernel=weights.entry.name,
        lines=lines,
        files=listing.files,
        classes=weights.classes(),
        hot=weights.loop(),
        notes=() if sourced else (NO_SOURCES,),
    )


def _lines(
    language: Language, text: str, listing: Listing, weights: _Weights
) -> Iterator[CodeLine]:
    shown = {"PTX": _shown_ptx, "SASS": _shown_sass, "AMDGCN": _shown_amdgcn}[language]
    texts = text.split("\n")
    for program in listing.programs:
        owner: dict[int, Instruction] = {}
        for item in program.instructions:
            owner.setdefault(item.line, item)
        numbers = sorted(owner)
        for number in _span(texts, numbers, language):
            line = shown(texts[number - 1])
            # What is no instruction has the place of the one that follows it.
            following = min(bisect_left(numbers, number), len(numbers) - 1)
            item = owner[numbers[following]]
            if line:
                yield _line(number, line, item, program, weights, own=number in owner)


def _line(
    number: int,
    text: str,
    item: Instruction,
    program: AsmFunction,
    weights: _Weights,
    *,
    own: bool,
) -> CodeLine:
    copies = weights.copies(item.line)
    kind = weights.class_of(item.opcode) if own else None
    source = item.source if own and item.source and item.source[1] else None
    return CodeLine(
        number=number,
        text=text,
        kind=kind,
        group=None if kind is None else group_of(kind),
        source=source,
        depth=max(weights.entry.depth_of(copy.index) for copy in copies)
        if copies
        else program.depth_of(item.index),
        times=sum(map(weights.times, copies)) if copies else None,
        hot=any(map(weights.is_hot, copies)),
    )


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
        text, runs = artifact.outputs[self.language.lower()], self._runs(config, artifact)
        if self.language == "AMDGCN":
            listing = parse_amdgcn(text)
            return _assembly_view("AMDGCN", text, listing, amdgcn_kernel(listing), runs)
        listing = parse_ptx(text)
        return _assembly_view("PTX", text, listing, ptx_kernel(listing), runs)

    def sass(self, config: Config, artifact: Artifact) -> CodeView | Failure:
        """Make a view of a config's SASS, or say why it cannot be shown.

        Raises:
            ParseError: the artifact is damaged.
            ProblemError: the grid is invalid for this config.
        """
        if self.language == "AMDGCN":
            return Failure("sass", "options", f"{self._target.name} has AMDGCN, and no SASS")
        text = disassemble(artifact.cubin)
        if isinstance(text, Failure):
            return text
        try:
            listing = parse_sass(text)
        except ParseError as error:
            return Failure("sass", "parse", str(error))
        ptx = parse_ptx(artifact.outputs["ptx"])
        kernel, runs = ptx_kernel(ptx), self._runs(config, artifact)
        return _sass_view(text, relocated(listing, ptx), kernel, runs)

    def _runs(self, config: Config, artifact: Artifact) -> tuple[SegmentRun, ...]:
        """Count how often one program runs each segment of the PTX, as the features do."""
        work, lanes = self._work(config, artifact), self._target.warp_size
        return executions(self._read(artifact), work, lanes)

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
