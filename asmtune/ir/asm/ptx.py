"""Read PTX text into a `Listing`.

One pass over the lines. A line that is one whole instruction, as nearly all are, costs
one regular expression; the rest (labels, directives, braces, several statements on a
line, one statement on several lines) goes through `_Reader._read_slowly`.

After NVIDIA, "Parallel Thread Execution ISA", chapters 4, 5 and 11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from asmtune.base.errors import ParseError
from asmtune.ir.asm.flow import Jump, expanded_entry, find_blocks, find_loops
from asmtune.ir.asm.nvptx import CALLS, JUMPS, loop_role
from asmtune.ir.asm.program import AsmFunction, BasicBlock, Instruction, Listing, LoopRole

_FUNCTION = re.compile(r"\.(entry|func)\b\s*").search
_RETURNED = re.compile(r"\([^)]*\)\s*").match
_FUNCTION_NAME = re.compile(r"[\w$%]+").match
_FUNCTION_DIRECTIVES = re.compile(r"\.(\w+)\s*([\w,\s]*)").findall


MOST_BRACES = 64
MOST_TARGETS = 1_000_000
"""Branch targets in a function: many `brx` may share one long table."""

MOST_FUNCTIONS = 10_000


def quoted(text: str) -> str:
    """Quote text for a message, on one line and no longer than 60 characters."""
    flat = " ".join(text[:1000].split())
    return repr(flat if len(flat) <= 60 else flat[:57] + "...")


class Scope:
    """Labels declared between one pair of braces, and the scope around it."""

    __slots__ = ("depth", "labels", "line", "parent", "tables")

    def __init__(self, parent: Scope | None, line: int) -> None:
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        if self.depth > MOST_BRACES:
            raise ParseError(f"line {line}: braces nest deeper than {MOST_BRACES}")
        self.line = line
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}

    def find_label(self, name: str) -> int | None:
        """Return the instruction after a label, the innermost of that name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.labels:
            scope = scope.parent
        return None if scope is None else scope.labels[name]

    def find_table(self, name: str) -> tuple[str, ...] | None:
        """Return the labels of a `.branchtargets` directive."""
        scope: Scope | None = self
        while scope is not None and name not in scope.tables:
            scope = scope.parent
        return None if scope is None else scope.tables[name]


class FunctionBuilder:
    """A function while its body is read."""

    def __init__(self, header: str, line: int) -> None:
        match = _FUNCTION(header)
        start = match.end() if match else 0
        if returned := _RETURNED(header, start):
            start = returned.end()
        name = _FUNCTION_NAME(header, start)
        if match is None or name is None:
            raise ParseError(f"line {line}: a function without a name: {quoted(header)}")
        self.is_entry = match[1] == "entry"
        self.name = name[0]
        tail = header[max(name.end(), header.rfind(")")) :]
        self.directives = {
            key: " ".join(value.split()) for key, value in _FUNCTION_DIRECTIVES(tail)
        }
        self.scope = Scope(None, line)
        self.instructions: list[Instruction] = []
        self.jumps: list[tuple[Instruction, Scope]] = []

    def close(self, file_directives: Mapping[str, str]) -> AsmFunction:
        """Resolve labels, find blocks and loops; raise ParseError where a label is missing."""
        jumps: dict[int, Jump] = {}
        labels: dict[int, str] = {}
        count = 0
        for instruction, scope in self.jumps:
            named = _named_targets(instruction, scope)
            count += len(named)
            if count > MOST_TARGETS:
                where = f"line {instruction.line}: function {self.name}"
                raise ParseError(f"{where} has more than {MOST_TARGETS:,} branch targets")
            jumps[instruction.index] = Jump(tuple(named), falls=instruction.predicate is not None)
            for index, name in named.items():
                labels.setdefault(index, name)
        blocks = find_blocks(len(self.instructions), jumps, labels)

        def role_of(header: int, body: Sequence[int]) -> LoopRole:
            return loop_role(
                self._instructions_in(blocks[header : header + 1]),
                self._instructions_in([blocks[block] for block in body]),
            )

        loops = find_loops(blocks, role_of)
        directives = {**file_directives, **self.directives}
        instructions = tuple(self.instructions)
        return AsmFunction(self.name, self.is_entry, instructions, blocks, loops, directives)

    def _instructions_in(self, blocks: Sequence[BasicBlock]) -> list[Instruction]:
        return [item for block in blocks for item in self.instructions[block.start : block.end]]


def _named_targets(instruction: Instruction, scope: Scope) -> dict[int, str]:
    targets: dict[int, str] = {}
    for name in _target_names(instruction, scope):
        index = scope.find_label(name)
        if index is None:
            where = f"line {instruction.line}: {instruction.opcode}"
            raise ParseError(f"{where} to a label that is not in its function: {quoted(name)}")
        targets.setdefault(index, name)
    return targets


