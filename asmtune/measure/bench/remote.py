"""GPUs on other hosts: `ssh://host`, `dask://scheduler`, `ray://head`.

On each host an agent (`remote_main`) runs the processes that time. A link carries its messages:
the pipes of an `ssh` process, or an actor on a worker of a Dask or Ray cluster. Messages are JSON
as between a bench and a child of its own host; clusters get them as bytes.
"""

from __future__ import annotations

import atexit
import base64
import itertools
import os
import platform
import queue
import threading
import time
import warnings
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from asmtune.base.child import ChildEnd, ChildGoneError
from asmtune.base.errors import InputError, MeasureError
from asmtune.base.fingerprint import canonical, versions
from asmtune.base.text import shortened, user_stacklevel
from asmtune.compile.sandbox import CompilerLostError, Starter, elsewhere
from asmtune.core.hardware.driver import DeviceAttributes
from asmtune.measure.bench.argument_codec import SharedArguments
from asmtune.measure.bench.links import RemoteAddress, open_links
from asmtune.measure.bench.remote_main import BEAT_S

SILENCE_S: Final = 60.0
"""Seconds without a sign of life after which either end takes the other for dead."""

_START_S: Final = 180.0  # a host that wakes up, and PyTorch on a cold network disk
_END_S: Final = 90.0  # the driver takes seconds to end a process whose GPU hangs
_PATIENCE_S: Final = 5.0
_CHUNK: Final = 1 << 22


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


class RemoteWarning(UserWarning):
    """The two ends of a connection differ in something that does not stop tuning."""


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
        self._lost = ""
        self._end: ChildEnd | None = None
        self._dead = threading.Event()
        # It exists before the reader does, which may get its answer.
        described = self._queue("probe", 0)
        threading.Thread(target=self._read, name="asmtune-remote", daemon=True).start()
        threading.Thread(target=self._beat, name="asmtune-beat", daemon=True).start()
        self._send({"do": "probe"})
        self.about = self._answer(described, _START_S)["probe"]

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
                if held[1] >= 0 and not self._lost:
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
        self._answer(answers, _START_S)
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
        try:
            # Messages that came before the loss still count.
            answer = answers.get(timeout=0 if self._lost else timeout_s)
        except queue.Empty:
            if self._lost:
                raise self.lost_error() from None
            raise TimeoutError from None
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
        heard = time.monotonic()
        while True:
            try:
                message = self._link.receive(BEAT_S)
            except TimeoutError:
                if time.monotonic() - heard > SILENCE_S:
                    self._lose(f"nothing was heard of it for {SILENCE_S:g} s")
                    return
                continue
            except ChildGoneError:
                self._lose("")
                return
            heard = time.monotonic()
            for kind in ("child", "file", "probe"):
                if kind in message:
                    number = 0 if kind == "probe" else message[kind]
                    self._queue(kind, number).put(message)

    def _lose(self, reason: str) -> None:
        if reason:
            self._link.stop()  # a thread that is writing to it goes on then
        with self._turn:
            self._end = self._link.kill(0.0 if reason else _PATIENCE_S)
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
            time.sleep(BEAT_S)

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
            TimeoutError: no message came in time.
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
        self._tell_end(0.0)

    def kill(self, patience_s: float = 0.0) -> ChildEnd:
        """End it and everything it started.

        Args:
            patience_s: seconds to wait for a child that is about to end by itself.

        Raises:
            MeasureError: it does not end: its GPU needs to be reset.
        """
        self._tell_end(patience_s)
        while self._end is None:
            try:
                answer = self._host._answer(self._answers, _END_S)
            except HostLostError:  # the agent has killed it, or nothing can
                self._end = ChildEnd(None, "")
            else:
                self._end = ChildEnd(*answer["ended"]) if "ended" in answer else None
        self._host.forget(self._number)
        return self._end

    def log_lines(self, last_bytes: int | None = None) -> list[str]:  # noqa: ARG002 - as `Child`
        """Return nothing: its log stays there."""
        return []

    def _tell_end(self, patience_s: float) -> None:
        if self._told_to_end:
            return
        self._told_to_end = True
        try:
            self._host.tell({"do": "end", "child": self._number, "patience_s": patience_s})
        except HostLostError:
            self._end = ChildEnd(None, "")


@dataclass(frozen=True, eq=False)
class RemoteGpu:
    """One GPU of another host.

    Attributes:
        host: the host.
        index: the GPU's index there.
        attributes: what its driver says of it.
    """

    host: RemoteHost
    index: int
    attributes: DeviceAttributes

    def __str__(self) -> str:
        return f"{self.host.name} GPU {self.index}"

    @property
    def made_with(self) -> dict[str, str]:
        """Return the versions that a config tuned there is stored with."""
        names = ("triton", "torch", "asmtune", "driver")
        return {name: str(self.host.about[name]) for name in names}


@dataclass(frozen=True)
class RemoteCompiler:
    """The compilers of other hosts: their common identity, and how many run at once."""

    identity: str
    jobs: int


