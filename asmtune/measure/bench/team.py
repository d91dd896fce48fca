"""Times configs on several GPUs of a host at once, with a process for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TypeVar

from asmtune.base.errors import InputError, MeasureError
from asmtune.measure.bench.base import BenchSetup, Outcome, TimingCandidate
from asmtune.measure.bench.child_bench import ChildBench, pack
from asmtune.measure.bench.child_supervisor import COMMAND

T = TypeVar("T")


class Team:
    """Spreads trials over GPUs of one model; finals are timed on the first alone.

    A GPU that can no longer be used leaves the team; the others take its share.

    Attributes:
        device: name of the GPUs.

    Args:
        setup: what is timed, and how.
        indices: indices of the GPUs among those that this process sees.
        command: starts a child.

    Raises:
        InputError: the GPUs are not of one model, or an argument cannot be sent.
        MeasureError: a process cannot start.
    """

    def __init__(
        self, setup: BenchSetup, indices: Sequence[int], *, command: Sequence[str] = COMMAND
    ) -> None:
        self._members: list[ChildBench] = []
        self._notes: tuple[str, ...] = ()
        self._threads = ThreadPoolExecutor(len(indices), "asmtune-bench")
        self._shared = pack(setup)
        with ExitStack() as undo:
            undo.callback(self.close)
            opened = [
                self._threads.submit(ChildBench, setup, index, shared=self._shared, command=command)
                for index in indices
            ]
            self._members = _all_of(opened)
            self.device = _one_model(indices, [member.device for member in self._members])
            undo.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns the notes of all members without repeats, and which GPUs left."""
        member_notes = (note for member in self._members for note in member.notes)
        return (*dict.fromkeys(member_notes), *self._notes)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Times the default config on every GPU; returns the outcome on the first.

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
        """Checks and races candidates, dealt to the GPUs in turn; returns outcomes in order.

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
        """Times candidates again on the first GPU, interleaved; returns outcomes in order.

        Raises:
            InputError: a hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        return self._by_first(lambda member: member.final(candidates))

    def energy(self, candidate: TimingCandidate) -> float | None:
        """Returns the millijoules of one launch on the first GPU; None as for a `ChildBench`.

        Raises:
            InputError: its hook cannot be sent to a process; names it.
            MeasureError: no GPU can be used any more.
        """
        return self._by_first(lambda member: member.energy(candidate))

    def close(self) -> None:
        """Ends all processes."""
        for member in self._members:
            member.close()
        self._threads.shutdown()
        self._shared.close()

    def _by_first(self, work: Callable[[ChildBench], T]) -> T:
        """Runs work on the first member; on the next one if that has to leave."""
        while True:
            first = self._members[0]
            future = self._threads.submit(work, first)
            wait([future])
            for result in self._result_or_leave(first, future):
                return result

    def _result_or_leave(self, member: ChildBench, future: Future[T]) -> list[T]:
        """Returns a member's result in a list; an empty one if the member had to leave.

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
    """Returns all benches, or closes those that opened if another one did not."""
    wait(opened)
    benches = [future.result() for future in opened if future.exception() is None]
    if len(benches) < len(opened):
        for bench in benches:
            bench.close()
    return [future.result() for future in opened]


def _one_model(indices: Sequence[int], names: Sequence[str]) -> str:
    """Returns the name that all GPUs have."""
    if len(set(names)) > 1:
        listed = ", ".join(f"{i}: {name}" for i, name in zip(indices, names, strict=True))
        raise InputError(
            f"timings of different GPUs cannot be compared ({listed}): choose devices of one model"
        )
    return names[0]
