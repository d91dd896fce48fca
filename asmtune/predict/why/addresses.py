"""Addresses that a program computes: TTGIR evaluated at one element of a tile.

An address is a number of bytes plus multiples of symbols. A symbol stands for a number that the
text does not tell: an argument's base, a value loaded from memory. Addresses with equal symbols
have a known distance. Loops are evaluated at their first trip.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.arguments import Parameter
from asmtune.ir.ttir.plan import AXES, Flow
from asmtune.ir.ttir.scalars import SIGNED, UNSIGNED, compare_integers, constant, integer
from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.requests import SECTOR
from asmtune.predict.features.sketch.memory import pointee_bits
from asmtune.predict.features.sketch.values import Values, axis_of

Place = tuple[int, ...]
"""Coordinates of an element in its tile; empty for a scalar."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A number: a known part, and multiples of symbols, sorted."""

    known: int
    symbols: tuple[tuple[int, int], ...] = ()

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        """Add or subtract another number."""
        factors = dict(self.symbols)
        for symbol, factor in other.symbols:
            factors[symbol] = factors.get(symbol, 0) + sign * factor
        return Linear(self.known + sign * other.known, _sorted(factors))

    def times(self, factor: int) -> Linear:
        """Multiply by a known number."""
        return Linear(self.known * factor, _sorted({s: f * factor for s, f in self.symbols}))


def _sorted(factors: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((symbol, factor) for symbol, factor in factors.items() if factor))


