"""Control flow of any instruction set: blocks, dominators, natural loops, called functions.

Dominators after Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm"
(2001); loops are the natural loops of back edges, those with one header merged.
Nothing here recurses, so that depth is bounded by memory only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, NamedTuple

from asmtune.base.errors import ParseError
from asmtune.ir.asm.program import (
    AsmFunction,
    BasicBlock,
    Instruction,
    Listing,
    Loop,
    LoopRole,
)

UNREACHABLE = -1
"""Immediate dominator of a block that no path from the entry reaches."""


MOST_BLOCKS = 100_000

MOST_STEPS = 10_000_000
"""Steps up the tree of dominators, 1 s: as many as the square of the blocks in the worst case."""

MOST_IN_LOOPS = 1_000_000
"""Instructions in all loops of a function, each counted once a loop around it: 1 s to read."""


class Jump(NamedTuple):
    """Targets of an instruction that ends a block.

    Attributes:
        targets: indices of instructions; one equal to the number of instructions leaves.
        falls: True if the next instruction may follow, as after a guarded branch.
    """

    targets: tuple[int, ...]
    falls: bool


RoleOf = Callable[[int, Sequence[int]], LoopRole]
"""Gives the role of a loop, from its header and all its blocks."""


def find_blocks(
    count: int, jumps: Mapping[int, Jump], labels: Mapping[int, str]
) -> tuple[BasicBlock, ...]:
    """Cut `count` instructions into basic blocks, given the jumps that end one by index.

    `labels` are names of branch targets, by the index of the instruction that follows each.

    Raises:
        ParseError: there are more than `MOST_BLOCKS`.
    """
    if not count:
        return ()
    starts = {0}
    for index, jump in jumps.items():
        starts.add(index + 1)
        starts.update(jump.targets)
    starts.discard(count)
    if len(starts) > MOST_BLOCKS:
        raise ParseError(f"a function has {len(starts):,} basic blocks, more than {MOST_BLOCKS:,}")
    ordered = sorted(starts)
    block_at = {start: block for block, start in enumerate(ordered)}
    blocks = []
    for start, end in zip(ordered, [*ordered[1:], count], strict=True):
        jump = jumps.get(end - 1, Jump((), falls=True))
        nexts = (*jump.targets, end) if jump.falls else jump.targets
        successors = dict.fromkeys(block_at[target] for target in nexts if target in block_at)
        blocks.append(BasicBlock(labels.get(start), start, end, tuple(successors)))
    return tuple(blocks)


def postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes that node 0 reaches, each after those first reached through it."""
    if not successors:
        return []
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(successors[0]))]
    while stack:
        node, remaining = stack[-1]
        following = next((each for each in remaining if each not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    return order


class Dominators:
    """The dominator tree of a graph whose entry is node 0.

    Attributes:
        idom: each node's immediate dominator; the entry is its own, and a node that the
            entry does not reach has `UNREACHABLE`.
    """

    def __init__(self, successors: Sequence[Sequence[int]]) -> None:
        order = postorder(successors)
        self._rank = [UNREACHABLE] * len(successors)
        for place, node in enumerate(order):
            self._rank[node] = place
        self.idom = [UNREACHABLE] * len(successors)
        if order:
            self.idom[0] = 0
        self._steps = 0
        predecessors = predecessor_lists(successors)
        changed = True
        while changed:
            changed = False
            for node in reversed(order[:-1]):
                best = self._meet_all(predecessors[node])
                changed = changed or best != self.idom[node]
                self.idom[node] = best
        self._number_tree(order)

    def _number_tree(self, order: Sequence[int]) -> None:
        """Number the tree's nodes so that those under a node are the `_size` ones from its own."""
        count = len(self.idom)
        self._first, self._size, free = [0] * count, [1] * count, [1] * count
        for node in order[:-1]:  # a node comes before its dominators
            self._size[self.idom[node]] += self._size[node]
        for node in reversed(order[:-1]):
            above = self.idom[node]
            self._first[node] = free[above]
            free[above] += self._size[node]
            free[node] = self._first[node] + 1

    def _meet_all(self, nodes: Sequence[int]) -> int:
        """Return the deepest node that dominates all those already placed in the tree."""
        rank, idom = self._rank, self.idom
        best = UNREACHABLE
        for node in nodes:
            if idom[node] == UNREACHABLE:
                continue
            other, best = best, node
            while other not in (best, UNREACHABLE):
                self._steps += 1
                if rank[other] < rank[best]:
                    other = idom[other]
                else:
                    best = idom[best]
            if self._steps > MOST_STEPS:
                raise ParseError(
                    f"the branches of a function go back over {MOST_STEPS:,} blocks in all"
                )
        return best

    def reaches(self, node: int) -> bool:
        """Return whether any path from the entry reaches a node."""
        return self.idom[node] != UNREACHABLE

    def dominates(self, node: int, other: int) -> bool:
        """Return whether `other` is reached, and only by paths that pass `node`."""
        if not self.reaches(node) or not self.reaches(other):
            return False
        return self._first[node] <= self._first[other] < self._first[node] + self._size[node]


def predecessor_lists(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Turn successor lists around."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for node, nexts in enumerate(successors):
        for following in nexts:
            predecessors[following].append(node)
    return predecessors


def find_loops(blocks: Sequence[BasicBlock], role_of: RoleOf) -> tuple[Loop, ...]:
    """Find the natural loops and how they nest, outer before inner.

    A cycle that can be entered at two places has no header that dominates it and is no
    natural loop: such irreducible code counts as straight, it is not an error.

    Raises:
        ParseError: the loops hold more than `MOST_IN_LOOPS` instructions in all.
    """
    successors = [block.successors for block in blocks]
    tree = Dominators(successors)
    latches: dict[int, list[int]] = {}
    for node, nexts in enumerate(successors):
        for header in nexts:
            if tree.dominates(header, node):
                latches.setdefault(header, []).append(node)
    predecessors = predecessor_lists(successors)
    bodies: dict[int, set[int]] = {}
    held = 0
    for header, sources in latches.items():
        body = bodies[header] = {header}
        stack = list(sources)
        while stack:
            node = stack.pop()
            if node not in body:
                body.add(node)
                held += 1 + blocks[node].end - blocks[node].start
                if held > MOST_IN_LOOPS:
                    raise ParseError(
                        f"the loops of a function hold more than {MOST_IN_LOOPS:,} instructions"
                    )
                stack.extend(p for p in predecessors[node] if tree.reaches(p))
    return _nest(bodies, latches, role_of)


def _nest(
    bodies: Mapping[int, set[int]], latches: Mapping[int, Sequence[int]], role_of: RoleOf
) -> tuple[Loop, ...]:
    # Two natural loops with different headers are disjoint or one holds the other, so the
    # smallest earlier one that holds a header is its parent.
    order = sorted(bodies, key=lambda header: (-len(bodies[header]), header))
    loops: list[Loop] = []
    innermost: dict[int, int] = {}
    for position, header in enumerate(order):
        body = tuple(sorted(bodies[header]))
        parent = innermost.get(header)
        around = 0 if parent is None else loops[parent].depth
        role = role_of(header, body)
        depth = around + (role == "work")
        loops.append(Loop(header, body, tuple(sorted(latches[header])), parent, depth, role))
        innermost.update(dict.fromkeys(body, position))
    return tuple(loops)


MOST_LEVELS: Final = 16
"""Calls inside calls that are followed; Triton has no recursion, but a text may."""

MOST_INSTRUCTIONS: Final = 200_000
"""Instructions of a kernel with what it calls; calls that would make more stay calls."""


@dataclass(frozen=True)
class Calls:
    """Calls and returns of an instruction set.

    Attributes:
        targets: names of the functions that instructions call, by the index of the call.
        returns: whether an instruction goes back to the caller.
        role: of a loop, from the instructions of its header and of its body.
        renames: whether a function has registers of its own, as PTX has it.
    """

    targets: Callable[[AsmFunction], Mapping[int, str]]
    returns: Callable[[Instruction], bool]
    role: Callable[[Sequence[Instruction], Sequence[Instruction]], LoopRole]
    renames: bool


def expanded_entry(listing: Listing, calls: Calls) -> AsmFunction:
    """Return the kernel with what it calls; the kernel itself where it calls nothing.

    A compiler keeps a function apart where its author asks for that (`noinline=True`), and a
    kernel executes its own code and theirs, once a call. Instructions keep their lines. A call
    stays, before the body that it leads to.

    Raises:
        ParseError: there is no kernel, or too much code in loops.
    """
    entry = listing.entry
    if len(listing.programs) < 2:
        return entry
    bodies = {each.name: each for each in listing.programs if each.blocks and not each.is_entry}
    names, done = count(), entry
    whole: set[int] = set()  # lines of calls that were expanded, and so stay as they are
    for _ in range(MOST_LEVELS):
        targets = calls.targets(done)
        called = {
            index: bodies[name]
            for index, name in targets.items()
            if name in bodies and index not in whole
        }
        grown = len(done.instructions) + sum(len(each.instructions) for each in called.values())
        if not called or grown > MOST_INSTRUCTIONS:
            break
        splice = _Splice(done, called, calls, names)
        done, whole = splice.result(), {splice.moved[at] for at in (*whole, *called)}
    return done


class _Splice:
    """A program with the bodies of one level of its calls."""

    def __init__(
        self,
        program: AsmFunction,
        called: Mapping[int, AsmFunction],
        calls: Calls,
        names: count[int],
    ) -> None:
        self._program, self._called, self._calls, self._names = program, called, calls, names
        self._items: list[Instruction] = []
        # Successors below zero are blocks of the caller: the complement of their position.
        self._blocks: list[BasicBlock] = []
        self._first: list[int] = []
        self.moved: dict[int, int] = {}
        """New indices of the caller's instructions."""

    def result(self) -> AsmFunction:
        """Return the caller with the bodies, and their loops among its own."""
        for block in self._program.blocks:
            self._first.append(len(self._blocks))
            self._add_block(block)
        blocks = tuple(
            replace(block, successors=tuple(dict.fromkeys(map(self._resolved, block.successors))))
            for block in self._blocks
        )

        def role_of(header: int, body: Sequence[int]) -> LoopRole:
            parts = [self._in_block(blocks[at]) for at in body]
            inside = [item for part in parts for item in part]
            return self._calls.role(self._in_block(blocks[header]), inside)

        loops = find_loops(blocks, role_of)
        items = tuple(self._items)
        return replace(self._program, instructions=items, blocks=blocks, loops=loops, addresses=())

    def _resolved(self, successor: int) -> int:
        return self._first[~successor] if successor < 0 else successor

    def _in_block(self, block: BasicBlock) -> list[Instruction]:
        return self._items[block.start : block.end]

    def _add_block(self, block: BasicBlock) -> None:
        label, start = block.label, block.start
        outs = tuple(~successor for successor in block.successors)
        for index in range(block.start, block.end):
            function = self._called.get(index)
            if function is None:
                continue
            inside = len(self._blocks) + 1
            self._add_part(label, start, index + 1, (inside,))
            after = (inside + len(function.blocks),) if index + 1 < block.end else outs
            self._add_body(function, inside, after)
            label, start = None, index + 1
        if start < block.end:
            self._add_part(label, start, block.end, outs)

    def _add_part(self, label: str | None, start: int, end: int, nexts: tuple[int, ...]) -> None:
        """Add a part of one of the caller's blocks."""
        place = len(self._items)
        for item in self._program.instructions[start:end]:
            self.moved[item.index] = len(self._items)
            self._items.append(replace(item, index=len(self._items)))
        self._blocks.append(BasicBlock(label, place, len(self._items), nexts))

    def _add_body(self, function: AsmFunction, inside: int, after: tuple[int, ...]) -> None:
        """Add all blocks of a called function, from position `inside` on."""
        rename = _renamed(next(self._names)) if self._calls.renames else _unchanged
        for position, block in enumerate(function.blocks):
            place = len(self._items)
            for item in function.body(position):
                guard = None if item.predicate is None else rename(item.predicate)
                own = replace(item, index=len(self._items), predicate=guard, text=rename(item.text))
                self._items.append(own)
            returns = block.end > block.start and self._calls.returns(self._items[-1])
            nexts = (*(inside + at for at in block.successors), *(after if returns else ()))
            self._blocks.append(BasicBlock(block.label, place, len(self._items), nexts))


_REGISTER: Final = re.compile(r"%([a-z]+)(\d+)")
_DIGITS: Final = str.maketrans("0123456789", "ghijklmnop")


def _renamed(number: int) -> Callable[[str], str]:
    """Return a function that gives registers names of their own: `%r5` becomes `%rxh5`."""
    mark = "x" + str(number).translate(_DIGITS)
    return lambda text: _REGISTER.sub(rf"%\g<1>{mark}\g<2>", text)


def _unchanged(text: str) -> str:
    return text