def remote_compiler(gpus: Sequence[int | RemoteGpu], place: str) -> RemoteCompiler | None:
    """Return what compiles for GPUs; None for this host.

    Args:
        gpus: GPUs that time.
        place: "home", "remote", or "auto": here if all hosts have this Triton.

    Raises:
        InputError: Triton's versions differ in a way that the place does not allow.
    """
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus if isinstance(gpu, RemoteGpu)))
    own = versions()["triton"]
    listed = {host.name: str(host.about["triton"]) for host in hosts}
    if len(hosts) < len(gpus) and any(not isinstance(gpu, RemoteGpu) for gpu in gpus):
        listed["this host"] = own
    theirs = ", ".join(f"{name}: {version}" for name, version in listed.items())
    if len(set(listed.values())) > 1:
        raise InputError(f"hosts with different versions of Triton ({theirs}): install the same")
    is_same = own in listed.values()
    if not is_same and place == "home":
        raise InputError(
            f"Triton is {own} here, and not there ({theirs}): install the same, or compile there: "
            "--compile-at remote"
        )
    if place == "home" or (is_same and place == "auto"):
        return None
    if not is_same:
        text = f"Triton is {own} here, and not there ({theirs}): configs are compiled there"
        warnings.warn(text, RemoteWarning, stacklevel=user_stacklevel())
    identity = canonical(["remote", *(host.about["compiler"] for host in hosts)])
    elsewhere[identity] = _compiler_starter(hosts)
    return RemoteCompiler(identity, sum(int(host.about["cpus"]) for host in hosts))


def _compiler_starter(hosts: Sequence[RemoteHost]) -> Starter:
    turns = itertools.count()

    def start(arguments: Sequence[str], variables: Mapping[str, str | None]) -> RemoteChild:
        """Start a compiler on the next host that is not lost."""
        left = [host for host in hosts if not host.is_lost]
        if not left:
            raise hosts[0].lost_error()
        # Paths of tools here mean nothing there.
        own = {name: text for name, text in variables.items() if not name.endswith("_PATH")}
        host = left[next(turns) % len(left)]
        return host.start("compile", variables=own, arguments=arguments)

    return start


@dataclass
class _Opened:
    """Hosts of one address, opened once a process; `lost` counts those that were lost."""

    hosts: list[RemoteHost] = field(default_factory=list)
    lost: bool = False


_opened: dict[str, _Opened] = {}
_opening = threading.Lock()


def remote_gpus(text: str) -> list[RemoteGpu]:
    """Return the GPUs of an address; connect first, or again if the connection was lost.

    Raises:
        InputError: the address is malformed, or nothing there can time; says what to do.
        HostLostError: it was connected before, and cannot be any more.
    """
    address = RemoteAddress.parse(text)
    with _opening:
        opened = _opened.setdefault(text, _Opened())
        if any(host.is_lost for host in opened.hosts) or not opened.hosts:
            opened.lost = opened.lost or bool(opened.hosts)
            _close(opened)
            try:
                opened.hosts = _connect(address)
            except InputError as error:
                if opened.lost:
                    raise HostLostError(f"{error} (it was lost before)") from error
                raise
        return [gpu for host in opened.hosts for gpu in _gpus_of(host, address)]


def close_hosts() -> None:
    """End all agents of this process."""
    for opened in _opened.values():
        _close(opened)
    _opened.clear()


atexit.register(close_hosts)


def _close(opened: _Opened) -> None:
    for host in opened.hosts:
        host.close()
    opened.hosts = []


def _connect(address: RemoteAddress) -> list[RemoteHost]:
    hosts: list[RemoteHost] = []
    try:
        for name, link in open_links(address, str(SILENCE_S)):
            hosts.append(_agent(address, name, link))
            _check(hosts[-1])
    except InputError:
        _close(_Opened(hosts))
        raise
    return hosts


def _agent(address: RemoteAddress, name: str, link: Link) -> RemoteHost:
    try:
        return RemoteHost(name, link)
    except TimeoutError:
        link.stop()
        raise InputError(
            f"{name}: no answer within {_START_S:g} s: check that the host is up"
        ) from None
    except HostLostError as error:
        raise InputError(f"{name}: {address.advice(error.end)}") from None


def _check(host: RemoteHost) -> None:
    """Check that an agent is of this version, and tell what else differs.

    Raises:
        InputError: asmtune or Triton cannot be used there, or asmtune is another one.
    """
    about, here = host.about, versions()
    if "problem" in about:
        raise InputError(
            f"{host.name}: its PyTorch or Triton cannot be used ({about['problem']}): install "
            f"triton=={here['triton']} and torch there, or name another python: ?python=PATH"
        )
    if about["asmtune"] != here["asmtune"]:
        raise InputError(
            f"{host.name}: asmtune {about['asmtune']} there, {here['asmtune']} here: install the "
            "same at both ends"
        )
    own = platform.python_version()
    if _minor(about["python"]) != _minor(own):
        text = f"{host.name}: Python {about['python']} there, {own} here"
        text += ": functions of yours, such as hooks, cannot be sent"
        warnings.warn(text, RemoteWarning, stacklevel=user_stacklevel())


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _gpus_of(host: RemoteHost, address: RemoteAddress) -> list[RemoteGpu]:
    known = host.about["gpus"]
    if not known:
        raise InputError(
            f"{host.name}: no CUDA GPU there that PyTorch can use: choose another host, or check "
            "`nvidia-smi` and CUDA_VISIBLE_DEVICES there"
        )
    chosen: Sequence[int] = address.gpus or range(len(known))
    if address.scheme != "ssh":
        chosen = (0,)  # a cluster gives each worker a first GPU of its own
    missing = [index for index in chosen if index >= len(known)]
    if missing:
        raise InputError(f"{host.name}: no GPU {missing[0]}: there are {len(known)}, from 0 on")
    where = shortened(host.name)
    return [RemoteGpu(host, i, DeviceAttributes.from_json(known[i], where)) for i in chosen]
