"""Timing in a child process, which a config may hang, break or kill."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import InputError, MeasureError
from asmtune.compile.load import Binary
from asmtune.compile.lower import PRE_HOOK_LOCK
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.checks.effects import tensor_parts
from asmtune.measure.memory import PROCESS_BYTES, require_device

COMMAND: Final = module_command("asmtune.measure.bench.child_main")

_USER_S: Final = 120.0  # for the user's own functions, which may run on the host
_COPY_BYTES_PER_S: Final = 200e6  # far below what any bus does
_COMPARED_BYTES_PER_S: Final = 1e9  # on the host, where the GPU has no room for a copy
_MOST_CRASHES: Final = 3
_START_S: Final = 120.0  # importing PyTorch takes 2 s, and a minute on a cold network disk
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class ChildCrash:
    """Says how a child ended: `culprit` is the number of the config that ran, None if none did."""

    culprit: int | None
    failure: Failure


class ChildSession:
    """Sends requests to one child until it dies.

    Attributes:
        pid: its process id.
        fresh: whether it has not timed anything yet.
    """

    def __init__(self, child: Child) -> None:
        self.pid = child.pid
        self.fresh = True
        self._child = child
        # Killing it from another thread wakes the thread that waits for its answer.
        self.stop, self.close = child.stop, child.kill

    def open(self, opening: Mapping[str, Any], limit_s: float) -> dict[str, Any] | ChildCrash:
        """Wait for the child's start, send it setup and arguments, and return as `ask` does."""
        started = self._answer(None, _START_S)
        return started if isinstance(started, ChildCrash) else self.ask(opening, limit_s)

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | ChildCrash:
        """Return the answer to a request, or how the child died.

        Each step that the child announces may take `limit_s` seconds.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: the child cannot serve the request, whatever the config.
        """
        try:
            self._child.send(request)
        except ChildGoneError:
            return self._gone(None)
        answer = self._answer(None, limit_s)
        if isinstance(answer, ChildCrash):
            return answer
        if "refused" in answer:
            kind = InputError if answer["input"] else MeasureError
            raise kind(answer["refused"])
        if "outcomes" in answer:
            self.fresh = False
        return answer

    def _answer(self, running: int | None, limit_s: float) -> dict[str, Any] | ChildCrash:
        while True:
            try:
                message = self._child.receive(limit_s)
            except TimeoutError:
                self._child.kill()
                detail = f"no end after {limit_s:.3g} s: the process that timed it was ended"
                return ChildCrash(running, Failure("launch", "timeout", detail))
            except ChildGoneError:
                return self._gone(running)
            if "lost" in message:
                self._child.kill()
                return ChildCrash(message["lost"], Failure("launch", "fault", message["detail"]))
            if "running" not in message:
                return message
            running = message["running"]

    def _gone(self, running: int | None) -> ChildCrash:
        detail = f"the process that timed it {self._child.kill(_PATIENCE_S)}"
        return ChildCrash(running, Failure("launch", "crash", detail))


