"""One child that times, from its start to its end, and who ran when it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.records.artifacts import Failure
from asmtune.measure.bench.process import Child, ChildGoneError, Started

_START_S: Final = 120.0  # importing PyTorch takes 2 s, and a minute on a cold network disk
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class Death:
    """How a child ended.

    Attributes:
        culprit: number of the config that ran; None where none did.
        failure: what that config is charged with.
    """

    culprit: int | None
    failure: Failure


class Conversation:
    """Asks one child, until it dies.

    Attributes:
        device: name of its GPU, once it is open.
        fresh: whether it has not contested anything yet.

    Args:
        how: starts the child.
    """

    def __init__(self, how: Started) -> None:
        self.device = ""
        self.fresh = True
        self._child = Child(how)

    def open(self, opening: Mapping[str, Any], copy_s: float) -> Death | None:
        """Gives the child what it times; how it died, if it did.

        Args:
            opening: the request.
            copy_s: seconds that it may take for the arguments, beside those for its start.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: it finds no GPU, or no room on it.
        """
        answer = self._answer(None, _START_S)
        if not isinstance(answer, Death):
            answer = self.ask(opening, _START_S + copy_s)
        if isinstance(answer, Death):
            return answer
        self.device = answer["device"]
        return None

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | Death:
        """The answer to a request, or how the child died of it.

        Args:
            request: what is asked.
            limit_s: seconds for each step that it tells of.

        Raises:
            InputError: a function of the user's cannot be loaded there.
            MeasureError: the child cannot do what is asked of it, whatever the config.
        """
        try:
            self._child.send(request)
        except ChildGoneError:
            return self._gone(None)
        answer = self._answer(None, limit_s)
        if isinstance(answer, Death):
            return answer
        if "refused" in answer:
            kind = InputError if answer["input"] else MeasureError
            raise kind(answer["refused"])
        if "outcomes" in answer:
            self.fresh = False
        return answer

    def stop(self) -> None:
        """Ends the child; another thread may wait for its answer, and gets its death."""
        self._child.stop()

    def close(self) -> None:
        """Ends the child and gives its pipes back."""
        self._child.kill()

    def _answer(self, running: int | None, limit_s: float) -> dict[str, Any] | Death:
        while True:
            try:
                message = self._child.receive(limit_s)
            except TimeoutError:
                self._child.kill()
                detail = f"no end after {limit_s:.3g} s: the process that timed it was ended"
                return Death(running, Failure("launch", "timeout", detail))
            except ChildGoneError:
                return self._gone(running)
            if "lost" in message:
                self._child.kill()
                return Death(message["lost"], Failure("launch", "fault", message["detail"]))
            if "running" not in message:
                return message
            running = message["running"]

    def _gone(self, running: int | None) -> Death:
        detail = f"the process that timed it {self._child.kill(_PATIENCE_S)}"
        return Death(running, Failure("launch", "crash", detail))