_PASSING: Final = frozenset(
    {
        "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui", "arith.trunci",
        "arith.index_cast", "arith.index_castui", "ttg.convert_layout", "tt.ptr_to_int",
        "tt.int_to_ptr",
    }
)  # fmt: skip
# Wrapped or clamped, as in `% M`: a number that is not known counts as inside the limits.
_CLAMPING: Final = frozenset(
    {"arith.remsi", "arith.remui", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"}
)
_DIVIDING: Final = frozenset({"arith.divsi", "arith.divui"})
_DENSE: Final = re.compile(r"dense<([^\[\"]*)> : tensor<.*?(\w+)(?:, #.*)?>").match
_START: Final = re.compile(r"start = (\d+)").search
_ORDER: Final = re.compile(r"order = array<i32: ([\d, ]+)>").search
_READS: Final = ("tt.load", "ttg.local_load", "ttg.async_copy", "tt.atomic", "tt.descriptor")
_MAX_DEPTH: Final = 120


class Symbols:
    """Symbols of a launch: their keys, and the loads that they depend on.

    `known` has numbers that are the same in all programs: of values that are not in `differing`.
    """

    def __init__(self, flow: Flow) -> None:
        self.known: dict[tuple[int, Place], Linear | None] = {}
        self.differing = _differing(flow)
        self._numbers: dict[Hashable, int] = {}
        self._lines: list[frozenset[int]] = []
        self._loaded: list[bool] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self._numbers

    def add(self, key: Hashable, lines: frozenset[int], *, loaded: bool) -> None:
        """Add a symbol that depends on what these lines load."""
        self._numbers[key] = len(self._lines)
        self._lines.append(lines)
        self._loaded.append(loaded)

    def number(self, key: Hashable) -> Linear:
        """Return a symbol as a number."""
        return Linear(0, ((self._numbers[key], 1),))

    def is_loaded(self, number: Linear) -> bool:
        """Return whether a number depends on what memory holds."""
        return any(self._loaded[symbol] for symbol, _ in number.symbols)

    def lines(self, number: Linear) -> frozenset[int]:
        """Return the source lines that load what a number depends on."""
        return frozenset().union(*(self._lines[symbol] for symbol, _ in number.symbols))


def _differing(flow: Flow) -> set[int]:
    """Return the values that may differ from program to program."""
    differing: set[int] = set()
    before = -1
    while len(differing) > before:
        before = len(differing)
        for value, (owner, _) in enumerate(flow.tree.sources):
            is_id = isinstance(owner, Node) and owner.name == "tt.get_program_id"
            if is_id or not differing.isdisjoint(flow.origins(value)):
                differing.add(value)
    return differing


class Addresses:
    """Numbers that one program of a launch computes; programs share their symbols."""

    def __init__(
        self,
        values: Values,
        flow: Flow,
        parameters: Sequence[Parameter],
        symbols: Symbols,
        program: tuple[int, int, int],
        grid: tuple[int, int, int],
    ) -> None:
        self._values = values
        self._flow = flow
        self._parameters = parameters
        self._symbols = symbols
        self._program = program
        self._ids = {"tt.get_program_id": program, "tt.get_num_programs": grid}
        self._known: dict[tuple[int, Place], Linear | None] = {}
        self._depth = 0

    def at(self, value: int, place: Place) -> Linear:
        """Return one element of a value; of an address, in bytes."""
        key = (value, place)
        known = self._known if value in self._symbols.differing else self._symbols.known
        number = known.get(key)
        if number is None:
            if key in known or self._depth > _MAX_DEPTH:
                return self._unknown(key)  # it is computed from itself, or too long a chain
            known[key] = None
            self._depth += 1
            number = known[key] = self._compute(value, place)
            self._depth -= 1
        return number

    def _symbol(self, key: Hashable, value: int, operands: Sequence[Linear] = ()) -> Linear:
        """Return the symbol of a key; it depends on the memory that the operands depend on."""
        symbols = self._symbols
        if not operands:
            key = (self._program, key)
        if key not in symbols:
            nodes = [] if operands else self._loads(value)
            positions = map(self._values.tree.line_of, nodes)
            lines = frozenset(position[1] for position in positions if position)
            loaded = bool(nodes) or any(map(symbols.is_loaded, operands))
            symbols.add(key, lines.union(*map(symbols.lines, operands)), loaded=loaded)
        return symbols.number(key)

    def _loads(self, value: int) -> list[Node]:
        """Return the loads that a value is computed from."""
        sources = self._values.tree.sources
        reached = (sources[one][0] for one in self._flow.computed_from([value]))
        return [one for one in reached if isinstance(one, Node) and one.name.startswith(_READS)]

    def _compute(self, value: int, place: Place) -> Linear:
        owner, position = self._values.tree.sources[value]
        if isinstance(owner, Body):
            if owner is self._values.tree.blocks[0]:
                number = self._parameters[position].value
                is_known = isinstance(number, int)
                return Linear(int(number)) if is_known else self._base(position)  # type: ignore[arg-type]
            return self._first(value, place)
        if owner.regions and owner.name not in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
            return self._first(value, place)
        moved = self._moved(owner, position, place)
        return self._computed(owner, value, place) if moved is None else moved

    def _unknown(self, key: tuple[int, Place]) -> Linear:
        if (self._program, key) not in self._symbols:
            self._symbols.add((self._program, key), frozenset(), loaded=False)
        return self._symbols.number((self._program, key))

    def _base(self, position: int) -> Linear:
        key = ("argument", position)
        if key not in self._symbols:
            self._symbols.add(key, frozenset(), loaded=False)
        return self._symbols.number(key)

    def _first(self, value: int, place: Place) -> Linear:
        """Return a loop's value at its first trip, or that of a branch's first side."""
        origins = self._flow.origins(value)
        same = [one for one in origins[:1] if self._alike(one, value)]
        return self.at(same[0], place) if same else self._symbol((value, place), value)

    def _alike(self, one: int, other: int) -> bool:
        return self._values.kind(one).shape == self._values.kind(other).shape

    def _moved(self, node: Node, position: int, place: Place) -> Linear | None:
        """Return an element that comes from another place of an operand; None of other results."""
        name, operands = node.name, node.operands
        if name in ("tt.splat", "tt.unsplat"):
            shape = self._values.kind(operands[0]).shape
            return self.at(operands[0], (0,) * len(shape))
        if name == "tt.expand_dims":
            axis = axis_of(node)
            return self.at(operands[0], (*place[:axis], *place[axis + 1 :]))
        if name == "tt.broadcast":
            shape = self._values.kind(operands[0]).shape
            return self.at(operands[0], tuple(map(min, place, (size - 1 for size in shape))))
        if name == "tt.trans" and (match := _ORDER(node.text)):
            source = [0] * len(place)
            for axis, own in zip(match[1].split(","), place, strict=True):
                source[int(axis)] = own
            return self.at(operands[0], tuple(source))
        if name == "tt.reshape" and "allow_reorder" not in node.text:
            return self.at(operands[0], self._reshaped(node, place))
        if name == "tt.join":
            return self.at(operands[place[-1]], place[:-1])
        if name == "tt.split":
            return self.at(operands[0], (*place, position))
        return None

    def _reshaped(self, node: Node, place: Place) -> Place:
        number = 0
        for own, size in zip(place, self._values.kind(node.results[0]).shape, strict=True):
            number = number * size + own
        source = []
        for size in reversed(self._values.kind(node.operands[0]).shape):
            source.append(number % size)
            number //= size
        return tuple(reversed(source))

    def _computed(self, node: Node, value: int, place: Place) -> Linear:
        name = node.name
        if name == "tt.make_range" and (start := _START(node.text)):
            return Linear(int(start[1]) + place[0])
        if name in self._ids:
            return Linear(self._ids[name][AXES.get(node.text[:1], 0)])
        if name == "arith.constant":
            match = _DENSE(node.text)
            number = constant(f"{match[1]} : {match[2]}" if match else node.text)
            return Linear(number) if isinstance(number, int) else self._symbol(key_of(node), value)
        if not (name.startswith(("arith.", "math.")) or name in _PASSING or name == "tt.addptr"):
            return self._other(node, value, place)
        operands = [self.at(one, place) for one in node.operands]
        if name in _PASSING:
            return operands[0]
        if name == "tt.addptr":
            size = pointee_bits(self._values.kind(node.operands[0])) // 8
            return operands[0].plus(operands[1].times(size))
        result = self._arithmetic(node, operands)
        return result or self._symbol((*key_of(node), *operands), value, operands)

    def _other(self, node: Node, value: int, place: Place) -> Linear:
        """Return the symbol of a load: equal for elements that lie at the same address."""
        if node.name != "tt.load":
            return self._symbol((value, place), value)
        key, tree = (value, self.at(node.operands[0], place)), self._values.tree
        if key not in self._symbols:
            position = tree.line_of(node)
            lines = frozenset([position[1]] if position else [])
            self._symbols.add(key, lines | self._symbols.lines(key[1]), loaded=True)
        return self._symbols.number(key)

    def _arithmetic(self, node: Node, operands: Sequence[Linear]) -> Linear | None:
        name = node.name.removeprefix("arith.")
        if name == "select":
            return _selected(*operands)
        if len(operands) != 2:
            return None
        first, second = operands
        if name in ("addi", "subi"):
            return first.plus(second, 1 if name == "addi" else -1)
        if not first.symbols and not second.symbols:
            return self._known_numbers(node, first.known, second.known)
        if name == "muli" and not (first.symbols and second.symbols):
            return first.times(second.known) if first.symbols else second.times(first.known)
        if name == "shli" and not second.symbols and 0 <= second.known < 63:
            return first.times(1 << second.known)
        if node.name in _CLAMPING:
            return first if first.symbols else second
        if node.name in _DIVIDING and not second.symbols and second.known > 0:
            return _divided(first, second.known)
        return None

    def _known_numbers(self, node: Node, first: int, second: int) -> Linear | None:
        bits = max(self._values.kind(node.operands[0]).bits, 1)
        try:
            if node.name == "arith.cmpi":
                return Linear(compare_integers(node.text, first, second, bits))
            if node.name in SIGNED or node.name in UNSIGNED:
                return Linear(integer(node.name, first, second, bits))
        except (ArithmeticError, ValueError):
            pass
        return None


def _selected(condition: Linear, first: Linear, second: Linear) -> Linear | None:
    if condition.symbols:
        return first if first == second else None
    return first if condition.known else second


def _divided(number: Linear, divisor: int) -> Linear | None:
    if any(factor % divisor for _, factor in number.symbols):
        return None
    factors = {symbol: factor // divisor for symbol, factor in number.symbols}
    return Linear(number.known // divisor, _sorted(factors))


_VALUE: Final = re.compile(r"%[\w$.\-]+(?:#\d+)?")


def key_of(node: Node) -> tuple[str, str]:
    """Return the name and attributes of an operation, without its values."""
    return node.name, _VALUE.sub("", node.text)


def sectors(starts: Sequence[Linear], size: int) -> tuple[int, int]:
    """Return the sectors that a request touches, and the different bytes that it wants."""
    touched = set()
    for start in starts:
        for sector in range(start.known // SECTOR, (start.known + size - 1) // SECTOR + 1):
            touched.add((start.symbols, sector))
    by_base: dict[tuple[tuple[int, int], ...], set[int]] = {}
    for start in starts:
        by_base.setdefault(start.symbols, set()).add(start.known)
    return len(touched), sum(sum(stretches(sorted(own), size)) for own in by_base.values())


def stretches(starts: Sequence[int], size: int) -> list[int]:
    """Return the lengths of the stretches that pieces of a size cover, without gaps."""
    runs, end = [], None
    for start in starts:
        if end is None or start > end:
            runs.append(size)
        else:
            runs[-1] += max(0, start + size - end)
        end = max(start + size, end or start + size)
    return runs
