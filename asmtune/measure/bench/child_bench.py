"""Timing in a child process, which a config may hang, break or kill."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from asmtune.compile.lower import PRE_HOOK_LOCK
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.base import BenchSetup, Outcome, TimingCandidate
from asmtune.measure.bench.child_supervisor import COMMAND, ChildCrash, ChildSupervisor
from asmtune.measure.checks.effects import tensor_parts


class ChildBench:
    """Times configs in a process of their own, on copies of the arguments.

    A config at which the process hangs or dies gets a failure, and a new process goes on with the
    rest. Nothing is launched in the parent.

    Args:
        setup: what is timed, and how.
        index: index of the GPU among those that this process sees; by default the GPU that the
            arguments lie on.
        shared: the arguments, if other benches send the same ones; its owner closes it.
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
        shared: SharedArguments | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._notes: tuple[str, ...] = ()
        self._closed = False
        self._turn = threading.RLock()
        self._shared = pack(setup) if shared is None else shared
        self._owns_shared = shared is None
        with ExitStack() as undo:
            undo.callback(self.close)
            home = _home(setup) if index is None else index
            self._children = ChildSupervisor(setup, home, self._shared, command)
            self._children.ready()
            undo.pop_all()

    @property
    def device(self) -> str:
        """Returns the name of the GPU."""
        return self._children.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns remarks on how outputs were checked, and on processes that died."""
        if not self._children.restarts:
            return self._notes
        again = f"the process that times was started again {self._children.restarts} times"
        return (*self._notes, again)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Makes the default config's output the reference, and times the config.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        self._children.state.default = self._children.configs.number(default)
        (outcome,) = self._contest("begin", [default])
        return outcome

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Checks and races candidates, and returns outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("trial", candidates)

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Times candidates again, interleaved, and returns outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("final", candidates)

    def energy(self, candidate: TimingCandidate) -> float | None:
        """Returns the millijoules of one launch; None without a meter, or if the config fails.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        number = self._children.configs.number(candidate)
        described = self._children.configs.describe(number)
        with self._turn:
            while not isinstance(described, Failure):
                answer = self._children.ask("energy", [described])
                if not isinstance(answer, ChildCrash):
                    energy_mj: float | None = answer["energy_mj"]
                    return energy_mj
                if answer.culprit == number:
                    break
                self._children.record_crash(answer)
        return None

    def close(self) -> None:
        """Ends the process; a thread that waits for its answer gets a `MeasureError`."""
        if self._closed:
            return
        self._closed = True
        children = getattr(self, "_children", None)
        if children is not None:
            children.stop()
        with self._turn:
            if children is not None:
                children.close()
            if self._owns_shared:
                self._shared.close()

    def _contest(self, verb: str, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Asks until every candidate has an outcome; a candidate that kills the child fails."""
        children = self._children
        numbers = [children.configs.number(candidate) for candidate in candidates]
        described = {number: children.configs.describe(number) for number in numbers}
        results: dict[int, Measurement | Failure] = {
            number: description
            for number, description in described.items()
            if isinstance(description, Failure)
        }
        with self._turn:
            while waiting := [number for number in described if number not in results]:
                answer = children.ask(verb, [described[number] for number in waiting])
                if not isinstance(answer, ChildCrash):
                    results |= self._record_results(answer, waiting)
                elif answer.culprit in waiting:
                    results[answer.culprit] = answer.failure
                else:
                    children.record_crash(answer)
        return [(e.config, results[n]) for e, n in zip(candidates, numbers, strict=True)]

    def _record_results(
        self, answer: Mapping[str, Any], numbers: Sequence[int]
    ) -> dict[int, Measurement | Failure]:
        """Returns the outcomes in an answer; records the state that the next child needs."""
        state, configs = self._children.state, self._children.configs
        self._notes, state.reference = tuple(answer["notes"]), answer["reference"]
        results = {}
        for number, message in zip(numbers, answer["outcomes"], strict=True):
            result = messages.result_of(message, configs.candidates[number].config)
            results[number] = result
            if isinstance(result, Measurement):
                timing = (result.median_us, number)
                state.best = timing if state.best is None else min(state.best, timing)
        return results


def pack(setup: BenchSetup) -> SharedArguments:
    """Copies the arguments of a setup's problem as they are now.

    Raises:
        InputError: an argument cannot travel; names it.
        MeasureError: there is no room for a copy of them.
    """
    import torch

    problem = setup.lowering.problem
    with PRE_HOOK_LOCK:
        shared = SharedArguments(problem.arguments, frozenset(messages.constexpr_names(problem)))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # a child cannot use memory cached here
    return shared


def _home(setup: BenchSetup) -> int | None:
    """Returns the index of the GPU that the arguments lie on; None if they lie on none."""
    for value in tensor_parts(setup.lowering.problem.arguments).values():
        device = getattr(value, "base", value).device
        if device.type == "cuda":
            return int(device.index)
    return None
