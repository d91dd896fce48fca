"""Processes on other hosts: `RemoteHost` talks to the agent there.

On each host an agent (`remote_main`) runs the processes that time. A link carries its messages:
the pipes of an `ssh` process, or an actor on a worker of a Dask or Ray cluster. Messages are JSON
as between a bench and a child of its own host; clusters get them as bytes.
"""

from __future__ import annotations

import base64
import itertools
import os
import queue
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from asmtune.base.child import ChildEnd, ChildGoneError
from asmtune.base.errors import MeasureError
from asmtune.compile.sandbox import CompilerLostError
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.remote_main import BEATS

SILENCE_S: Final = 60.0
"""Seconds without a sign of life after which either end takes the other for dead."""

START_S: Final = 180.0  # a host that wakes up, and PyTorch on a cold network disk
_END_S: Final = 90.0  # the driver takes seconds to end a process whose GPU hangs
_PATIENCE_S: Final = 5.0
_CHUNK: Final = 1 << 22
_KINDS: Final = frozenset({"child", "file", "probe"})


class Link(Protocol):
    """Carries JSON messages to an agent and back; `base.child.Child` is one."""

    def send(self, message: Mapping[str, Any]) -> None: ...  # noqa: D102

    def receive(self, timeout_s: float) -> dict[str, Any]: ...  # noqa: D102

    def stop(self) -> None: ...  # noqa: D102

    def kill(self, patience_s: float = 0.0) -> ChildEnd: ...  # noqa: D102


class HostLostError(MeasureError, CompilerLostError):
    """The connection to a host is lost; no config is to blame.

    Attributes:
        end: how the link ended.
    """

    def __init__(self, message: str, end: ChildEnd | None = None) -> None:
        self.end = end or ChildEnd(None, "")
        super().__init__(message)


