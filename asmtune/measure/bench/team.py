"""Timing on several GPUs of one model, each in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TypeVar

from asmtune.base.errors import InputError
from asmtune.measure.bench.base import BenchSetup, Outcome, TimingCandidate
from asmtune.measure.bench.child_bench import COMMAND, ChildBench, pack

T = TypeVar("T")


class Team:
    """Spreads trials over GPUs of one model; finals are timed on the first alone.

    An error of one GPU is the team's. What was timed is stored by then, so that a new run on the
    other GPUs goes on from there.

    Attributes:
        device: name of the GPUs.

    Args:
        gpus: indices of the GPUs among those that this process sees.

    Raises:
        InputError: the GPUs are not of one model, or an argument cannot be sent.
        MeasureError: a process cannot start.
    """

    def __init__(
        self, setup: BenchSetup, gpus: Sequence[int], *, command: Sequence[str] = COMMAND
    ) -> None:
        self._members: list[ChildBench] = []
        self._threads = ThreadPoolExecutor(len(gpus), "asmtune-bench")
        self._shared = pack(setup)

        def opened(gpu: int) -> None:
            self._members.append(ChildBench(setup, gpu, shared=self._shared, command=command))

        with ExitStack() as undo:
            undo.callback(self.close)
            _results([self._threads.submit(opened, gpu) for gpu in gpus])
            self._members.sort(key=lambda member: gpus.index(member.gpu))
            self.device = _one_model(gpus, [member.device for member in self._members])
            undo.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes of all members without repeats."""
        return (*dict.fromkeys(note for member in self._members for note in member.notes),)

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config on every GPU; return the outcome on the first."""
        return _results([self._threads.submit(m.begin, default) for m in self._members])[0]

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, dealt to the GPUs in turn; return outcomes in order."""
        count = len(self._members)
        shares = [candidates[turn::count] for turn in range(min(count, len(candidates)))]
        timed = _results(
            [
                self._threads.submit(member.trial, share)
                for member, share in zip(self._members, shares, strict=False)
            ]
        )
        return [timed[place % count][place // count] for place in range(len(candidates))]

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again on the first GPU, interleaved; return outcomes in order."""
        return self._threads.submit(self._members[0].final, candidates).result()

    def close(self) -> None:
        """End all processes."""
        for member in self._members:
            member.close()
        self._threads.shutdown()
        self._shared.close()


def _results(futures: Sequence[Future[T]]) -> list[T]:
    """Wait for all, also where one raises."""
    wait(futures)
    return [future.result() for future in futures]


def _one_model(gpus: Sequence[int], names: Sequence[str]) -> str:
    if len(set(names)) > 1:
        listed = ", ".join(f"GPU {gpu}: {name}" for gpu, name in zip(gpus, names, strict=True))
        raise InputError(
            f"timings of different GPUs cannot be compared ({listed}): choose devices of one model"
        )
    return names[0]
