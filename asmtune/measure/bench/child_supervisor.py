"""Keeps a child that times one problem; restarts it after a crash and replays its state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import InputError, MeasureError
from asmtune.base.json_codec import to_json
from asmtune.compile.load import Binary
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.bench.gpu import environment

COMMAND: Final = module_command("asmtune.measure.bench.child_main")

_USER_S: Final = 120.0  # for the user's own reference or clock, which may run on the host
_COPY_BYTES_PER_S: Final = 200e6  # far below what any bus does
_COMPARED_BYTES_PER_S: Final = 1e9  # on the host, where the GPU has no room for a copy
_MOST_CRASHES: Final = 3
_START_S: Final = 120.0  # importing PyTorch takes 2 s, and a minute on a cold network disk
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class ChildCrash:
    """Says how a child ended.

    Attributes:
        culprit: number of the config that ran; None if none did.
        failure: that config's failure.
    """

    culprit: int | None
    failure: Failure


class ChildSession:
    """Sends requests to one child until it dies.

    Attributes:
        device: name of its GPU, once it is open.
        fresh: whether it has not timed anything yet.
    """

    def __init__(self, child: Child) -> None:
        self.device = ""
        self.fresh = True
        self._child = child

    def open(self, opening: Mapping[str, Any], copy_s: float) -> ChildCrash | None:
        """Send the child its setup and arguments; return how it died, if it did.

        Copying the arguments may take `copy_s` seconds more than its start.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: it finds no GPU, or no room on it.
        """
        answer = self._answer(None, _START_S)
        if not isinstance(answer, ChildCrash):
            answer = self.ask(opening, _START_S + copy_s)
        if isinstance(answer, ChildCrash):
            return answer
        self.device = answer["device"]
        return None

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

    def stop(self) -> None:
        """Kill the child; another thread that waits for its answer gets a `ChildCrash`."""
        self._child.stop()

    def close(self) -> None:
        """Kill the child and close its pipes."""
        self._child.kill()

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


class ConfigTable:
    """Numbers the configs that are sent to the children of a bench; `candidates` has that order."""

    def __init__(self, lowering: Lowering, shared: SharedArguments) -> None:
        self.candidates: list[TimingCandidate] = []
        self._lowering = lowering
        self._shared = shared
        self._numbers: dict[Config, int] = {}
        self._hooks: dict[Callable[..., Any], tuple[int, str]] = {}

    def number(self, candidate: TimingCandidate) -> int:
        """Return the number of a candidate's config."""
        number = self._numbers.setdefault(candidate.config, len(self.candidates))
        if number == len(self.candidates):
            self.candidates.append(candidate)
        return number

    def describe(self, number: int) -> dict[str, Any] | Failure:
        """Describe what a child needs to run a candidate, or why its options are refused.

        Raises:
            InputError: its hook cannot be sent; names it.
        """
        candidate = self.candidates[number]
        # Specialising a launch runs its hook in this process, on the user's tensors.
        self._shared.touched |= candidate.config.pre_hook is not None
        binary = Binary.of(self._lowering, candidate.config, candidate.artifact)
        if isinstance(binary, Failure):
            return binary
        return {
            "number": number,
            "config": messages.describe_config(self._lowering.problem, candidate.config),
            "hook": self._hook(candidate.config.pre_hook),
            "binary": messages.describe_binary(binary),
            "slots": to_json(candidate.slots),
        }

    def request(self, verb: str, described: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the request to time described candidates, with the hooks that they need."""
        used = {candidate["hook"] for candidate in described}
        hooks = {str(number): text for number, text in self._hooks.values() if number in used}
        return {"do": verb, "candidates": list(described), "hooks": hooks}

    def _hook(self, hook: Callable[..., Any] | None) -> int | None:
        if hook is None:
            return None
        if hook not in self._hooks:
            text = messages.pickled(hook, messages.name_of("pre_hook", hook))
            self._hooks[hook] = (len(self._hooks), text)
        return self._hooks[hook][0]


@dataclass
class ChildState:
    """Holds what a new child must know of earlier ones; configs by number.

    Attributes:
        default: the default config.
        reference: the config whose output the others must equal.
        best: the best so far: its median in microseconds, and its number.
    """

    default: int | None = None
    reference: int | None = None
    best: tuple[float, int] | None = None

    def warmup_requests(self) -> list[tuple[str, int]]:
        """Return the requests that a new child gets first: verb and config number."""
        numbers = dict.fromkeys([self.reference, self.best and self.best[1]])
        return [
            ("begin" if number == self.default else "trial", number)
            for number in numbers
            if number is not None
        ]


class ChildSupervisor:
    """Keeps a child that is ready to time, and starts another one after a crash.

    Attributes:
        device: name of the GPU; "" before a child was open.
        state: what the next child has to replay.
        restarts: how many children were started after the first one.
        configs: the numbered configs.

    Args:
        setup, shared: what is timed, and the arguments.
        gpu: index of the GPU among those that this process sees, None for all of them.
        command: starts a child.

    Raises:
        InputError: the user's reference cannot be sent to a process.
    """

    def __init__(
        self,
        setup: BenchSetup,
        gpu: int | None,
        shared: SharedArguments,
        command: Sequence[str],
    ) -> None:
        self.device = ""
        self.state = ChildState()
        self.restarts = 0
        self.configs = ConfigTable(setup.lowering, shared)
        self.command = command
        self._setup = setup
        self._gpu = gpu
        self._shared = shared
        self._settings = messages.describe_setup(setup)
        self._session: ChildSession | None = None
        self._spare: ChildSession | None = None
        self._crashes = 0
        self._closed = False

    def ask(self, verb: str, described: Sequence[Any]) -> dict[str, Any] | ChildCrash:
        """Return a child's answer to a request, or how it died.

        The verb is "begin", "trial", "final" or "energy".

        Raises:
            InputError: a hook cannot be loaded there.
            MeasureError: no child stays alive.
        """
        answer = self._request(self.ready(), verb, described)
        if isinstance(answer, ChildCrash):
            self._session = None
        else:
            self._crashes = 0
        return answer

    def ready(self) -> ChildSession:
        """Return a child that has the state of those before it; start one if needed.

        Raises:
            InputError: the user's reference cannot be loaded there.
            MeasureError: no child stays alive, or it cannot use the GPU.
        """
        while self._session is None:
            self.restarts += bool(self.device)
            self._session, self._spare = self._spare or self._start(), None
            if self._closed:
                raise MeasureError("this bench is closed: open another one")
            crash = self._warm_up_child(self._session)
            if crash is not None:
                self.record_crash(crash)
            elif self.restarts > 1:
                # If two configs killed the child, others will: the next process imports meanwhile.
                self._spare = self._start()
        return self._session

    def record_crash(self, crash: ChildCrash) -> None:
        """Count a crash that no candidate is charged with.

        Raises:
            MeasureError: there were too many in a row.
        """
        self._session, self.state.best = None, None  # the best so far may be what kills
        self._crashes += 1
        if self._crashes >= _MOST_CRASHES:
            where = "" if self._gpu is None else f" on GPU {self._gpu}"
            raise MeasureError(
                f"the process that times{where} died {self._crashes} times in a row while no new "
                f"config ran; the last one: {crash.failure.detail}"
            )

    def stop(self) -> None:
        """Kill the child and start no other; another thread may wait for its answer."""
        self._closed = True
        if (session := self._session) is not None:
            session.stop()

    def close(self) -> None:
        """Close the pipes of the child, after `stop`."""
        for started in (self._session, self._spare):
            if started is not None:
                started.close()

    def _request(
        self, session: ChildSession, verb: str, described: Sequence[Any]
    ) -> dict[str, Any] | ChildCrash:
        limit_s = self._setup.run_timeout_s + self._shared.nbytes / _COMPARED_BYTES_PER_S
        limit_s += self._setup.policy.warmup_us * 1e-6
        if session.fresh:
            limit_s *= 2  # the context is made, and Triton's launcher is built
            if self._setup.checks.reference is not None:
                limit_s = max(limit_s, _USER_S)
        if self._setup.do_bench is not None:
            limit_s = max(limit_s, _USER_S)
        return session.ask(self.configs.request(verb, described), limit_s)

    def _warm_up_child(self, session: ChildSession) -> ChildCrash | None:
        """Open a child and replay the known state; return how it died of that, if it did."""
        arguments = self._shared.to_json()
        opening: dict[str, Any] = {"do": "open", "path": sys.path, "arguments": arguments}
        crash = session.open({**opening, **self._settings}, self._shared.nbytes / _COPY_BYTES_PER_S)
        if crash is not None:
            return crash
        self.device = session.device
        for verb, number in self.state.warmup_requests():
            described = self.configs.describe(number)
            if not isinstance(described, Failure):
                answer = self._request(session, verb, [described])
                if isinstance(answer, ChildCrash):
                    return answer
        return None

    def _start(self) -> ChildSession:
        variables = environment(self._gpu)
        return ChildSession(Child(self.command, variables, (self._shared.file,)))
