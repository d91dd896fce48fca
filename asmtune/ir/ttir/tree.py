"""A kernel as a tree of regions, with every call expanded and values numbered.

A called function of one block is written into its caller, as Triton's inliner does; one
with branches (an early return) stays a `tt.call` node with the function's blocks as its
region. So each loop of the tree is one loop of the machine code, unless the function is
`noinline`, whose code is shared while its work is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.ir.asm.flow import postorder
from asmtune.ir.ttir.mlir_types import ValueType, parse_type, result_types
from asmtune.ir.ttir.parser import Argument, Function, Module, OpBlock, Operation

LOOPS: Final = frozenset({"scf.for", "scf.while"})
RETURNS: Final = frozenset({"tt.return", "scf.yield", "scf.condition", "ttg.warp_yield"})
COPIES: Final = frozenset(
    {"ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local",
     "ttng.async_tma_gather"}
)  # fmt: skip
"""Operations that read memory and leave what they read in shared memory."""

_PREDICATED: Final = {
    "ttng.async_tma_copy_global_to_local": None,
    "ttng.async_tma_gather": None,
    "ttng.tc_gen5_mma": 4,
    "ttng.tc_gen5_mma_scaled": 6,
}
"""Position of the operand that says whether an operation of TTGIR runs; None: its last `i1`."""


@dataclass(slots=True, eq=False)
class Body:
    """A block of the tree.

    Attributes:
        index: position in `Tree.bodies`.
        owner: the node whose region it is in; None for the kernel's own blocks.
        arguments: values that it is entered with.
        nodes: in order, the terminator last.
        successors: for a block that branches: (block, values passed), in the text's order.
    """

    index: int
    owner: Node | None
    arguments: tuple[int, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    successors: list[tuple[Body, tuple[int, ...]]] = field(default_factory=list)

    def owners(self) -> Iterator[Node]:
        """Yield the nodes around the block, inner ones first."""
        owner = self.owner
        while owner is not None:
            yield owner
            owner = owner.body.owner

    def loops(self) -> Iterator[int]:
        """Yield the positions in `Tree.loops` of the loops around the block, inner ones first."""
        return (owner.loop for owner in self.owners() if owner.loop >= 0)


@dataclass(slots=True, eq=False)
class Node:
    """An operation of the tree.

    Attributes:
        name: with its dialect; `tt.call` only where the call was not written in.
        operands: values in the text's order.
        results: values that it makes.
        body: the block that it is in.
        operation: what was read.
        regions: each a list of blocks, the entry first.
        loop: position in `Tree.loops` if it is a loop, else -1.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    body: Body
    operation: Operation
    regions: list[list[Body]] = field(default_factory=list)
    loop: int = -1

    @property
    def text(self) -> str:
        """Return the attributes and types as written."""
        return self.operation.text


Source = tuple[Node | Body, int]


@dataclass(slots=True)
class Tree:
    """A kernel with its calls expanded.

    Attributes:
        module: what was read.
        kernel: its function.
        blocks: the kernel's blocks, the entry first.
        bodies: all blocks.
        loops: loop nodes, outer before inner, in the text's order.
        sources: for each value the node or block that defines it, and its position there.
        argument_types: of blocks' arguments, by the block's index and the position.
    """

    module: Module
    kernel: Function
    blocks: list[Body]
    bodies: list[Body]
    loops: list[Node]
    sources: list[Source]
    argument_types: dict[tuple[int, int], str] = field(default_factory=dict)

    def type_of(self, value: int) -> ValueType:
        """Return the type of a value."""
        return parse_type(self.type_text(value))

    def type_text(self, value: int) -> str:
        """Return the type of a value as written; "" if the text does not tell."""
        owner, place = self.sources[value]
        if isinstance(owner, Node):
            types = result_types(owner.name, owner.text, len(owner.results))
            return types[place] if place < len(types) else ""
        return self.argument_types.get((owner.index, place), "")

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of all blocks in order."""
        return (node for body in self.bodies for node in body.nodes)

    def line_of(self, node: Node) -> tuple[str, int] | None:
        """Return the file and line of the source that a node comes from; None if unknown."""
        return self.module.position(node.operation.location)

    def enclosing_loop(self, body: Body) -> int | None:
        """Return the position in `loops` of the innermost loop around a block, or None."""
        return next(body.loops(), None)


def is_inside(body: Body, loop: Node) -> bool:
    """Return whether a block is in a node's regions, at any depth."""
    return any(owner is loop for owner in body.owners())


# Expanding calls doubled a text at most in what was seen (tl.sort); a chain of calls that
# doubles at each step would not end.
MAX_NODES: Final = 200_000
_MAX_CALLS: Final = 60
_CALLEE: Final = re.compile(r'@("(?:[^"\\]|\\.?)*(?:"|\Z)|[\w.$\-]+)').search
_SUCCESSOR: Final = re.compile(r"\^(\w+)(?:\(([^)]*)\))?").findall
_VALUES: Final = re.compile(r"%[\w$.\-]+(?:#\d{1,4})?").findall


def build_tree(module: Module, *, predicated: bool = False) -> Tree:
    """Expand the calls of a module's kernel and number its values.

    If `predicated`, a copy or product of TTGIR that runs under a predicate is put into an `scf.if`
    of its own, so that it is counted where it runs.

    Raises:
        ParseError: a value or block is used that is not defined, or calls never end.
    """
    return _Builder(module, predicated).build()