def _target_names(instruction: Instruction, scope: Scope) -> tuple[str, ...]:
    root = instruction.opcode.partition(".")[0]
    operands = instruction.operands
    where = f"line {instruction.line}: {instruction.opcode}"
    if root == "brx":
        names = scope.find_table(operands[-1]) if operands else None
        if names is None:
            raise ParseError(f"{where} names no .branchtargets: {quoted(instruction.text)}")
        return names
    if root != "bra":
        return ()
    if len(operands) != 1:
        raise ParseError(f"{where} takes one label: {quoted(instruction.text)}")
    return operands


_OPCODE = r"[a-z]\w*(?:\.\w+(?:::\w+)*)*"
_WHOLE_LINE = re.compile(
    rf"\s*(?:@(!?[%\w$]+)\s+)?({_OPCODE})(?:\s([^;/\"]*))?;\s*(?://.*)?"
).fullmatch
_STATEMENT = re.compile(
    rf"(?:@\s*(?:(!)\s*)?([%\w$]+)\s+)?({_OPCODE})(?=[\s{{(\[]|$)\s*(.*)", re.DOTALL
).fullmatch
# Nine digits at most: int() raises on text of more than 4,300.
_LOCATION = re.compile(r"\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\b").match
_INLINED = re.compile(r"\s*// (begin|end) inline asm\s*").fullmatch
_FILE = re.compile(r'\s*(\d{1,9})\s+"([^"]*)"').match
_LABEL = re.compile(r"([\w$%.]+)\s*:(?!:)\s*").match
_SPACE = re.compile(r"\s*").match
_NOTHING = re.compile(r"[\s;]*").match
_COMMENT = re.compile(r'("[^"]*")|//.*')
_BLOCK_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc|section)\b(.*)").match
_HEADER = re.compile(r"\.(?:entry|func)\b").search


def parse_ptx(text: str) -> Listing:
    """Read one PTX module, as Triton's `asm["ptx"]`.

    Labels in braces hide those outside, as PTX has it: each wait loop that Triton writes
    as inline assembly is `{ ... waitLoop: ... bra.uni waitLoop; }`, and each branch goes
    to its own.

    Raises:
        ParseError: the text is not PTX or ends too early; the message names the line.
    """
    return _Reader(text).read()


def ptx_kernel(listing: Listing) -> AsmFunction:
    """Return the kernel of a module, with the bodies of the functions that it calls.

    Raises:
        ParseError: the module has no kernel, or one with too much code in loops.
    """
    return expanded_entry(listing, CALLS)


