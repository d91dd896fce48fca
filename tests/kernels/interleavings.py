"""Goes through every order in which the partitions of a kernel and its copies may proceed.

What partitions do does not depend on the order, so that the steps that `Machine` has recorded in
one order are those of all. A state is how far each partition is and which copies are in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.kernels.gluon_machine import Barrier, Machine, MachineError, Slot, Step

Place = tuple[int, ...]
Flights = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class State:
    """How far each partition is, and the loads in flight as pairs of partition and step."""

    places: Place
    flights: Flights


class Interleavings:
    """All states that recorded steps can reach."""

    def __init__(self, machine: Machine) -> None:
        self.steps: list[Sequence[Step]] = [agent.steps for agent in machine.agents]
        self.counts = {slot: barrier.count for slot, barrier in machine.barriers.items()}
        self._known: dict[tuple[int, int], tuple[dict[Slot, int], dict[Slot, int]]] = {}

    def explore(self) -> int:
        """Visit every state; return how many there are.

        Raises:
            MachineError: in some order a tile is read or overwritten too early, or all wait.
        """
        start = State(tuple(0 for _ in self.steps), ())
        seen, left = {start}, [start]
        while left:
            state = left.pop()
            following = list(self._following(state))
            ends = zip(state.places, self.steps, strict=True)
            if not following and any(at < len(steps) for at, steps in ends):
                raise MachineError(f"all partitions wait for ever at {state.places}")
            left += [after for after in following if after not in seen]
            seen.update(following)
        return len(seen)

    def _following(self, state: State) -> Iterator[State]:
        phases = self._barriers(state)
        for flight in state.flights:
            yield State(state.places, tuple(f for f in state.flights if f != flight))
        for who, at in enumerate(state.places):
            if at == len(self.steps[who]):
                continue
            kind, *about = self.steps[who][at]
            if kind == "wait" and not phases[about[0]].passes(about[1]):
                continue
            flights = state.flights
            if kind == "load":
                self._check_load(state, about[0])
                flights = tuple(sorted((*flights, (who, at))))
            elif kind == "write":
                self._check_load(state, about[0])
            elif kind == "multiply":
                self._check_product(state, about[0], about[1])
            elif kind in ("read", "store"):
                self._check_product(state, about[:1], about[1:])
            places = tuple(p + (i == who) for i, p in enumerate(state.places))
            yield State(places, flights)

    def _barriers(self, state: State) -> dict[Slot, Barrier]:
        """Return the barriers after the steps so far, whose order does not matter to them."""
        sums = [self._sums(who, place) for who, place in enumerate(state.places)]
        barriers = {}
        for slot, count in self.counts.items():
            flying = [self.steps[who][at] for who, at in state.flights]
            missing = sum(step[3] for step in flying if step[2] == slot)
            missing += sum(announced.get(slot, 0) for _, announced in sums)
            phase, rest = divmod(sum(arrivals.get(slot, 0) for arrivals, _ in sums), count)
            phase -= rest == 0 and missing > 0
            barriers[slot] = Barrier(count, count - rest, missing, phase)
        return barriers

    def _sums(self, who: int, place: int) -> tuple[dict[Slot, int], dict[Slot, int]]:
        """Return a partition's arrivals, and the bytes that it announced and does not yet copy."""
        if (who, place) not in self._known:
            arrivals: dict[Slot, int] = {}
            announced: dict[Slot, int] = {}
            for kind, *about in self.steps[who][:place]:
                if kind in ("arrive", "expect"):
                    arrivals[about[0]] = arrivals.get(about[0], 0) + 1
                if kind == "expect":
                    announced[about[0]] = announced.get(about[0], 0) + about[1]
                elif kind == "load":
                    announced[about[1]] -= about[2]
            self._known[who, place] = arrivals, announced
        return self._known[who, place]

    def _check_load(self, state: State, target: Slot) -> None:
        for steps, place in zip(self.steps, state.places, strict=True):
            if target in _being_read(steps[:place]):
                raise MachineError(f"{target} is overwritten while it is read, at {state.places}")

    def _check_product(self, state: State, slots: Sequence[Slot], wanted: Sequence[int]) -> None:
        for slot, number in zip(slots, wanted, strict=True):
            begun = sum(
                step[0] in ("load", "write") and step[1] == slot
                for steps, place in zip(self.steps, state.places, strict=True)
                for step in steps[:place]
            )
            flying = any(self.steps[who][at][1] == slot for who, at in state.flights)
            if begun != number or flying:
                raise MachineError(f"{slot} is read too early or too late, at {state.places}")


def _being_read(steps: Sequence[Step]) -> set[Slot]:
    products: list[tuple[Slot, ...]] = []
    for kind, *about in steps:
        if kind == "multiply":
            products.append(about[0])
        elif kind == "multiplied":
            products = products[len(products) - about[0] :] if about[0] else []
    return {slot for slots in products for slot in slots}
