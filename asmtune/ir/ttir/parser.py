"""Read TTIR text, Triton's first dialect as MLIR prints it, into operations, blocks and regions.

MLIR writes one operation on a line; regions open at a line's end and close at a line's
start. The meaning of an operation does not matter here: unknown operations are parsed like
others. Only the partitions of `ttg.warp_specialize`, which have no name of an operation, get one:
`PARTITION`, with that operation's operands.

After "MLIR Language Reference", sections on operations, regions and locations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.ir.ttir.mlir_types import split_list

_POSITION: Final = re.compile(r'"([^"]*)":(\d{1,9}):(\d{1,9})').search
_REFERENCE: Final = re.compile(r"#loc\d*").search


@contextmanager
def well_formed() -> Iterator[None]:
    """Turn the many errors that malformed text leads to into ParseError."""
    try:
        yield
    except ParseError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ParseError(f"not well-formed TTIR: {type(error).__name__}: {error}") from error
    except RecursionError:
        raise ParseError("not well-formed TTIR: it nests too deeply") from None


@dataclass(slots=True)
class Argument:
    """A parameter of a block or function: its name with the percent sign, and texts after it."""

    value: str
    type: str
    location: str = ""


@dataclass(slots=True)
class Operation:
    """An operation of the text; not frozen, for speed.

    Attributes:
        name: with its dialect ("arith.addi").
        results: names of its results; a pack `%4:2` gives `%4#0` and `%4#1`.
        operands: names in the order of the text; those of regions are not among them. For
            `scf.for`: lower bound, upper bound, step, then the initial values.
        text: attributes and types as written; those after a region's end included.
        location: text inside `loc(...)`, or "".
        regions: lists of blocks.
        line: line of the text, from 1.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    location: str
    line: int
    regions: list[list[OpBlock]] = field(default_factory=list)


