"""A space proposed from a kernel's source: `space="auto"`.

A `tl.constexpr` is a block size if a tile has it as its extent (`tl.arange(0, BLOCK)`). It is free
if another value computes the same: a loop steps by it (`range(0, K, BLOCK)`), a size is divided by
it (`cdiv(M, BLOCK)`), or a place is multiplied by it (`pid * BLOCK`) and the launch's grid follows
it. A size of the data is not free, nor is one that has to cover a row: without a free one the warps
and the stages of loops are searched.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from asmtune.base.errors import SpaceError
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.triton_api.jit_functions import (
    constexprs,
    defaults,
    heuristic_rules,
    is_device_function,
    is_gluon,
    jit_function,
    products_and_loops,
    source_text,
    variables_seen,
)

_ROWS: Final = (64, 16, 32, 128, 256)
"""Extents of a product's tile, the default first; `tl.dot` takes 16 and more."""
_DEPTHS: Final = (32, 16, 64, 128)
_LINE: Final = (1024, 64, 128, 256, 512, 2048, 4096, 8192, 16384)
_SIDES: Final = (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024)
_TILE: Final = (64, 16384)
"""Fewest and most elements of a tile without a product."""
_MOST_CALLS: Final = 8


@dataclass
class Uses:
    """Uses of a kernel's constexprs in its source, by name.

    Attributes:
        extents: extents of tiles.
        placed: factors of a place (`pid * BLOCK`).
        masked: extents of tiles whose places are compared with a size, or wrapped around it.
        divided: divisors of a size (`cdiv(M, BLOCK)`).
        stepped: steps of a loop, with the names beside each.
        stages: numbers of stages of a loop (`tl.range(..., num_stages=STAGES)`).
        is_persistent: whether a program goes on by the number of programs.
    """

    extents: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)
    masked: set[str] = field(default_factory=set)
    divided: set[str] = field(default_factory=set)
    stepped: dict[str, set[str]] = field(default_factory=dict)
    stages: set[str] = field(default_factory=set)
    is_persistent: bool = False

    def free(self, followed: Collection[str] | None) -> set[str]:
        """Return the block sizes that may have another value.

        `followed` has what a launch's grid reads; None where no launch is known.
        """
        if followed is None:
            placed = self.divided | (self.placed & self.masked)
        else:
            placed = self.divided | self.placed
            placed = placed if self.is_persistent else placed & {*followed}
        return self.extents & (placed | self.stepped.keys())


@dataclass(frozen=True)
class ProposedSpace:
    """A space, and what a user should know of it."""

    space: Space
    notes: tuple[str, ...]


def proposed_space(kernel: Any) -> Space:
    """Propose the space of a kernel by its source alone.

    Raises:
        SpaceError: the kernel is Gluon's, or rules of `@triton.heuristics` leave nothing free.
    """
    uses = _uses_of(kernel)
    return _space(kernel, uses, uses.free(None))


def proposal_for(problem: Problem, listed: Space | None = None) -> tuple[Problem, ProposedSpace]:
    """Propose the space of a launch, bounded by its sizes.

    The launch's own values of the axes are taken from its arguments, and are the default. Values
    that it lacks, and its warps and stages, are those of the first config of `listed`: the space
    of its decorator, or the launch's own config.

    Returns:
        The problem without the axes among its arguments, and the proposal.

    Raises:
        SpaceError: as `proposed_space`, or the kernel's tensors have blocks of the host.
    """
    options: dict[str, Any] = {}
    if listed is not None:
        first, names = listed.first(**problem.shape), constexprs(problem.kernel)
        held = {name: value for name, value in first.kwargs.items() if name in names}
        problem = replace(problem, arguments={**held, **problem.arguments})
        options = {"num_warps": first.num_warps, "num_stages": first.num_stages}
    described = [n for n, v in problem.arguments.items() if hasattr(v, "block_shape")]
    if described:
        raise SpaceError(
            f"space auto: the blocks of {', '.join(described)} come from the host; list configs "
            "whose pre_hook sets them"
        )
    uses = _uses_of(problem.kernel)
    space = _space(problem.kernel, uses, uses.free(_read_by_grid(problem, uses)))
    free = [name for name in space.axes if name in uses.extents | uses.stages]
    given = {name: problem.arguments[name] for name in free if name in problem.arguments}
    own = {name: v for name, v in problem.arguments.items() if name not in given}
    sizes = {name: v for name, v in problem.shape.items() if name not in given}
    launch = replace(problem, arguments=own, shape=sizes)
    launched = {name: value for name, value in options.items() if name in space.axes}
    space = _bounded(launch, space, uses, given | launched)
    kept = sorted(constexprs(problem.kernel) - set(free))
    note = f"space auto searches {', '.join(space.axes)}"
    note += f"; as launched: {', '.join(kept)}" if kept else ""
    return launch, ProposedSpace(space, (note,))