class RemoteHost:
    """The agent on one host, or on one worker of a cluster.

    Attributes:
        name: the address by which messages name it.
        about: its versions and GPUs, as `remote_main.probe_host` describes them.

    Args:
        link: carries messages to an agent that was just started.

    Raises:
        InputError: no agent starts there, or it is of another version.
    """

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self.about: Mapping[str, Any] = {}
        self._link = link
        self._turn = threading.Lock()
        self._uploads = threading.Lock()
        self._numbers = itertools.count()
        self._answers: dict[tuple[str, int], queue.SimpleQueue[Mapping[str, Any] | None]] = {}
        self._files: dict[SharedArguments, list[int]] = {}
        self._lost, self._is_greeted, self._noise = "", False, ""
        self._end: ChildEnd | None = None
        self._dead = threading.Event()
        self._silence_s, self._heard = START_S, time.monotonic()
        self._beat_s = SILENCE_S / BEATS
        # It exists before the reader does, which may get its answer.
        described = self._queue("probe", 0)
        threading.Thread(target=self._read, name="asmtune-remote", daemon=True).start()
        threading.Thread(target=self._beat, name="asmtune-beat", daemon=True).start()
        self._send({"do": "probe"})
        self.about = self._answer(described, START_S)["probe"]
        self._silence_s = SILENCE_S

    @property
    def is_lost(self) -> bool:
        """Return whether nothing can be asked of it any more."""
        return bool(self._lost)

    def start(
        self,
        program: str,
        shared: SharedArguments | None = None,
        *,
        gpu: int | None = None,
        variables: Mapping[str, str | None] | None = None,
        arguments: Sequence[str] = (),
    ) -> RemoteChild:
        """Start a process there: "time" or "compile".

        Args:
            program: what it is to do.
            shared: the arguments that it times on; sent once for all its processes.
            gpu: index of the GPU that it is to see; None for all of them.
            variables: of its environment; None takes one away.
            arguments: of its command line.

        Raises:
            MeasureError: it cannot be started, or the host is lost.
        """
        number, file = next(self._numbers), None if shared is None else self._file(shared)
        child = RemoteChild(self, number, self._queue("child", number))
        what = {"program": program, "gpu": gpu, "file": file, "arguments": list(arguments)}
        self._send({"do": "start", "child": number, "variables": dict(variables or {}), **what})
        return child

    def hold(self, shared: SharedArguments) -> None:
        """Keep arguments there until `release` was called as often as this."""
        with self._uploads:
            self._files.setdefault(shared, [0, -1])[0] += 1

    def release(self, shared: SharedArguments) -> None:
        """Give up arguments; the last one that held them frees the host's memory."""
        with self._uploads:
            held = self._files[shared]
            held[0] -= 1
            if held[0] == 0:
                del self._files[shared]
                if held[1] >= 0:
                    with suppress(HostLostError):
                        self._send({"do": "drop", "file": held[1]})

    def close(self) -> None:
        """End the agent and all that it has started."""
        self._lost = self._lost or "closed"
        self._link.stop()

    def file_number(self, shared: SharedArguments) -> int:
        """Return the number by which the agent knows arguments."""
        return self._files[shared][1]

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message about a child.

        Raises:
            HostLostError: the host is lost.
        """
        self._send(message)

    def lost_error(self) -> HostLostError:
        """Return the error of a host that is lost."""
        return HostLostError(
            f"{self.name}: lost ({self._lost}); what was timed is kept: look after the host, and "
            "give the same command again to go on from there",
            self._end,
        )

    def _file(self, shared: SharedArguments) -> int:
        """Send arguments that the host does not have yet; return their number."""
        with self._uploads:
            held = self._files[shared]
            if held[1] < 0:
                held[1] = self._upload(shared)
            return held[1]

    def _upload(self, shared: SharedArguments) -> int:
        number = next(self._numbers)
        answers = self._queue("file", number)
        self._send({"do": "file", "file": number, "nbytes": shared.nbytes})
        try:
            self._answer(answers, START_S)
        except TimeoutError:
            raise MeasureError(
                f"{self.name}: no room for {shared.nbytes:,} bytes of arguments was made there "
                f"within {START_S:g} s: look at the host's disk and memory"
            ) from None
        for at in range(0, shared.nbytes, _CHUNK):
            data = os.pread(shared.file, min(_CHUNK, shared.nbytes - at), at)
            text = base64.b64encode(zlib.compress(data, 1)).decode()
            self._send({"do": "bytes", "file": number, "at": at, "zlib": text})
        return number

    def _queue(self, kind: str, number: int) -> queue.SimpleQueue[Mapping[str, Any] | None]:
        return self._answers.setdefault((kind, number), queue.SimpleQueue())

    def _answer(
        self, answers: queue.SimpleQueue[Mapping[str, Any] | None], timeout_s: float
    ) -> Mapping[str, Any]:
        """Return the next answer of a queue.

        Raises:
            TimeoutError: none came in time.
            HostLostError: none will come.
            MeasureError: the agent refuses; says why.
        """
        while True:
            try:
                # Messages that came before the loss still count.
                answer = answers.get(timeout=0 if self._lost else timeout_s)
                break
            except queue.Empty:
                if self._lost:
                    raise self.lost_error() from None
                timeout_s = 2 * self._beat_s
                if time.monotonic() - self._heard < timeout_s:
                    raise TimeoutError from None
                # Its line may be to blame, and what was asked long done.
        if answer is None:
            raise self.lost_error()
        if "refused" in answer:
            raise MeasureError(f"{self.name}: {answer['refused']}")
        return answer

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._turn:
            if not self._lost:
                # A link that no longer takes messages ends: the reader finds out why.
                with suppress(ChildGoneError):
                    self._link.send(message)
                    return
                self._link.stop()
        self._dead.wait(_END_S)
        raise self.lost_error()

    def _read(self) -> None:
        while True:
            try:
                self._take(self._link.receive(self._beat_s))
            except TimeoutError:
                if time.monotonic() - self._heard > self._silence_s:
                    self._lose(f"nothing was heard of it for {self._silence_s:g} s")
                    return
            except ChildGoneError:
                self._lose("")
                return
            except ValueError as error:
                # Before its first word, a shell's settings may print.
                self._noise = getattr(error, "doc", "").strip() or self._noise
                if self._is_greeted:
                    self._lose("what it says is no message of asmtune")
                    return

    def _take(self, message: Mapping[str, Any]) -> None:
        """Give a message to those who wait for it.

        Raises:
            ValueError: it is no message.
        """
        if not message.keys() & {"beat", *_KINDS}:
            raise ValueError
        self._is_greeted, self._heard = True, time.monotonic()
        for kind in _KINDS & message.keys():
            number = 0 if kind == "probe" else message[kind]
            if (answers := self._answers.get((kind, number))) is not None:
                answers.put(message)

    def _lose(self, reason: str) -> None:
        if reason:
            self._link.stop()  # a thread that is writing to it goes on then
        with self._turn:
            end = self._link.kill(0.0 if reason else _PATIENCE_S)
            self._end = replace(end, last_line=end.last_line or reason or self._noise[:300])
            self._lost = self._lost or reason or f"its connection {self._end}"
        self._dead.set()
        for answers in list(self._answers.values()):
            answers.put(None)

    def _beat(self) -> None:
        while not self._lost:
            try:
                self._send({"do": "beat"})
            except MeasureError:
                return
            time.sleep(self._beat_s)

    def forget(self, number: int) -> None:
        """Drop the queue of a child that has ended."""
        self._answers.pop(("child", number), None)


class RemoteChild:
    """A process on another host, in the place of a `base.child.Child`."""

    def __init__(
        self, host: RemoteHost, number: int, answers: queue.SimpleQueue[Mapping[str, Any] | None]
    ) -> None:
        self._host = host
        self._number = number
        self._answers = answers
        self._gone = False
        self._end: ChildEnd | None = None
        self._told_to_end = False

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended, as far as is known here."""
        return not self._gone and not self._told_to_end

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message.

        Raises:
            HostLostError: its host is lost.
        """
        self._host.tell({"do": "send", "child": self._number, "message": message})

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return its next message.

        Raises:
            TimeoutError: no message came in time, although its host is heard.
            ChildGoneError: no message will come.
            HostLostError: its host is lost.
        """
        answer = self._host._answer(self._answers, timeout_s)
        if "message" not in answer:
            self._gone = True
            raise ChildGoneError
        message: dict[str, Any] = answer["message"]
        return message

    def stop(self) -> None:
        """Kill it; another thread may be waiting in `receive`."""
        with suppress(HostLostError):
            self._tell_end(0.0)

    def kill(self, patience_s: float = 0.0) -> ChildEnd:
        """End it and everything it started.

        Args:
            patience_s: seconds to wait for a child that is about to end by itself.

        Raises:
            HostLostError: its host is lost; nothing tells how it ended.
            MeasureError: it does not end: its GPU needs to be reset.
        """
        try:
            self._tell_end(patience_s)
            while self._end is None:
                answer = self._host._answer(self._answers, _END_S)
                self._end = ChildEnd(*answer["ended"]) if "ended" in answer else None
        except HostLostError:
            self._end = ChildEnd(None, "")  # the agent has killed it, or nothing can
            raise
        except TimeoutError:
            raise MeasureError(
                f"{self._host.name}: no word within {_END_S:g} s that a process has ended: look "
                "after the host"
            ) from None
        self._host.forget(self._number)
        return self._end

    def log_lines(self, last_bytes: int | None = None) -> list[str]:  # noqa: ARG002 - as `Child`
        """Return nothing: its log stays there."""
        return []

    def _tell_end(self, patience_s: float) -> None:
        if not self._told_to_end:
            self._told_to_end = True
            self._host.tell({"do": "end", "child": self._number, "patience_s": patience_s})
