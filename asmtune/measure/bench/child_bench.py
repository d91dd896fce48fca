"""Timing in a child process, which a config may hang, break or kill."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from asmtune.compile.lower import HOOKS
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.base import BenchSetup, Entrant, Outcome
from asmtune.measure.bench.child_supervisor import COMMAND, ChildCrash, ChildSupervisor
from asmtune.measure.checks.effects import tensor_parts


class ChildBench:
    """Times configs in a process of their own, on copies of the arguments.

    A config at which the process hangs or dies gets a failure; a new process goes on
    with the rest. Nothing is launched in the parent.

    Args:
        setup: what is timed, and how.
        index: of the GPU among those that this process sees; by default the one that the
            arguments lie on.
        parcel: the arguments, where other benches send the same ones; its owner closes it.
        command: starts the child.

    Raises:
        InputError: an argument or the reference cannot be sent to a process; names it.
        MeasureError: the process cannot start, or finds no GPU.
    """

    def __init__(
        self,
        setup: BenchSetup,
        index: int | None = None,
        *,
        parcel: SharedArguments | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._notes: tuple[str, ...] = ()
        self._closed = False
        self._turn = threading.RLock()
        self._parcel = pack(setup) if parcel is None else parcel
        self._owns_parcel = parcel is None
        with ExitStack() as undo:
            undo.callback(self.close)
            home = _home(setup) if index is None else index
            self._children = ChildSupervisor(setup, home, self._parcel, command)
            self._children.ready()
            undo.pop_all()

    @property
    def device(self) -> str:
        """Name of the GPU."""
        return self._children.device

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of how outputs were checked, and of processes that died."""
        if not self._children.restarts:
            return self._notes
        again = f"the process that times was started again {self._children.restarts} times"
        return (*self._notes, again)

    def begin(self, default: Entrant) -> Outcome:
        """Makes the default's output the reference, and times it.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        self._children.known.default = self._children.roster.number(default)
        (outcome,) = self._contest("begin", [default])
        return outcome

    def trial(self, entrants: Sequence[Entrant]) -> list[Outcome]:
        """Checks and races entrants; outcomes in their order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("trial", entrants)

    def final(self, entrants: Sequence[Entrant]) -> list[Outcome]:
        """Times entrants afresh, interleaved; outcomes in their order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("final", entrants)

    def energy(self, entrant: Entrant) -> float | None:
        """Millijoules of one launch; None where the GPU has no meter, or the config fails.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        number = self._children.roster.number(entrant)
        described = self._children.roster.describe(number)
        with self._turn:
            while not isinstance(described, Failure):
                answer = self._children.ask("energy", [described])
                if not isinstance(answer, ChildCrash):
                    found: float | None = answer["energy_mj"]
                    return found
                if answer.culprit == number:
                    break
                self._children.mourn(answer)
        return None

    def close(self) -> None:
        """Ends the process; a thread that waits for it gets a `MeasureError`."""
        if self._closed:
            return
        self._closed = True
        children = getattr(self, "_children", None)
        if children is not None:
            children.stop()
        with self._turn:
            if children is not None:
                children.close()
            if self._owns_parcel:
                self._parcel.close()

    def _contest(self, verb: str, entrants: Sequence[Entrant]) -> list[Outcome]:
        """Asks until every entrant has an outcome; a death settles one, or is one too many."""
        children = self._children
        numbers = [children.roster.number(entrant) for entrant in entrants]
        described = {number: children.roster.describe(number) for number in numbers}
        results: dict[int, Measurement | Failure] = {
            number: made for number, made in described.items() if isinstance(made, Failure)
        }
        with self._turn:
            while waiting := [number for number in described if number not in results]:
                answer = children.ask(verb, [described[number] for number in waiting])
                if not isinstance(answer, ChildCrash):
                    results |= self._learnt(answer, waiting)
                elif answer.culprit in waiting:
                    results[answer.culprit] = answer.failure
                else:
                    children.mourn(answer)
        return [(e.config, results[n]) for e, n in zip(entrants, numbers, strict=True)]

    def _learnt(
        self, answer: Mapping[str, Any], numbers: Sequence[int]
    ) -> dict[int, Measurement | Failure]:
        """The outcomes in an answer; keeps what a next child must know."""
        known, roster = self._children.known, self._children.roster
        self._notes, known.reference = tuple(answer["notes"]), answer["reference"]
        results = {}
        for number, message in zip(numbers, answer["outcomes"], strict=True):
            result = messages.result_of(message, roster.entrants[number].config)
            results[number] = result
            if isinstance(result, Measurement):
                mine = (result.median_us, number)
                known.best = mine if known.best is None else min(known.best, mine)
        return results


def pack(setup: BenchSetup) -> SharedArguments:
    """The arguments of a setup's problem, as they are now.

    Raises:
        InputError: an argument cannot travel; names it.
        MeasureError: there is no room for a copy of them.
    """
    import torch

    problem = setup.lowering.problem
    with HOOKS:
        parcel = SharedArguments(problem.arguments, frozenset(messages.constexpr_names(problem)))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # what this process keeps for later, a child cannot have
    return parcel


def _home(setup: BenchSetup) -> int | None:
    """Index of the GPU that the arguments lie on; None where they lie on none."""
    for value in tensor_parts(setup.lowering.problem.arguments).values():
        device = getattr(value, "base", value).device
        if device.type == "cuda":
            return int(device.index)
    return None
