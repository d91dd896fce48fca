"""One kernel as a tree of regions with every call expanded, values as numbers.

A called function of one block is written into its caller, as Triton's inliner does; one
with branches (an early return) stays a `tt.call` node with the function's blocks as its
region. So each loop of the tree is one loop of the machine code, unless the function is
`noinline`, whose code is shared while its work is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from asmtune.ir.ttir.mlir_types import ValueType, parse_type, result_types
from asmtune.ir.ttir.syntax import Function, Module, Operation

LOOPS: Final = frozenset({"scf.for", "scf.while"})


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


@dataclass(slots=True, eq=False)
class Node:
    """An operation of the tree.

    Attributes:
        name: with its dialect; `tt.call` only where the call was not written in.
        operands: values in the text's order.
        results: values that it makes.
        body: the block that it stands in.
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
        """Attributes and types as written."""
        return self.operation.text


Source = tuple[Node, int] | tuple[Body, int]


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
        """Type of a value."""
        owner, place = self.sources[value]
        if isinstance(owner, Node):
            types = result_types(owner.name, owner.text, len(owner.results))
            return parse_type(types[place] if place < len(types) else "")
        return parse_type(self.argument_types.get((owner.index, place), ""))

    def line_of(self, node: Node) -> tuple[str, int] | None:
        """File and line of the source that a node comes from, where known."""
        return self.module.position(node.operation.location)

    def enclosing_loop(self, body: Body) -> int | None:
        """Position in `loops` of the innermost loop around a block, or None."""
        owner = body.owner
        while owner is not None:
            if owner.loop >= 0:
                return owner.loop
            owner = owner.body.owner
        return None


def is_inside(body: Body, loop: Node) -> bool:
    """Whether a block is in a node's regions, however deep."""
    owner = body.owner
    while owner is not None:
        if owner is loop:
            return True
        owner = owner.body.owner
    return False