@dataclass(slots=True)
class OpBlock:
    """Operations in order; the label is without the caret, "" for a region's first block."""

    label: str
    arguments: list[Argument] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function; one without blocks is defined elsewhere.

    Attributes:
        name: its symbol, without quotes.
        public: whether it is a kernel.
        arguments: its parameters; constants of the specialisation are not among them.
        location: text inside the `loc(...)` at its end, or "".
    """

    name: str
    public: bool
    arguments: list[Argument]
    blocks: list[OpBlock]
    line: int
    location: str = ""


@dataclass(frozen=True)
class Module:
    """A TTIR text.

    Attributes:
        functions: by name.
        locations: texts of location aliases by name (`#loc3`).
    """

    functions: Mapping[str, Function]
    locations: Mapping[str, str]

    @cached_property
    def kernel(self) -> Function:
        """Return the first public function, or the first function if none is public."""
        functions = list(self.functions.values())
        return next((f for f in functions if f.public and f.blocks), functions[0])

    def position(self, location: str) -> tuple[str, int] | None:
        """Return the file and line that a location names, or None if it has none."""
        for _ in range(16):
            if match := _POSITION(location):
                return match[1], int(match[2])
            reference = _REFERENCE(location)
            if reference is None:
                return None
            location = self.locations.get(reference[0], "")
        return None


# Nine digits at most: int() raises on text of more than 4,300.
_VALUE: Final = r"%[\w$.\-]+"
_OPERATION: Final = re.compile(
    rf'((?:{_VALUE}(?::\d{{1,4}})?(?:, )?)+ = )?"?([A-Za-z_]\w*(?:\.[\w$]+)*)"?(.*)'
).fullmatch
_RESULT: Final = re.compile(rf"({_VALUE})(?::(\d{{1,4}}))?").findall
_OPERANDS: Final = re.compile(rf"{_VALUE}(?:#\d{{1,4}})?").findall
# A string without an end takes the rest of the line: at each quote it would be read again.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)')
_ALIAS: Final = re.compile(r"(#\w+) = loc\((.*)\)").match
_LABEL: Final = re.compile(r"\^(\w+)(?:\((.*)\))?:").match
_ARGUMENT: Final = re.compile(rf"({_VALUE}): ").match
_FUNCTION: Final = re.compile(r'(?:(\w+) )?@("(?:[^"\\]|\\.)*"|[\w.$\-]+)\(').match
_FOR: Final = re.compile(
    rf"(?:unsigned )?({_VALUE}) = ({_VALUE}\S*) to ({_VALUE}\S*) step ({_VALUE}\S*)"
    r"(?: iter_args\((.*?)\) -> \((.*)\))? *:? *([\w!.<>]*)"
).match
_PAIR: Final = re.compile(rf"({_VALUE}) = ({_VALUE}(?:#\d{{1,4}})?)").findall
PARTITION: Final = "asmtune.partition"
SPECIALIZE: Final = "ttg.warp_specialize"
_PARTITION: Final = re.compile(r"partition(\d+)\((.*)\) num_warps\((\d+)\) \{").fullmatch
_MAX_DEPTH: Final = 100
_MAX_LINE: Final = 200_000
_MAX_RESULTS: Final = 1_000_000


def parse_ttir(text: str) -> Module:
    """Read one TTIR module, as `str(module)` gives it, before or after Triton's passes.

    Raises:
        ParseError: the text is not TTIR or ends too early; the message names the line.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if len(stripped) > _MAX_LINE:
            shown = f"{len(stripped):,} characters, more than {_MAX_LINE:,}"
            raise ParseError(f"line {number}: {shown}: {stripped[:60]!r}")
        if stripped:
            reader.take(number, stripped)
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        root = Operation("", (), (), "", "", 0, [[OpBlock("")]])
        self._stack = [root]
        self._block = root.regions[0][0]
        self._functions: dict[str, Function] = {}
        self._locations: dict[str, str] = {}
        self._function_read: Function | None = None
        self._results = 0

    def take(self, number: int, line: str) -> None:
        first = line[0]
        if first == "#":
            if match := _ALIAS(line):
                self._locations[match[1]] = match[2]
        elif first == "}":
            self._close(number, line)
        elif first == "^":
            self._label(number, line)
        elif line.startswith("partition") and (match := _PARTITION(line)):
            self._partition(number, match)
        elif first not in "/!{":
            self._operation(number, line)

    def finish(self) -> Module:
        if len(self._stack) > 1:
            opened = self._stack[-1]
            raise ParseError(f"the text ends inside {opened.name}, opened at line {opened.line}")
        if not self._functions:
            raise ParseError("not TTIR: no tt.func in the text")
        return Module(self._functions, self._locations)

    def _operation(self, number: int, line: str) -> None:
        match = _OPERATION(line)
        if match is None:
            raise ParseError(f"line {number}: not TTIR: {line[:60]!r}")
        pack, name, rest = match.groups()
        opens = rest.endswith("{")
        # A line that opens a region has its location at the region's end.
        rest, location = (rest[:-1].strip(), "") if opens else _split_location(rest)
        bare = _STRING.sub('""', rest) if '"' in rest else rest
        results = self._named_results(number, pack) if pack else ()
        operation = Operation(name, results, tuple(_OPERANDS(bare)), rest, location, number)
        self._block.operations.append(operation)
        if name == "tt.func":
            self._function(operation, opens)
        elif opens:
            self._open(operation, _entry_arguments(operation))

    def _partition(self, number: int, match: re.Match[str]) -> None:
        before = self._block.operations
        captured = next((one.operands for one in reversed(before) if one.name == SPECIALIZE), ())
        text = f"{{index = {match[1]}, num_warps = {match[3]}}}"
        operation = Operation(PARTITION, (), captured, text, "", number)
        self._block.operations.append(operation)
        arguments = [_argument(part, number) for part in split_list(match[2])]
        self._open(operation, arguments)

    def _named_results(self, number: int, pack: str) -> tuple[str, ...]:
        named = _RESULT(pack)
        self._results += sum(int(count or 1) for _, count in named)
        if self._results > _MAX_RESULTS:
            raise ParseError(f"line {number}: more than {_MAX_RESULTS:,} results in the text")
        return _result_names(named)

    def _function(self, operation: Operation, opens: bool) -> None:
        match = _FUNCTION(operation.text)
        if match is None:
            raise ParseError(f"line {operation.line}: a tt.func without a name")
        parameters = _bracketed(operation.text, match.end())
        arguments = [_argument(part, operation.line) for part in split_list(parameters)]
        name = match[2].strip('"')
        function = Function(name, match[1] == "public", arguments, [], operation.line)
        self._functions[name] = self._function_read = function
        operation.operands = ()
        if opens:
            self._open(operation, [])
            function.blocks = operation.regions[-1]

    def _open(self, operation: Operation, arguments: list[Argument]) -> None:
        if len(self._stack) > _MAX_DEPTH:
            raise ParseError(f"line {operation.line}: regions nest deeper than {_MAX_DEPTH}")
        self._block = OpBlock("", arguments)
        operation.regions.append([self._block])
        self._stack.append(operation)

    def _close(self, number: int, line: str) -> None:
        if len(self._stack) == 1:
            raise ParseError(f"line {number}: a brace closes what was never opened")
        operation = self._stack.pop()
        if line[-1] == "{":
            self._open(operation, [])
            return
        tail, location = _split_location(line[1:])
        operation.text += tail
        operation.location = location or operation.location
        if operation.name == "tt.func" and self._function_read is not None:
            self._function_read.location = location
        self._block = self._stack[-1].regions[-1][-1]

    def _label(self, number: int, line: str) -> None:
        match = _LABEL(line)
        if match is None:
            raise ParseError(f"line {number}: no block's label: {line[:60]!r}")
        label, text = match.groups()
        arguments = [_argument(part, number) for part in split_list(text or "")]
        region = self._stack[-1].regions[-1]
        if len(region) == 1 and not region[0].operations and not region[0].label:
            # The first block is named only where it has arguments.
            region.clear()
        self._block = OpBlock(label, arguments)
        region.append(self._block)