def _read_by_grid(problem: Problem, uses: Uses) -> Collection[str]:
    """Return the names that a launch's grid reads; none of a grid that was computed before."""
    sizes = dict.fromkeys(uses.extents - problem.arguments.keys(), 64)
    return problem.watched_grid(Config(sizes))[1] if callable(problem.grid) else ()


def _space(kernel: Any, uses: Uses, free: Collection[str]) -> Space:
    names = [name for name in jit_function(kernel).arg_names if name in free]
    if is_gluon(kernel):
        listed = ", ".join(sorted(constexprs(kernel))) or "none"
        raise SpaceError(
            f"space auto: kernel {jit_function(kernel).__name__}: its layouts name the warps; its "
            f"constexprs are {listed}: give axes, such as --axis BLOCK=64,128 or "
            "space={'BLOCK': [64, 128]}"
        )
    multiplies, loops = products_and_loops(jit_function(kernel))
    axes: dict[str, Iterable[Any]] = {}
    for name in names:
        is_line = len(uses.extents) == 1 or name in uses.stepped
        values: tuple[int, ...] = _LINE if is_line else _SIDES
        if multiplies:
            values = _DEPTHS if name in uses.stepped else _ROWS
        axes[name] = values
    # A block that covers a row may need a thread for each few of its elements.
    axes["num_warps"] = (4, 2, 8) if multiplies else (4, 1, 2, 8, 16, *([] if names else [32]))
    stages = (3, 2, 4, 5) if multiplies else (3, 1, 2)
    axes |= dict.fromkeys(uses.stages or ["num_stages"] * loops, stages)
    for name, _ in heuristic_rules(kernel):
        axes.pop(name, None)  # a rule counts more than a config
    if not axes:
        raise SpaceError("space auto: rules of @triton.heuristics give num_warps and all blocks")
    space = Space(axes)
    if len(names) > 1 and not multiplies:
        space = space.where("a tile of 64 to 16384 elements", _sized(names))
    return space


def _sized(names: list[str]) -> Any:
    least, most = _TILE
    source = f"lambda {', '.join(names)}: {least} <= {' * '.join(names)} <= {most}"
    return eval(source)  # a predicate's parameters name the axes


def _bounded(problem: Problem, space: Space, uses: Uses, given: Mapping[str, Any]) -> Space:
    """Leave out extents beyond a launch's sizes; put the launch's own values first."""
    axes = {name: list(values) for name, values in space.axes.items()}
    for name, partners in uses.stepped.items():
        sizes = [problem.arguments.get(n) for n in partners]
        whole = [size for size in sizes if type(size) is int]
        if name in axes and len(whole) == 1:
            axes[name] = [v for v in axes[name] if v < 2 * whole[0]] or axes[name][:1]
    first = {name: values[0] for name, values in axes.items()}
    for name in [*axes]:
        if name in uses.placed | uses.divided and callable(problem.grid):
            axes[name] = _followed(problem, axes, name, first)
    for name, value in given.items():
        axes[name] = [value, *(other for other in axes[name] if other != value)]
    return Space(axes, space.constraints)