class ChildBench:
    """Times configs in a process of their own, on copies of the arguments.

    A config at which the process hangs or dies gets a failure, and a new process goes on with the
    rest: it first runs the config whose output is the reference. Nothing is launched in the parent.

    Attributes:
        device: name of the GPU.
        candidates: all that were sent; their places are the configs' numbers.

    Raises:
        InputError: an argument or the reference cannot be sent to a process; names it.
        MeasureError: the process cannot start, or finds no GPU.
        MemoryShortError: the GPU has no room for another copy of the arguments.
    """

    def __init__(self, setup: BenchSetup, *, command: Sequence[str] = COMMAND) -> None:
        self.device = ""
        self.candidates: list[TimingCandidate] = []
        self._setup, self._command = setup, command
        self._numbers: dict[Config, int] = {}
        self._hooks: dict[Callable[..., Any], str] = {}
        self._default: int | None = None
        self._reference: int | None = None
        self._notes: tuple[str, ...] = ()
        self._restarts = self._crashes = 0
        self._session: ChildSession | None = None
        self._closed = False
        self._turn = threading.RLock()
        self._shared = _pack(setup)
        with ExitStack() as undo:
            undo.callback(self.close)
            self._gpu = _home(setup)
            if self._gpu is not None:
                what = "a process that times, with its own copy of the arguments"
                require_device(self._gpu, self._shared.nbytes + PROCESS_BYTES, what)
            self._opening = {
                "do": "open",
                "path": sys.path,
                "arguments": self._shared.to_json(),
                "setup": messages.setup_text(setup),
                "functions": bool(messages.functions_of(setup)),
            }
            self._ready()
            undo.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks on how outputs were checked, and on processes that died."""
        again = f"the process that times was started again {self._restarts} times"
        return (*self._notes, again) if self._restarts else self._notes

    def begin(self, default: TimingCandidate) -> Outcome:
        """Make the default config's output the reference, and time the config."""
        self._default = self._number(default)
        (outcome,) = self._contest("begin", [default])
        return outcome

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check and race candidates, and return outcomes in order."""
        return self._contest("trial", candidates)

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time candidates again, interleaved, and return outcomes in order."""
        return self._contest("final", candidates)

    def close(self) -> None:
        """End the process; a thread that waits for its answer gets a `MeasureError`."""
        if self._closed:
            return
        self._closed = True
        if (session := self._session) is not None:
            session.stop()
        with self._turn:
            if self._session is not None:
                self._session.close()
            self._shared.close()

    def _contest(self, verb: str, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Ask until every candidate has an outcome; a candidate that kills the child fails."""
        numbers = [self._number(candidate) for candidate in candidates]
        described = {number: self._described(number) for number in numbers}
        results: dict[int, Measurement | Failure] = {
            number: description
            for number, description in described.items()
            if isinstance(description, Failure)
        }
        with self._turn:
            while waiting := [number for number in described if number not in results]:
                answer = self._ask(self._ready(), verb, [described[n] for n in waiting])
                if not isinstance(answer, ChildCrash):
                    self._crashes = 0
                    results |= self._record_results(answer, waiting)
                    continue
                self._session = None
                if answer.culprit in waiting:
                    results[answer.culprit] = answer.failure
                else:
                    self._record_crash(answer)
        return [(e.config, results[n]) for e, n in zip(candidates, numbers, strict=True)]

    def _record_results(
        self, answer: Mapping[str, Any], numbers: Sequence[int]
    ) -> dict[int, Measurement | Failure]:
        """Return the outcomes in an answer; record the state that the next child needs."""
        self._notes, self._reference = tuple(answer["notes"]), answer["reference"]
        pairs = zip(numbers, answer["outcomes"], strict=True)
        return {n: messages.result_of(said, self.candidates[n].config) for n, said in pairs}

    def _record_crash(self, crash: ChildCrash) -> None:
        """Count a crash that no candidate is charged with.

        Raises:
            MeasureError: there were too many in a row.
        """
        self._session = None
        self._crashes += 1
        if self._crashes >= _MOST_CRASHES:
            raise MeasureError(
                f"the process that times died {self._crashes} times in a row while no new "
                f"config ran; the last one: {crash.failure.detail}"
            )

    def _number(self, candidate: TimingCandidate) -> int:
        number = self._numbers.setdefault(candidate.config, len(self.candidates))
        if number == len(self.candidates):
            self.candidates.append(candidate)
        return number

    def _described(self, number: int) -> dict[str, Any] | Failure:
        """Describe what a child needs to run a candidate, or why its options are refused."""
        candidate = self.candidates[number]
        hook, lowering = candidate.config.pre_hook, self._setup.lowering
        # Specialising a launch runs its hook in this process, on the user's tensors.
        self._shared.touched |= hook is not None
        binary = Binary.of(lowering, candidate.config, candidate.artifact)
        if isinstance(binary, Failure):
            return binary
        if hook is not None and hook not in self._hooks:
            self._hooks[hook] = messages.pickled_function(hook, "pre_hook")
        sent = messages.SentCandidate.of(lowering.problem, candidate, binary)
        text = messages.pickled(sent, f"config {candidate.config}")
        return {"number": number, "hook": self._hooks[hook] if hook else None, "sent": text}

    def _ready(self) -> ChildSession:
        """Return a child that has the state of those before it; start one if needed.

        Raises:
            InputError: the user's reference cannot be loaded there.
            MeasureError: no child stays alive, or it cannot use the GPU.
        """
        while self._session is None:
            self._restarts += bool(self.device)
            self._session = self._start()
            if self._closed:
                raise MeasureError("this bench is closed: open another one")
            crash = self._warm_up_child(self._session)
            if crash is not None:
                self._record_crash(crash)
        return self._session

    def _start(self) -> ChildSession:
        variables = environment(self._gpu)
        return ChildSession(Child(self._command, variables, (self._shared.file,)))

    def _warm_up_child(self, session: ChildSession) -> ChildCrash | None:
        """Open a child and run the reference; return how it died of that, if it did."""
        limit_s = _START_S + self._shared.nbytes / _COPY_BYTES_PER_S
        opened = session.open(self._opening, limit_s)
        if isinstance(opened, ChildCrash):
            return opened
        self.device = opened["device"]
        number = self._reference
        described = None if number is None else self._described(number)
        if described is None or isinstance(described, Failure):
            return None
        verb = "begin" if number == self._default else "trial"
        answer = self._ask(session, verb, [described])
        return answer if isinstance(answer, ChildCrash) else None

    def _ask(
        self, session: ChildSession, verb: str, described: Sequence[Any]
    ) -> dict[str, Any] | ChildCrash:
        limit_s = self._setup.run_timeout_s + self._shared.nbytes / _COMPARED_BYTES_PER_S
        limit_s += self._setup.policy.warmup_us * 1e-6
        if session.fresh:
            limit_s *= 2  # the context is made, and Triton's launcher is built
            if self._setup.checks.reference is not None:
                limit_s = max(limit_s, _USER_S)
        # An alternative may tune kernels of its own at its first call, in a final.
        if self._setup.do_bench is not None or (verb == "final" and self._setup.alternatives):
            limit_s = max(limit_s, _USER_S)
        return session.ask({"do": verb, "candidates": list(described)}, limit_s)


def _pack(setup: BenchSetup) -> SharedArguments:
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


def environment(index: int | None) -> Mapping[str, str]:
    """Return this process's environment, changed so that a child sees one of its GPUs only."""
    name, variables = "CUDA_VISIBLE_DEVICES", dict(os.environ)
    if index is not None:
        listed = variables.get(name)
        seen = None if listed is None else [entry.strip() for entry in listed.split(",") if entry]
        variables[name] = str(index) if seen is None else seen[index]
    return variables
