"""A PTX function while its body is read: its braces, labels and jumps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from asmtune.base.errors import ParseError
from asmtune.base.text import shortened
from asmtune.ir.asm.flow import Jump, find_blocks, find_loops
from asmtune.ir.asm.nvptx import jump_of, loop_role
from asmtune.ir.asm.program import AsmFunction, BasicBlock, Instruction, LoopRole

_FUNCTION = re.compile(r"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$%]+)").search
_FUNCTION_DIRECTIVES = re.compile(r"\.(\w+)\s*([\w,\s]*)").findall


def quoted(text: str) -> str:
    """Quote text for a message, on one line and no longer than 60 characters."""
    return repr(shortened(" ".join(text.split())))


class Scope:
    """Labels declared between one pair of braces, and the scope around it."""

    __slots__ = ("labels", "line", "parent", "tables")

    def __init__(self, parent: Scope | None, line: int) -> None:
        self.parent = parent
        self.line = line
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}

    def find_label(self, name: str) -> int | None:
        """Return the instruction that a label stands before, of the innermost such label."""
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
        if match is None:
            raise ParseError(f"line {line}: a function without a name: {quoted(header)}")
        self.is_entry = match[1] == "entry"
        self.name = match[2]
        tail = header[max(match.end(), header.rfind(")")) :]
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
        for instruction, scope in self.jumps:
            named = _named_targets(instruction, scope)
            jumps[instruction.index] = jump_of(instruction, tuple(named))
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
    """Return the labels an instruction may branch to, by the instruction they stand before."""
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
