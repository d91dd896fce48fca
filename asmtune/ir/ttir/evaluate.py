"""Run the scalar part of a kernel for one program id, and count how often each block runs.

Only values that decide control flow are computed. Blocks are counted with weights, so that a loop
whose body does the same on each trip is walked once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from asmtune.ir.ttir.plan import GRID, EvaluationPlan, terminator
from asmtune.ir.ttir.scalars import Unknown, Value, unsigned
from asmtune.ir.ttir.tree import Body, Node

DEFAULT_TRIPS: Final = 16
"""Trips assumed for a loop whose bound is not known, such as one loaded from memory."""

DEFAULT_STEP: Final = 64
"""Step of a loop that takes that many trips; a loop in steps of 128 takes half of them."""


@dataclass(slots=True)
class ExecutionCounts:
    """Sums of the programs evaluated so far.

    Attributes:
        runs: for each block, how often it ran.
        entries, trips: for each loop, how often it was entered and its trips in all.
        least, most: for each loop, the fewest and most trips of one entry; -1 if never entered.
        unknown: for each node that could not be evaluated, why.
        capped: loops of which not all trips were walked.
        cut: loops of which fewer trips were walked than their sample needs, the blocks of a
            program being used up.
    """

    runs: list[float]
    entries: list[float]
    trips: list[float]
    least: list[int]
    most: list[int]
    unknown: dict[int, tuple[Node, Unknown]] = field(default_factory=dict)
    capped: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, plan: EvaluationPlan) -> ExecutionCounts:
        """Return empty counts for a kernel."""
        bodies, loops = len(plan.tree.bodies), len(plan.tree.loops)
        return cls([0.0] * bodies, [0.0] * loops, [0.0] * loops, [-1] * loops, [-1] * loops)

    def enter(self, loop: int, trips: int, weight: float) -> None:
        """Note one entry of a loop."""
        self.entries[loop] += weight
        self.trips[loop] += weight * trips
        self.most[loop] = max(self.most[loop], trips)
        self.least[loop] = trips if self.least[loop] < 0 else min(self.least[loop], trips)


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """Arguments and grid that the programs of a launch are given.

    `values` are the known ones by position; `default_trips` are of loops that cannot be evaluated;
    `tables` are what known memory behind arguments holds, by position.
    """

    values: Mapping[int, Value]
    grid: tuple[int, int, int]
    default_trips: int = DEFAULT_TRIPS
    tables: Mapping[int, Any] = field(default_factory=dict)


PROBE: Final = 64
"""Trips of a loop with state after which equal steps are assumed to continue."""


def extrapolated(history: list[list[Value]], distance: int) -> list[Value]:
    """Return the state `distance` trips after the last one."""
    state_after: list[Value] = []
    for place, last in enumerate(history[-1]):
        past = [state[place] for state in history]
        if not distance or not all(isinstance(value, int | float) for value in past):
            is_same = isinstance(last, Unknown) or all(value is last for value in past)
            state_after.append(last if is_same or not distance else _FAR)
            continue
        recent: list[Any] = past[-PROBE:]
        step = recent[-1] - recent[-2] if len(recent) > 1 else 0
        if _is_even(recent):
            state_after.append(recent[-1] + distance * step)
        else:
            first: Any = past[0]
            mean = distance * (recent[-1] - first) / (len(past) - 1)
            state_after.append(recent[-1] + type(first)(mean))
    return state_after


def _is_even(values: list[Any]) -> bool:
    return len({after - before for before, after in pairwise(values)}) <= 1


def changes_evenly(history: list[list[Value]]) -> bool:
    """Return whether all known parts of the state changed by equal steps of late."""
    columns = zip(*history[-PROBE:], strict=True)
    known = (column for column in columns if not isinstance(column[0], Unknown))
    return all(
        all(isinstance(value, int | float) for value in column) and _is_even(list(column))
        for column in known
    )


BLOCKS: Final = 1 << 17
"""Most blocks run, over all programs of a kernel: half a second. Those of asmtune.kernels take 350
a program. Samples of nested loops whose trips differ multiply; past the limit a loop is walked one
trip an entry."""

TOO_MANY: Final = "nested loops take more trips than are walked"
_LONGEST: Final = 1 << 40
_MAX_BRANCHES: Final = 10_000
_UNSET: Final = Unknown("not evaluated")
_WAITS: Final = Unknown("it waits for what others write")
_FAR: Final = Unknown("an address or a tile past the trips that were walked")


class ProgramEvaluator:
    """Evaluates one program after another and counts their runs in `counts`."""

    def __init__(
        self, plan: EvaluationPlan, launch: ProgramArguments, counts: ExecutionCounts
    ) -> None:
        self._plan = plan
        self._launch = launch
        self._counts = counts
        self._values: list[Value] = []
        self._room = 0
        self._blocks_left = 0
        self._base: list[Value] = [_UNSET] * len(plan.tree.sources)
        for value, number in plan.constants.items():
            self._base[value] = number
        for place, value in enumerate(plan.tree.blocks[0].arguments):
            self._base[value] = launch.values.get(place, _UNSET)
            if place in launch.tables:
                self._base[value] = launch.tables[place]

    def run(
        self, program: tuple[int, int, int], weight: float, room: int, blocks: int = BLOCKS
    ) -> int:
        """Count one program, with at most `room` trips of a loop that has to be walked.

        After so many `blocks` it walks one trip of each loop; it returns how many it ran.
        """
        self._values = self._base.copy()
        grids = {GRID[0]: program, GRID[1]: self._launch.grid}
        for name, axis, value in self._plan.grid_values:
            self._values[value] = grids[name][axis]
        self._room, self._blocks_left = room, blocks
        self._blocks(self._plan.tree.blocks, weight)
        return blocks - self._blocks_left

    def _body(self, body: Body, weight: float) -> None:
        self._counts.runs[body.index] += weight
        self._blocks_left -= 1
        values = self._values
        for step in self._plan.steps[body.index]:
            node = step.node
            if step.run is not None:
                values[node.results[0]] = step.run(values)
            elif node.name == "scf.for":
                self._for(node, weight)
            elif node.name == "scf.if":
                self._if(node, weight)
            elif node.name == "scf.while":
                wait = node.loop in self._plan.waiting
                (self._wait if wait else self._while)(node, weight)
            else:
                self._call(node, weight)

    def _blocks(self, blocks: list[Body], weight: float) -> tuple[int, ...]:
        """Walk blocks with branches; return the values that the last one returns."""
        body = blocks[0]
        for _ in range(_MAX_BRANCHES):
            self._body(body, weight)
            if self._blocks_left < -_MAX_BRANCHES or not body.successors:
                break
            body, passed = body.successors[self._branch(body)]
            self._assign(body.arguments, passed)
        return _passed_on(body)

    def _branch(self, body: Body) -> int:
        node = body.nodes[-1]
        if len(body.successors) == 1 or not node.operands:
            return 0
        condition = self._values[node.operands[0]]
        if isinstance(condition, Unknown):
            return self._heaviest(node, condition, [target for target, _ in body.successors])
        return 0 if condition else 1

    def _heaviest(self, node: Node, reason: Unknown, sides: list[Body]) -> int:
        self._assume(node, reason)
        weights = [self._plan.weight_from(side) for side in sides]
        return weights.index(max(weights))

    def _call(self, node: Node, weight: float) -> None:
        blocks = node.regions[0]
        self._assign(blocks[0].arguments, node.operands)
        self._assign(node.results, self._blocks(blocks, weight))

    def _if(self, node: Node, weight: float) -> None:
        condition = self._values[node.operands[0]]
        if isinstance(condition, Unknown):
            taken = self._heaviest(node, condition, [region[0] for region in node.regions])
        else:
            taken = 0 if condition else 1
        if taken < len(node.regions):
            self._assign(node.results, self._blocks(node.regions[taken], weight))

    def _for(self, node: Node, weight: float) -> None:
        low, high, step = (self._values[value] for value in node.operands[:3])
        trips = self._trips(node, low, high, step)
        self._counts.enter(node.loop, trips, weight)
        body, inits = node.regions[0][0], node.operands[3:]
        carried = body.arguments[1:]
        self._assign(carried, inits)
        if trips and not self._plan.iterates(node):
            self._body(body, weight * trips)
        elif trips and any(value in self._plan.needed for value in carried):
            self._walk(node, low, step, trips, weight)
        elif trips:
            self._sample(node, low, step, trips, weight)
        self._assign(node.results, carried)

    def _trips(self, node: Node, low: Value, high: Value, step: Value) -> int:
        for bound in (low, high, step):
            if isinstance(bound, Unknown):
                self._assume(node, bound)
                return self._assumed(step)
        if "unsigned" in node.text[:8]:
            low, high = unsigned(int(low), 64), unsigned(int(high), 64)  # type: ignore[arg-type]
        if low >= high:  # type: ignore[operator]
            return 0
        if step <= 0:  # type: ignore[operator]
            self._assume(node, Unknown(f"a step of {step}"))
            return self._launch.default_trips
        return -((low - high) // step)  # type: ignore[operator,return-value]

    def _assumed(self, step: Value) -> int:
        """Return the trips assumed for a loop with an unknown end: wider steps take fewer."""
        trips = self._launch.default_trips
        if isinstance(step, int) and step > 1:
            trips = trips * DEFAULT_STEP // step
        return max(1, trips)

    def _sample(self, node: Node, low: Value, step: Value, trips: int, weight: float) -> None:
        """Walk trips that differ only by the loop's variable: all, or some at equal distances."""
        body = node.regions[0][0]
        walked = self._walked(node, trips, self._room)
        if walked < trips:
            self._counts.capped.add(node.loop)
        room, self._room = self._room, max(4, self._room // walked)
        for place in range(walked):
            at = place if walked == trips else ((2 * place + 1) * trips) // (2 * walked)
            self._values[body.arguments[0]] = _iterate(low, step, at)
            self._body(body, weight * trips / walked)
        self._room = room

    def _walked(self, node: Node, trips: int, most: int) -> int:
        """Return the trips to walk of a loop: one when the program's blocks are used up."""
        if trips > 1 and self._blocks_left <= 0:
            self._counts.cut.add(node.loop)
            return 1
        return min(trips, most)

    def _walk(self, node: Node, low: Value, step: Value, trips: int, weight: float) -> None:
        """Walk a loop with state, trip by trip; past `room` trips, extrapolate the state."""
        body = node.regions[0][0]
        carried = body.arguments[1:]
        yields = _passed_on(body)
        history: list[list[Value]] = [self._read(carried)]
        walked = self._walked(node, trips, max(self._room, 2 * PROBE))
        room, self._room = self._room, max(4, self._room // walked)
        for place in range(walked):
            self._values[body.arguments[0]] = _iterate(low, step, place)
            self._body(body, weight * trips / walked)
            self._assign(carried, yields)
            history.append(self._read(carried))
        self._room = room
        if walked < trips:
            self._counts.capped.add(node.loop)
            self._write(carried, extrapolated(history, trips - walked))

    def _wait(self, node: Node, weight: float) -> None:
        """Count a loop that waits for a lock once, as if it were free."""
        before, after = node.regions[0][0], node.regions[1][0]
        passed = _passed_on(before)
        self._assign(before.arguments, node.operands)
        self._body(before, weight)
        self._assign(after.arguments, passed[1:])
        self._body(after, weight)
        goes_on = self._values[passed[0]]
        self._assume(node, goes_on if isinstance(goes_on, Unknown) else _WAITS)
        self._counts.enter(node.loop, 1, weight)
        self._assign(node.results, passed[1:])

    def _while(self, node: Node, weight: float) -> None:
        before, after = node.regions[0][0], node.regions[1][0]
        passed, yields = _passed_on(before), _passed_on(after)
        self._assign(before.arguments, node.operands)
        history: list[list[Value]] = []
        trips, limit = 0, max(PROBE, self._room)
        room, self._room = self._room, max(4, self._room // PROBE)
        while True:
            history.append(self._read(before.arguments))
            self._body(before, weight)
            is_cut = trips > 0 and self._blocks_left <= 0
            leaps = is_cut or trips >= limit or (trips == PROBE and changes_evenly(history))
            self._counts.cut.update([node.loop] * is_cut)
            rest = self._rest(node, passed, history if leaps else [], trips)
            if rest == 0:
                break
            self._assign(after.arguments, passed[1:])
            self._body(after, weight * rest)
            trips += rest
            if rest > 1 or isinstance(self._values[passed[0]], Unknown):
                self._counts.runs[before.index] += weight * rest
                self._write(before.arguments, extrapolated(history, rest))
                self._body(before, 0.0)
                break
            self._assign(before.arguments, yields)
        self._room = room
        self._counts.enter(node.loop, trips, weight)
        self._assign(node.results, passed[1:])

    def _rest(
        self, node: Node, passed: tuple[int, ...], history: list[list[Value]], trips: int
    ) -> int:
        """Return the trips to take at once: 0 to end, 1 to test again, more for all left."""
        goes_on = self._values[passed[0]] if passed else _UNSET
        if self._blocks_left <= 0 and not trips and not isinstance(goes_on, Unknown) and goes_on:
            goes_on = Unknown(TOO_MANY)
        if isinstance(goes_on, Unknown):
            self._assume(node, goes_on)
            return max(0, self._launch.default_trips - trips)
        if not goes_on:
            return 0
        return self._leap(node, passed[0], history) if history else 1

    def _leap(self, node: Node, condition: int, history: list[list[Value]]) -> int:
        """Return the trips left of a `while` whose state has changed by equal steps so far."""
        self._counts.capped.add(node.loop)
        before, line = node.regions[0][0], node.operation.line

        def goes_on(distance: int) -> bool:
            self._write(before.arguments, extrapolated(history, distance))
            self._body(before, 0.0)
            value = self._values[condition]
            return not isinstance(value, Unknown) and bool(value)

        far = 1
        while far < _LONGEST and goes_on(far):
            far *= 2
        near = far // 2
        while far < _LONGEST and far - near > 1:
            middle = (near + far) // 2
            near, far = (middle, far) if goes_on(middle) else (near, middle)
        self._write(before.arguments, history[-1])
        self._body(before, 0.0)
        if far < _LONGEST:
            return max(2, far)
        self._assume(node, Unknown(f"no end in {len(history)} trips", line))
        return max(2, self._launch.default_trips)

    def _assume(self, node: Node, reason: Unknown) -> None:
        self._counts.unknown.setdefault(node.operation.line, (node, reason))

    def _read(self, values: tuple[int, ...]) -> list[Value]:
        return [self._values[value] for value in values]

    def _write(self, targets: tuple[int, ...], values: list[Value]) -> None:
        for target, value in zip(targets, values, strict=False):
            self._values[target] = value

    def _assign(self, targets: tuple[int, ...], values: tuple[int, ...]) -> None:
        self._write(targets, [self._values[value] for value in values])


def _passed_on(body: Body) -> tuple[int, ...]:
    last = terminator(body)
    return last.operands if last is not None else ()


def _iterate(low: Value, step: Value, place: int) -> Value:
    if isinstance(low, Unknown):
        return low
    return step if isinstance(step, Unknown) else low + place * step