class _Reader:
    def __init__(self, text: str) -> None:
        if "/*" in text:
            text = _BLOCK_COMMENT.sub(_blank, text)
        self._lines: Iterator[tuple[int, str]] = enumerate(text.split("\n"), 1)
        self._number = 0
        self._directives: dict[str, str] = {}
        self._files: dict[int, str] = {}
        self._programs: list[AsmFunction] = []
        self._function: FunctionBuilder | None = None
        self._scope = Scope(None, 0)
        self._source: tuple[int, int] | None = None
        self._misplaced: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
        self._inlined = self._located = False
        self._label = ""
        self._pending: list[str] = []
        self._pending_line = 0
        self._in_header = False

    def read(self) -> Listing:
        for number, line in self._lines:
            if self._function is not None and not self._pending:
                if match := _WHOLE_LINE(line):
                    predicate, opcode, operands = match.groups()
                    self._add(self._function, number, opcode, predicate, operands or "")
                    continue
                if match := _LOCATION(line):
                    self._locate(match)
                    continue
                if match := _INLINED(line):
                    self._inlined, self._located = match[1] == "begin", False
                    continue
            self._number = number
            self._read_slowly(line)
        self._check_end()
        misplaced = {place: tuple(homes) for place, homes in self._misplaced.items()}
        return Listing(tuple(self._programs), self._directives, self._files, misplaced)

    def _add(
        self,
        function: FunctionBuilder,
        line: int,
        opcode: str,
        predicate: str | None,
        operands: str,
    ) -> None:
        items = function.instructions
        text = operands.strip()
        instruction = Instruction(len(items), line, opcode, predicate, text, self._source)
        items.append(instruction)
        if opcode in JUMPS:
            function.jumps.append((instruction, self._scope))

    def _locate(self, location: re.Match[str]) -> None:
        """Take a source line; all lines of a piece of inline assembly count as its first one.

        The LLVM of Triton 3.9 puts each further line of the piece one line further down.
        """
        place = (int(location[1]), int(location[2]))
        if not self._located:
            self._source = place
        elif (home := self._source) is not None and home[0] == place[0] and home != place:
            self._misplaced.setdefault(place, {})[home] = None
        self._located = self._inlined

    def _read_slowly(self, line: str) -> None:
        if "//" in line:
            line = _COMMENT.sub(r"\1", line)
        # Positions, not rests of the text: a line may hold 200,000 statements.
        place = 0
        while (place := self._skipped(line, place)) < len(line):
            place = self._advance(line, place)

    def _skipped(self, line: str, place: int) -> int:
        match = (_SPACE if self._pending else _NOTHING)(line, place)
        return place if match is None else match.end()

    def _advance(self, text: str, place: int) -> int:
        """Read the label, brace, directive or statement at a place; return where it ends."""
        if not self._pending:
            if text[place] in "{}":
                self._meet(text[place])
                return place + 1
            if self._function is not None and (match := _LABEL(text, place)):
                self._define(match[1])
                return match.end()
            if match := _LINE_DIRECTIVE(text, place):
                self._obey(match[1], match[2])
                return len(text)
            self._check_start(text, place)
            self._pending_line = self._number
            self._in_header = False
        end = self._statement_end(text, place)
        self._pending.append((text[place:] if end < 0 else text[place:end]).rstrip())
        if end < 0:
            return len(text)
        statement = "\n".join(self._pending).strip()
        self._pending.clear()
        if text[end] == "{":
            self._function = FunctionBuilder(statement, self._pending_line)
            self._scope = self._function.scope
            self._source = None
        elif self._function is not None:
            self._take(self._function, statement)
        return end + 1

    def _check_start(self, text: str, place: int) -> None:
        inside, first = self._function is not None, text[place]
        if first == "." or (inside and (first == "@" or first.isalpha())):
            return
        expected = "an instruction, label or directive" if inside else "a directive"
        shown = quoted(text[place : place + 1000])
        raise ParseError(f"line {self._number}: not PTX: expected {expected}: {shown}")

    def _statement_end(self, text: str, place: int) -> int:
        end = text.find(";", place)
        if self._function is None:
            stop = len(text) if end < 0 else end
            self._in_header = self._in_header or _HEADER(text, place, stop) is not None
            brace = text.find("{", place, stop)
            if self._in_header and brace >= 0:
                return brace
        return end

    def _meet(self, char: str) -> None:
        function = self._function
        if function is None:
            raise ParseError(f"line {self._number}: {char!r} outside a function")
        if char == "{":
            self._scope = Scope(self._scope, self._number)
        elif self._scope.parent is not None:
            self._scope = self._scope.parent
        else:
            self._programs.append(function.close(self._directives))
            self._function = None
            if len(self._programs) > MOST_FUNCTIONS:
                raise ParseError(f"line {self._number}: more than {MOST_FUNCTIONS:,} functions")

    def _define(self, name: str) -> None:
        function = self._function
        if function is None or name in self._scope.labels:
            raise ParseError(f"line {self._number}: label {quoted(name)} stands twice in its scope")
        self._scope.labels[name] = len(function.instructions)
        self._label = name

    def _obey(self, directive: str, value: str) -> None:
        if directive == "section":
            self._skip_section(value)
        elif directive == "loc":
            if match := _LOCATION(".loc" + value):
                self._locate(match)
        elif directive == "file":
            if match := _FILE(value):
                self._files[int(match[1])] = match[2]
        else:
            self._directives[directive] = value.strip()

    def _skip_section(self, value: str) -> None:
        """Pass over a section of debug data, which is bytes and no code."""
        if value.rstrip().endswith("}"):
            return
        for _, line in self._lines:
            if line.strip() == "}":
                return
        raise ParseError(f"line {self._number}: the text ends inside .section {quoted(value)}")

    def _take(self, function: FunctionBuilder, statement: str) -> None:
        if statement[0] == ".":
            word, *names = statement.split(maxsplit=1)
            if word == ".branchtargets" and names:
                targets = tuple(name.strip() for name in names[0].split(","))
                self._scope.tables[self._label] = targets
            return
        match = _STATEMENT(statement)
        if match is None:
            raise ParseError(f"line {self._pending_line}: no instruction: {quoted(statement)}")
        negated, guard, opcode, operands = match.groups()
        predicate = None if guard is None else (negated or "") + guard
        self._add(function, self._pending_line, opcode, predicate, " ".join(operands.split()))

    def _check_end(self) -> None:
        if self._pending:
            shown = quoted(self._pending[0])
            where = f"line {self._pending_line}"
            raise ParseError(f"{where}: the text ends inside a statement: {shown}")
        if self._function is not None:
            name, line = self._function.name, self._function.scope.line
            raise ParseError(f"the text ends inside function {name}, opened at line {line}")
        if "version" not in self._directives:
            raise ParseError(f"not PTX: no .version directive in {self._number} lines")
        if not self._programs:
            raise ParseError(f"no function with a body in {self._number} lines of PTX")


def _blank(match: re.Match[str]) -> str:
    """Keep strings and line comments; leave a block comment's line breaks only."""
    text = match[0]
    return "\n" * text.count("\n") or " " if text.startswith("/*") else text