def _split_location(text: str) -> tuple[str, str]:
    place = text.rfind(" loc(")
    if place < 0:
        return text.strip(), ""
    return text[:place].strip(), text[place + 5 :].rstrip()[:-1]


def _result_names(named: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    names: list[str] = []
    for name, count in named:
        names += [f"{name}#{place}" for place in range(int(count))] if count else [name]
    return tuple(names)


def _bracketed(text: str, start: int) -> str:
    """Return the text up to the parenthesis that closes the one before `start`."""
    depth, place = 1, start
    quoted = False
    while place < len(text) and depth:
        char = text[place]
        if char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
        place += 1
    return text[start : place - 1]


def _argument(text: str, line: int) -> Argument:
    match = _ARGUMENT(text)
    if match is None:
        raise ParseError(f"line {line}: no argument: {text[:60]!r}")
    kind, has_location, location = text[match.end() :].partition(" loc(")
    if has_location and not location.endswith(")"):
        kind, location = text[match.end() :], ")"
    bare, has_attributes, _ = kind.partition(" {")
    kind = bare if has_attributes and kind.endswith("}") else kind
    return Argument(match[1], kind, location[:-1])


def _while_parts(text: str) -> tuple[str, str] | None:
    """Return the bindings and the types of `(%a = %b) : (i32) -> i32`; else None."""
    end = text.find(") : (") if text.startswith("(") else -2
    start, stop = end + 2, text.rfind(") -> ")
    if not text.startswith(": (", start) or stop < start + 3:
        return None
    return text[1 : max(end, 1)], text[start + 3 : stop]


def _entry_arguments(operation: Operation) -> list[Argument]:
    """Return arguments of the first block that the operation's own line declares."""
    text = operation.text
    if operation.name == "scf.for":
        match = _FOR(text)
        if match is None:
            raise ParseError(f"line {operation.line}: no scf.for: {text[:60]!r}")
        variable, *bounds = match.group(1, 2, 3, 4)
        pairs, types = _PAIR(match[5] or ""), split_list(match[6] or "")
        operation.operands = (*bounds, *(value for _, value in pairs))
        entries = [Argument(name, kind) for (name, _), kind in zip(pairs, types, strict=False)]
        return [Argument(variable, match[7] or "i32"), *entries]
    if operation.name == "scf.while" and (parts := _while_parts(text)):
        pairs, types = _PAIR(parts[0]), split_list(parts[1])
        operation.operands = tuple(value for _, value in pairs)
        return [Argument(name, kind) for (name, _), kind in zip(pairs, types, strict=False)]
    return []
