"""Blocks, dominators and loops, against definitions written out."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from asmtune.ir.asm.flow import UNREACHABLE, Dominators, Jump, find_blocks, find_loops
from asmtune.ir.asm.program import BasicBlock, Loop, LoopRole

Graph = list[tuple[int, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw successor lists of up to nine nodes: any edges, so irreducible ones as well."""
    size = draw(st.integers(1, 9))
    nodes = st.lists(st.integers(0, size - 1), max_size=3, unique=True)
    return [tuple(draw(nodes)) for _ in range(size)]


def reached(graph: Graph, start: int, without: int | None = None) -> set[int]:
    """Return the nodes that paths from `start` reach which avoid a node."""
    seen: set[int] = set()
    todo = [] if start == without else [start]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [following for following in graph[node] if following != without]
    return seen


def truly_dominates(graph: Graph, node: int, other: int) -> bool:
    """Return whether cutting `node` out cuts `other` off from the entry."""
    return other in reached(graph, 0) and (
        node == other or other not in reached(graph, 0, without=node)
    )


def true_loops(graph: Graph) -> dict[int, set[int]]:
    """Return the natural loops' nodes by header, straight from the definition."""
    alive = reached(graph, 0)
    loops: dict[int, set[int]] = {}
    for source, nexts in enumerate(graph):
        for header in nexts:
            if truly_dominates(graph, header, source):
                body = {n for n in alive if source in reached(graph, n, without=header)}
                loops.setdefault(header, {header}).update(body | {source})
    return loops


def always_work(header: int, body: Sequence[int]) -> LoopRole:
    """Give every loop the role `work`."""
    return "work"


def loops_of(graph: Graph) -> tuple[Loop, ...]:
    """Find the loops of a graph whose nodes are blocks of one instruction."""
    blocks = [BasicBlock(None, node, node + 1, nexts) for node, nexts in enumerate(graph)]
    return find_loops(blocks, always_work)


@given(graphs())
def test_dominators_match_definition(graph: Graph) -> None:
    """A node dominates another exactly if every path from the entry passes it."""
    tree = Dominators(graph)
    alive = reached(graph, 0)
    for node in range(len(graph)):
        assert (tree.idom[node] == UNREACHABLE) == (node not in alive)
        assert tree.reaches(node) == (node in alive)
        for other in range(len(graph)):
            expected = node in alive and truly_dominates(graph, node, other)
            assert tree.dominates(node, other) == expected


@given(graphs())
def test_loops_match_definition(graph: Graph) -> None:
    """Loops found over the dominator tree are those that the definition gives."""
    assert {loop.header: set(loop.blocks) for loop in loops_of(graph)} == true_loops(graph)


@given(graphs())
def test_nesting_is_a_forest(graph: Graph) -> None:
    """A parent comes first, holds its child, and is the smallest loop that does."""
    loops = loops_of(graph)
    for position, loop in enumerate(loops):
        around = [o for o in loops if o is not loop and set(loop.blocks) < set(o.blocks)]
        assert loop.depth == len(around) + 1
        if loop.parent is None:
            assert not around
        else:
            assert loop.parent < position
            assert loops[loop.parent] == min(around, key=lambda other: len(other.blocks))


def test_irreducible_cycle_is_no_loop() -> None:
    """A cycle entered at two places has no header, and does no harm."""
    assert loops_of([(1, 2), (2,), (1,)]) == ()


def test_deep_graph_needs_no_recursion() -> None:
    """A chain far longer than Python's recursion limit is searched."""
    size = 20_000
    graph: Graph = [(node + 1,) for node in range(size)] + [(0,)]
    (loop,) = loops_of(graph)
    assert len(loop.blocks) == size + 1


def test_wait_loops_add_no_depth() -> None:
    """A loop that waits has the depth of what is around it, and work inside it too."""
    blocks = [
        BasicBlock(None, 0, 1, (1,)),
        BasicBlock(None, 1, 2, (1, 2)),
        BasicBlock(None, 2, 3, (0,)),
    ]

    def role_of(header: int, body: Sequence[int]) -> LoopRole:
        return "wait" if header == 1 else "work"

    outer, inner = find_loops(blocks, role_of)
    assert (outer.depth, outer.role) == (1, "work")
    assert (inner.depth, inner.role, inner.parent) == (1, "wait", 0)


def test_blocks_of_a_guarded_branch() -> None:
    """A guarded branch goes to its target and on; an unguarded one to its target only."""
    jumps = {1: Jump((0,), falls=True), 3: Jump((4,), falls=False), 4: Jump((), falls=False)}
    blocks = find_blocks(5, jumps, {0: "top", 4: "end"})
    assert blocks == (
        BasicBlock("top", 0, 2, (0, 1)),
        BasicBlock(None, 2, 4, (2,)),
        BasicBlock("end", 4, 5, ()),
    )


@given(st.integers(1, 30), st.data())
def test_every_instruction_is_in_one_block(count: int, data: st.DataObject) -> None:
    """Blocks follow each other without a gap, whatever jumps there are."""
    jump = st.builds(
        Jump,
        st.lists(st.integers(0, count), max_size=3).map(tuple),
        st.booleans(),
    )
    jumps = data.draw(st.dictionaries(st.integers(0, count - 1), jump))
    blocks = find_blocks(count, jumps, {})
    assert [index for block in blocks for index in range(block.start, block.end)] == [*range(count)]
    assert all(0 <= following < len(blocks) for block in blocks for following in block.successors)
