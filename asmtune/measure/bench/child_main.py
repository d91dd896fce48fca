"""Main program of the process that times: requests on stdin, outcomes on stdout.

Run as `python -m asmtune.measure.bench.child_main` and kept. It never imports the user's kernel:
binaries and the bytes of the arguments come from its parent. It announces each config before it
runs, so that the parent knows which one did not return.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from asmtune.base.child import die_with_parent, import_like_parent, own_stdout
from asmtune.base.errors import AsmtuneError, InputError
from asmtune.compile.load import LoadedLaunch
from asmtune.core.alternatives import calls_in_race
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import unpack_arguments
from asmtune.measure.bench.base import TimingSetup
from asmtune.measure.bench.trials import (
    BenchGpu,
    DeviceLostError,
    LoadableConfig,
    Trials,
)
from asmtune.triton_api.launching import allocating


class Service:
    """Answers a bench's requests on one GPU, which the first request opens."""

    def __init__(self, make_machine: Callable[[], BenchGpu], out: TextIO) -> None:
        self._make_machine = make_machine
        self._out = out
        self._machine: BenchGpu
        self._setup: TimingSetup
        self._trials: Trials
        self._path: Sequence[str] = ()
        self._arguments: dict[str, Any] = {}
        self._hooks: dict[str, Callable[..., Any]] = {}
        self._numbers: dict[Config, int] = {}

    def serve(self, lines: TextIO) -> None:
        """Answer each request until the parent hangs up or the device is lost."""
        self._say({"ready": True})
        for line in lines:
            request = json.loads(line)
            work = self._open if request["do"] == "open" else self._contest
            try:
                answer = guarded("open", lambda: work(request))  # noqa: B023 - called at once
            except DeviceLostError as error:
                self._say({"lost": self._numbers.get(error.config), "detail": error.detail})
                return
            except AsmtuneError as error:
                answer = {"refused": str(error), "input": isinstance(error, InputError)}
            if isinstance(answer, Failure):
                answer = {"refused": _refusal(request["do"], answer), "input": False}
            self._say(answer)

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._path = request["path"]
        if request["functions"]:
            import_like_parent(self._path)
        self._setup = setup = messages.setup_of(request["setup"])
        self._machine = self._make_machine()
        self._arguments = unpack_arguments(request["arguments"])
        self._trials = Trials(setup, self._arguments, self._machine, self._announce)
        return {"device": self._machine.name}

    def _contest(self, request: Mapping[str, Any]) -> dict[str, Any]:
        candidates = [self._candidate(candidate) for candidate in request["candidates"]]
        if request["do"] == "begin":
            outcomes = [self._trials.begin(*candidates)]
        else:
            contest = {"trial": self._trials.trial, "final": self._trials.final}[request["do"]]
            outcomes = contest(candidates)
        reference = self._trials.reference
        return {
            "outcomes": [messages.describe_result(result) for _, result in outcomes],
            "reference": None if reference is None else self._numbers[reference],
            "notes": list(self._trials.notes),
        }

    def _candidate(self, message: Mapping[str, Any]) -> LoadableConfig:
        hook = self._hook(message["hook"])
        sent: messages.SentCandidate = messages.unpickled(message["sent"], "a config")
        config = sent.config(hook)
        self._numbers[config] = message["number"]
        values = sent.launch_values(self._arguments)

        def load() -> LoadedLaunch:
            if config.alternative is None:
                launch = self._machine.launch(sent.binary, values, hook)
            else:
                function = self._setup.alternatives[config.alternative]
                run, complete = calls_in_race(function, sent.parameters, self._arguments)
                launch = LoadedLaunch(lambda: None, run, complete=complete)
            return self._setup.hooks.around(launch, values)

        return LoadableConfig(config, load, sent.slots)

    def _hook(self, text: str | None) -> Callable[..., Any] | None:
        """Load a config's hook, once for all configs that have it."""
        if text is None:
            return None
        if text not in self._hooks:
            import_like_parent(self._path)
            self._hooks[text] = messages.unpickled(text, "a config's pre_hook")
        return self._hooks[text]

    def _announce(self, config: Config) -> None:
        self._say({"running": self._numbers[config]})

    def _say(self, message: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


def _refusal(verb: str, failure: Failure) -> str:
    """Describe in one line why a request failed whatever the config, and what to do."""
    message = failure.detail.strip().splitlines()[0]
    hint = "free memory of the GPU" if failure.kind == "memory" else "see the message"
    return (
        f"the process that times failed at {verb!r} ({message}): {hint}, or tune with isolate=False"
    )


def run(make_machine: Callable[[], BenchGpu]) -> None:
    """Serve a bench over this process's pipes until the bench hangs up.

    Output of kernels is dropped; stderr goes to the parent's log.
    """
    die_with_parent()
    Service(make_machine, own_stdout()).serve(sys.stdin)
    # Freeing a broken context's memory would raise in every destructor.
    os._exit(0)


def main() -> None:
    """Serve on the first GPU that this process sees."""
    # A user's allocator is not known here.
    with allocating():
        run(BenchGpu)


if __name__ == "__main__":
    main()