def _followed(
    problem: Problem, axes: Mapping[str, list[Any]], name: str, first: Mapping[str, Any]
) -> list[Any]:
    """Leave out values for which the grid is that of the half: nothing is left to cover."""
    programs = {}
    for value in sorted(axes[name]):
        grid = problem.grid_of(Config.from_dict({**first, name: value}))
        programs[value] = grid if isinstance(grid, tuple) else None
    if len(set(programs.values())) == 1:
        return axes[name]
    beyond = {
        value
        for value, grid in programs.items()
        if grid is not None and programs.get(value // 2) == grid and value > 1
    }
    return [value for value in axes[name] if value not in beyond]


def _uses_of(kernel: Any) -> Uses:
    uses, function = Uses(), jit_function(kernel)
    ruled = {name for name, _ in heuristic_rules(kernel)}
    names = {name: name for name in constexprs(kernel) - ruled}
    for name, value in defaults(kernel).items():
        if isinstance(value, bool | str):
            names.pop(name, None)
    _Reader(uses, names, variables_seen(function), 0).visit(_tree(function))
    return uses


def _tree(function: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(source_text(function)))


class _Reader(ast.NodeVisitor):
    """Notes what a function does with the kernel's constexprs, which it knows by its own names."""

    def __init__(self, uses: Uses, names: dict[str, str], seen: dict[str, Any], depth: int) -> None:
        self._uses, self._names, self._seen, self._depth = uses, names, seen, depth
        self._places: dict[str, set[str]] = {}

    def _own(self, node: ast.AST) -> Iterator[str]:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in self._names:
                yield self._names[one.id]

    def _placed_by(self, node: ast.AST) -> Iterator[str]:
        """Yield the constexprs of places in an expression: named there, or assigned before."""
        for one in ast.walk(node):
            if isinstance(one, ast.Name):
                yield from self._places.get(one.id, ())
        yield from self._own(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note the constexprs behind a variable."""
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._places[target.id] = {*self._placed_by(node.value)}
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Note which places are compared with a size."""
        self._uses.masked.update(self._placed_by(node.left))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Note the step of a loop's bounds, the sizes beside it, and its stages."""
        if isinstance(node.iter, ast.Call):
            beside = {one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
            steps = [*node.iter.args[2:3], *map(_divisor, ast.walk(node.iter))]
            for name in (name for step in steps if step is not None for name in self._own(step)):
                self._uses.stepped.setdefault(name, set()).update(beside - {name})
            for keyword in node.iter.keywords:
                if keyword.arg == "num_stages":
                    self._uses.stages.update(self._own(keyword.value))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Note factors of places, divisors of sizes, and places that wrap around."""
        if isinstance(node.op, ast.Mult):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(side, ast.Name) and not isinstance(other, ast.Constant):
                    self._uses.placed.update(self._own(side))
        elif isinstance(node.op, ast.Mod):
            self._uses.masked.update(self._placed_by(node.left))
        elif (divisor := _divisor(node)) is not None:
            self._uses.divided.update(self._own(divisor))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Note extents of tiles, divisors, and what the functions called do."""
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in _TILES:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                self._uses.extents.update(self._own(argument))
        if (divisor := _divisor(node)) is not None:
            self._uses.divided.update(self._own(divisor))
        self._uses.is_persistent |= name == "num_programs"
        function = self._seen.get(name)
        if is_device_function(function) and self._depth < _MOST_CALLS:
            self._follow(function, node)
        self.generic_visit(node)

    def _follow(self, function: Any, node: ast.Call) -> None:
        own = getattr(function, "arg_names", ())  # a `constexpr_function` has none
        arguments = dict(zip(own, node.args, strict=False))
        arguments |= {k.arg: k.value for k in node.keywords if k.arg}
        names = {
            name: self._names[value.id]
            for name, value in arguments.items()
            if isinstance(value, ast.Name) and value.id in self._names
        }
        seen = variables_seen(function)
        _Reader(self._uses, names, seen, self._depth + 1).visit(_tree(function))


def _divisor(node: ast.AST) -> ast.expr | None:
    """Return what a size is divided by: `cdiv(M, BLOCK)` or `M // BLOCK`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return node.right
    if isinstance(node, ast.Call) and len(node.args) == 2:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return node.args[1] if name == "cdiv" else None
    return None


_TILES: Final = frozenset(
    {"arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor", "broadcast_to"}
)