class _Builder:
    def __init__(self, module: Module, predicated: bool) -> None:
        self._module = module
        self._predicated = predicated
        self._tree = Tree(module, module.kernel, [], [], [], [])
        self._nodes = 0
        self._calls = 0

    def build(self) -> Tree:
        kernel = self._module.kernel
        self._tree.blocks = self._region(kernel.blocks, {}, None, kernel.arguments)
        return self._tree

    def _region(
        self,
        blocks: list[OpBlock],
        names: dict[str, int],
        owner: Node | None,
        arguments: list[Argument] | None = None,
    ) -> list[Body]:
        order = _reverse_postorder(blocks)
        bodies: dict[str, Body] = {}
        for block in order:
            body = bodies[block.label] = Body(len(self._tree.bodies), owner)
            self._tree.bodies.append(body)
            entered = block.arguments if arguments is None or block is not order[0] else arguments
            for place, argument in enumerate(entered):
                self._tree.argument_types[body.index, place] = argument.type
            body.arguments = self._number([argument.value for argument in entered], names, body)
        for block in order:
            self._fill(bodies[block.label], block, names)
        for block in order if len(order) > 1 else ():
            last = block.operations[-1]
            for label, passed in _SUCCESSOR(last.text):
                values = _lookup(tuple(_VALUES(passed)), names, last)
                bodies[block.label].successors.append((bodies[label], values))
        return list(bodies.values())

    def _number(
        self, results: Sequence[str], names: dict[str, int], owner: Node | Body
    ) -> tuple[int, ...]:
        sources = self._tree.sources
        first = len(sources)
        for place, name in enumerate(results):
            names[name] = len(sources)
            sources.append((owner, place))
        return tuple(range(first, len(sources)))

    def _fill(self, body: Body, block: OpBlock, names: dict[str, int]) -> None:
        for operation in block.operations:
            if operation.name == "tt.call" and self._write_in(operation, body, names):
                continue
            if self._predicated and (predicate := self._predicate(operation, names)) is not None:
                branch = Node("scf.if", (predicate,), (), body, operation)
                body.nodes.append(branch)
                branch.regions.append(self._region([OpBlock("")], names, branch))
                self._node(operation, branch.regions[0][0], names)
            else:
                self._node(operation, body, names)

    def _predicate(self, operation: Operation, names: dict[str, int]) -> int | None:
        """Return the value that decides whether an operation runs; None if it always does."""
        if operation.name not in _PREDICATED:
            return None
        place = _PREDICATED[operation.name]
        named = operation.operands if place is None else operation.operands[place : place + 1]
        values = [names[name] for name in named if name in names]
        flags = [value for value in values if self._tree.type_text(value) == "i1"]
        owner = self._tree.sources[flags[-1]][0] if flags else None
        always = isinstance(owner, Node) and owner.text == "true"
        return None if always or not flags else flags[-1]

    def _node(self, operation: Operation, body: Body, names: dict[str, int]) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ParseError(f"line {operation.line}: calls expand to over {MAX_NODES} operations")
        operands = _lookup(operation.operands, names, operation)
        node = Node(operation.name, operands, (), body, operation)
        if operation.name in LOOPS:
            node.loop = len(self._tree.loops)
            self._tree.loops.append(node)
        for region in operation.regions:
            node.regions.append(self._region(region, names, node))
        function = self._callee(operation) if operation.name == "tt.call" else None
        if function is not None and self._calls <= _MAX_CALLS:
            self._calls += 1
            node.regions.append(self._region(function.blocks, {}, node, function.arguments))
            self._calls -= 1
        body.nodes.append(node)
        if operation.results:
            node.results = self._number(operation.results, names, node)

    def _callee(self, operation: Operation) -> Function | None:
        match = _CALLEE(operation.text)
        function = self._module.functions.get(match[1].strip('"')) if match else None
        return function if function is not None and function.blocks else None

    def _write_in(self, operation: Operation, body: Body, names: dict[str, int]) -> bool:
        """Inline a called function of one block into the caller's block."""
        function = self._callee(operation)
        if function is None or self._calls > _MAX_CALLS:
            return False
        blocks = _reverse_postorder(function.blocks)
        if len(blocks) > 1 or not blocks[0].operations:
            return False
        operands = _lookup(operation.operands, names, operation)
        parameters = [argument.value for argument in function.arguments]
        inner = dict(zip(parameters, operands, strict=False))
        self._calls += 1
        *operations, last = blocks[0].operations
        self._fill(body, OpBlock("", [], operations), inner)
        self._calls -= 1
        returned = _lookup(last.operands, inner, last)
        names.update(zip(operation.results, returned, strict=False))
        return True


def _lookup(names: tuple[str, ...], known: dict[str, int], operation: Operation) -> tuple[int, ...]:
    try:
        return tuple([known[name] for name in names])
    except KeyError as error:
        raise ParseError(
            f"line {operation.line}: {operation.name} uses {error.args[0]}, which nothing defines"
        ) from None


def _reverse_postorder(blocks: list[OpBlock]) -> list[OpBlock]:
    """Return the reachable blocks, each after the blocks that dominate it."""
    if len(blocks) == 1:
        return blocks
    places = {block.label: place for place, block in enumerate(blocks)}
    try:
        successors = [[places[label] for label in _successors(block)] for block in blocks]
    except KeyError as error:
        raise ParseError(f"a branch to ^{error.args[0]}, which is no block") from None
    return [blocks[place] for place in reversed(postorder(successors))]


def _successors(block: OpBlock) -> list[str]:
    if not block.operations or block.operations[-1].name in RETURNS:
        return []
    return [label for label, _ in _SUCCESSOR(block.operations[-1].text)]
