"""Timing in child processes, which a config may hang, break or kill: one, or one a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, TypeVar

from asmtune.base.errors import InputError, MeasureError
from asmtune.compile.lower import PRE_HOOK_LOCK
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.base import BenchSetup, Outcome, TimingCandidate
from asmtune.measure.bench.child_supervisor import COMMAND, ChildCrash, ChildSupervisor
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.memory import PROCESS_BYTES, require_device


class ChildBench:
    """Times configs in a process of their own, on copies of the arguments.

    A config at which the process hangs or dies gets a failure, and a new process goes on with the
    rest. Nothing is launched in the parent.

    Args:
        gpu: index of the GPU among those that this process sees; by default the GPU that the
            arguments lie on.
        shared: the arguments, if other benches send the same ones; its owner closes it.

    Raises:
        InputError: an argument or the reference cannot be sent to a process; names it.
        MeasureError: the process cannot start, or finds no GPU.
        MemoryShortError: the GPU has no room for another copy of the arguments.
    """

    def __init__(
        self,
        setup: BenchSetup,
        gpu: int | None = None,
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
            home = _home(setup) if gpu is None else gpu
            if home is not None:
                what = "a process that times, with its own copy of the arguments"
                require_device(home, self._shared.nbytes + PROCESS_BYTES, what)
            self._children = ChildSupervisor(setup, home, self._shared, command)
            self._children.ready()
            undo.pop_all()

    @property
    def device(self) -> str:
        """Return the name of the GPU."""
        return self._children.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on how outputs were checked, and on processes that died."""
        if not self._children.restarts:
            return self._notes
        again = f"the process that times was started again {self._children.restarts} times"
        return (*self._notes, again)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Make the default config's output the reference, and time the config.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        self._children.state.default = self._children.configs.number(default)
        (outcome,) = self._contest("begin", [default])
        return outcome

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, and return outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("trial", candidates)

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again, interleaved, and return outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: the process dies again and again.
        """
        return self._contest("final", candidates)

    def energy(self, candidate: TimingCandidate) -> float | None:
        """Return the millijoules of one launch; None without a meter, or if the config fails.

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
        """End the process; a thread that waits for its answer gets a `MeasureError`."""
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
        """Ask until every candidate has an outcome; a candidate that kills the child fails."""
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
        """Return the outcomes in an answer; record the state that the next child needs."""
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
    """Copy the arguments of a setup's problem as they are now.

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
    """Return the index of the GPU that the arguments lie on; None if they lie on none."""
    for value in tensor_parts(setup.lowering.problem.arguments).values():
        device = getattr(value, "base", value).device
        if device.type == "cuda":
            return int(device.index)
    return None


T = TypeVar("T")


class Team:
    """Spreads trials over GPUs of one model; finals are timed on the first alone.

    A GPU that can no longer be used leaves the team; the others take its share.

    Attributes:
        device: name of the GPUs.

    Args:
        gpus: indices of the GPUs among those that this process sees.

    Raises:
        InputError: the GPUs are not of one model, or an argument cannot be sent.
        MeasureError: a process cannot start.
    """

    def __init__(
        self,
        setup: BenchSetup,
        gpus: Sequence[int],
        *,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._members: list[ChildBench] = []
        self._notes: tuple[str, ...] = ()
        self._threads = ThreadPoolExecutor(len(gpus), "asmtune-bench")
        self._shared = pack(setup)
        with ExitStack() as undo:
            undo.callback(self.close)
            opened = [
                self._threads.submit(ChildBench, setup, gpu, shared=self._shared, command=command)
                for gpu in gpus
            ]
            self._members = _all_of(opened)
            self.device = _one_model(gpus, [member.device for member in self._members])
            undo.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of all members without repeats, and which GPUs left."""
        member_notes = (note for member in self._members for note in member.notes)
        return (*dict.fromkeys(member_notes), *self._notes)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config on every GPU; return the outcome on the first.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        running = [(m, self._threads.submit(m.begin, default)) for m in self._members]
        wait([future for _, future in running])
        outcomes = [
            outcome
            for member, future in running
            for outcome in self._result_or_leave(member, future)
        ]
        return outcomes[0]

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, dealt to the GPUs in turn; return outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        outcomes: dict[int, Outcome] = {}
        while waiting := [place for place in range(len(candidates)) if place not in outcomes]:
            members = list(self._members)
            running = []
            for turn, member in enumerate(members[: len(waiting)]):
                share = waiting[turn :: len(members)]
                batch = [candidates[place] for place in share]
                running.append((member, share, self._threads.submit(member.trial, batch)))
            wait([future for *_, future in running])
            for member, share, future in running:
                for results in self._result_or_leave(member, future):
                    outcomes |= dict(zip(share, results, strict=True))
        return [outcomes[place] for place in range(len(candidates))]

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again on the first GPU, interleaved; return outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        return self._by_first(lambda member: member.final(candidates))

    def energy(self, candidate: TimingCandidate) -> float | None:
        """Return the millijoules of one launch on the first GPU; None as for a `ChildBench`.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        return self._by_first(lambda member: member.energy(candidate))

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.close()
        self._threads.shutdown()
        self._shared.close()

    def _by_first(self, work: Callable[[ChildBench], T]) -> T:
        """Run work on the first member; on the next one if that has to leave."""
        while True:
            first = self._members[0]
            future = self._threads.submit(work, first)
            wait([future])
            for result in self._result_or_leave(first, future):
                return result

    def _result_or_leave(self, member: ChildBench, future: Future[T]) -> list[T]:
        """Return a member's result in a list; an empty one if the member had to leave.

        Raises:
            MeasureError: it was the last one.
        """
        try:
            return [future.result()]
        except MeasureError as error:
            self._members.remove(member)
            member.close()
            if not self._members:
                raise
            self._notes += (f"timing went on without one GPU: {error}",)
            return []


def _all_of(opened: Sequence[Future[ChildBench]]) -> list[ChildBench]:
    """Return all benches, or close those that opened if another one did not."""
    wait(opened)
    benches = [future.result() for future in opened if future.exception() is None]
    if len(benches) < len(opened):
        for bench in benches:
            bench.close()
    return [future.result() for future in opened]


def _one_model(gpus: Sequence[int], names: Sequence[str]) -> str:
    if len(set(names)) > 1:
        listed = ", ".join(f"GPU {gpu}: {name}" for gpu, name in zip(gpus, names, strict=True))
        raise InputError(
            f"timings of different GPUs cannot be compared ({listed}): choose devices of one model"
        )
    return names[0]
