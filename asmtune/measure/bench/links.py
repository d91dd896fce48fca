"""Addresses of GPUs elsewhere, and the links to their agents: ssh, Dask and Ray.

    ssh://[user@]host[:port][?python=PATH][&gpu=0&gpu=1]
    dask://scheduler[:port][?python=PATH][&workers=2]
    ray://head[:port][?python=PATH][&workers=2]

By ssh the agent's pipes are those of the `ssh` process. On a cluster a `Relay`, an actor on a
worker, owns the agent and is asked for what it says.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from asmtune.base.child import Child, ChildEnd, ChildGoneError, module_command
from asmtune.base.errors import InputError, MissingPackageError
from asmtune.base.fingerprint import version_of
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure

_AGENT: Final = "asmtune.measure.bench.remote_main"
_PORTS: Final = {"ssh": None, "dask": 8786, "ray": 10001}
_FORMS: Final = "ssh://user@host, dask://scheduler:8786 or ray://head:10001"
_CLUSTER: Final = ("python", "workers")
_QUERIES: Final = {"ssh": ("python", "gpu"), "dask": _CLUSTER, "ray": _CLUSTER}
# A name that begins with "-" would be an option of ssh.
_NAME: Final = re.compile(r"[\w.:%][\w.:%-]*")
_SSH: Final = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
    *("-a", "-x", "-o", "ClearAllForwardings=yes"),  # the host gets no key and no port of here
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONNECT_S: Final = 20
_POLL_S: Final = 1.0
_CALL_S: Final = 60.0


@dataclass(frozen=True)
class RemoteAddress:
    """An address of GPUs elsewhere.

    Attributes:
        text: the address as it is shown, without its options.
        scheme: "ssh", "dask" or "ray".
        host: the host, the scheduler or the head.
        port: its port; None for that of ssh's own settings.
        user: the user to log in as; "" for that of ssh's own settings.
        python: the Python there; "" for the usual one.
        gpus: indices of the host's GPUs; all of them if empty.
        workers: workers of a cluster at most; None for all that have a GPU.
    """

    text: str
    scheme: str
    host: str
    port: int | None = None
    user: str = ""
    python: str = ""
    gpus: tuple[int, ...] = ()
    workers: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            InputError: it is malformed; says how it should be.
        """
        try:
            url = urlsplit(text)
        except ValueError as error:
            raise InputError(f"devices: {shortened(text)!r}: {error}; give {_FORMS}") from None
        shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
        if url.scheme not in _PORTS:
            hint = did_you_mean(url.scheme, _PORTS)
            raise InputError(f"devices: unknown scheme {url.scheme!r}{hint}: give {_FORMS}")
        if url.password is not None:
            raise InputError(f"devices: {shown}: passwords are not taken; use a key of ssh")
        if not url.hostname:
            raise InputError(f"devices: {shortened(text)!r} names no host: give {_FORMS}")
        user = url.username or ""
        if not all(_NAME.fullmatch(name) for name in (url.hostname, *([user] if user else ()))):
            raise InputError(f"devices: {shortened(text)!r}: no name of a host: give {_FORMS}")
        if url.path.strip("/") or url.fragment:
            raise InputError(f"devices: {shown}: an address has no path; give {_FORMS}")
        port = _port(url, shown) or _PORTS[url.scheme]
        return cls(shown, url.scheme, url.hostname, port, user, **_options(url, shown))

    def agent_command(self, silence_s: str) -> str:
        """Return the command line that starts an agent, for a shell on the host."""
        python = self.python or "python3"
        home, rest = ("~/", python[2:]) if python.startswith("~/") else ("", python)
        return f"exec {home}{shlex.quote(rest)} -P -m {_AGENT} {silence_s}"

    def advice(self, end: ChildEnd) -> str:
        """Say why no agent has started, by how its link ended, and what to do."""
        line = end.last_line or str(end)
        own = version_of("asmtune")
        if "No module named" in line and "asmtune" in line:
            return (
                f"no asmtune there, or another version ({line}): install asmtune {own} there, or "
                "name the python that has it: ?python=/opt/venv/bin/python"
            )
        if end.code in (126, 127) or "nknown option" in line or "No such file" in line:
            return (
                f"its python does not start ({line}): name one of Python 3.11 or newer that has "
                "asmtune: ?python=/opt/venv/bin/python"
            )
        if end.code == 255 and self.scheme == "ssh":
            destination = f"{self.user}@{self.host}" if self.user else self.host
            return f"ssh cannot connect ({line}): make `ssh {destination} true` work without asking"
        return f"its agent does not start ({line}): run `{self.agent_command('60')}` there"


def _port(url: SplitResult, shown: str) -> int | None:
    try:
        return url.port
    except ValueError:
        raise InputError(f"devices: {shown}: a port is a number from 1 to 65535") from None


def _options(url: SplitResult, shown: str) -> dict[str, Any]:
    given = parse_qs(url.query, keep_blank_values=True)
    known = _QUERIES[url.scheme]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            f"devices: {shown}: unknown option {shortened(unknown[0])!r}: the options of "
            f"{url.scheme} are {', '.join(known)}"
        )
    numbers = [*given.get("gpu", ()), *given.get("workers", ())]
    if not all(number.isdecimal() for number in numbers) or given.get("workers") == ["0"]:
        raise InputError(f"devices: {shown}: gpu=0&gpu=1 are indices, and workers=2 a number")
    options: dict[str, Any] = {"gpus": tuple(dict.fromkeys(map(int, given.get("gpu", ()))))}
    options["workers"] = int(given["workers"][-1]) if "workers" in given else None
    options["python"] = given.get("python", [""])[-1]
    return options


def open_links(address: RemoteAddress, silence_s: str) -> Iterator[tuple[str, Any]]:
    """Start the agents of an address; yield the name of each host with the link to its agent.

    Raises:
        InputError: it cannot be reached; says what to do.
    """
    openers = {"ssh": _ssh, "dask": _dask, "ray": _ray}
    yield from openers[address.scheme](address, silence_s)


def _ssh(address: RemoteAddress, silence_s: str) -> Iterator[tuple[str, Child]]:
    port = () if address.port is None else ("-p", str(address.port))
    place = f"{address.user}@{address.host}" if address.user else address.host
    try:
        yield address.text, Child((*_SSH, *port, "--", place, address.agent_command(silence_s)))
    except FileNotFoundError:
        raise InputError(
            f"{address.text}: there is no `ssh` on PATH here: install OpenSSH's client"
        ) from None


class Relay:
    """Owns an agent, run by a Python or by the worker's own, on a worker of a cluster."""

    def __init__(self, python: str, silence_s: str) -> None:
        command = module_command(_AGENT, silence_s)
        if python:
            command = (python, "-P", "-m", _AGENT, silence_s)
        self._child = Child(command)

    def send(self, message: bytes) -> None:
        """Send the agent a message; a dead one is told by `receive`."""
        guarded("send", lambda: self._child.send(json.loads(message)))

    async def receive(self, timeout_s: float) -> bytes:
        """Return what it has said since, as lines of JSON; how it ended, if it did."""
        return await asyncio.to_thread(self._receive, timeout_s)

    def stop(self) -> None:
        """Kill the agent; its processes end with it."""
        self._child.stop()

    def _receive(self, timeout_s: float) -> bytes:
        messages: list[dict[str, Any]] = []
        while len(messages) < 64:
            try:
                messages.append(self._child.receive(0.0 if messages else timeout_s))
            except ValueError:  # printed before the agent's first word
                continue
            except TimeoutError:
                break
            except ChildGoneError:
                end = self._child.kill(_POLL_S)
                messages.append({"agent": [end.code, end.last_line]})
                break
        return b"\n".join(json.dumps(message).encode() for message in messages)


class ClusterLink:
    """Carries messages by calls of a `Relay`; the cluster's own errors end it.

    Args:
        call: calls a method of the relay: name, arguments, seconds to wait.
        release: gives the actor back to the cluster.
    """

    def __init__(
        self, call: Callable[[str, tuple[Any, ...], float], Any], release: Callable[[], Any]
    ) -> None:
        self._call = call
        self._release = release
        self._waiting: deque[dict[str, Any]] = deque()
        self._end: ChildEnd | None = None
        self._stopped = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message.

        Raises:
            ChildGoneError: the worker is gone.
        """
        self._ask("send", json.dumps(message).encode())

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            TimeoutError: no message came in time.
            ChildGoneError: no message will come.
        """
        if not self._waiting:
            lines = self._ask("receive", min(timeout_s, _POLL_S))
            self._waiting += [json.loads(line) for line in lines.splitlines()]
        if not self._waiting:
            raise TimeoutError
        message = self._waiting.popleft()
        if "agent" in message:
            self._end = ChildEnd(*message["agent"])
            raise ChildGoneError
        return message

    def stop(self) -> None:
        """End the agent, if its worker can still be asked."""
        if not self._stopped:
            self._stopped = True
            if self._end is None:
                guarded("stop", lambda: self._call("stop", (), _POLL_S))
            guarded("stop", self._release)

    def kill(self, patience_s: float = 0.0) -> ChildEnd:  # noqa: ARG002 - as `Child`
        """End the agent; say how it or its worker ended."""
        self.stop()
        return self._end or ChildEnd(None, "")

    def _ask(self, method: str, *arguments: Any) -> Any:
        if self._stopped:
            raise ChildGoneError
        answer = guarded(method, lambda: self._call(method, arguments, _CALL_S))
        if isinstance(answer, Failure):
            self._end = self._end or ChildEnd(None, f"its worker: {_first(answer)}")
            raise ChildGoneError
        return answer


def _first(failure: Failure) -> str:
    """Return a cluster's error in one line: what is missing there, or else its first line."""
    lines = _ESCAPES.sub("", failure.detail).strip().splitlines() or ["no message"]
    missing = (line.strip() for line in lines if "No module named" in line)
    return next(missing, lines[0])[:300]


def _dask(address: RemoteAddress, silence_s: str) -> Iterator[tuple[str, ClusterLink]]:
    try:
        import distributed
    except ImportError:
        raise _missing(address, "dask") from None
    where = f"{address.host}:{address.port}"
    connect: Callable[..., Any] = distributed.Client
    client = guarded("connect", lambda: connect(where, timeout=_CONNECT_S, set_as_default=False))
    if isinstance(client, Failure):
        raise InputError(
            f"{address.text}: no Dask scheduler answers ({_first(client)}): check that one runs "
            "there, and that its versions are those of this machine"
        )
    workers = _dask_workers(client, address)
    futures: list[Any] = []
    for name, resources in workers[: address.workers]:
        future = client.submit(
            Relay,
            address.python,
            silence_s,
            actor=True,
            workers=[name],
            allow_other_workers=False,
            resources=resources,
            pure=False,
        )
        actor = guarded("start", lambda: future.result(timeout=_CALL_S))  # noqa: B023 - at once
        label = f"{address.text} worker {name.rpartition('/')[2]}"
        if isinstance(actor, Failure):
            raise InputError(f"{label}: {_no_relay(actor)}")
        futures.append(future)
        yield label, ClusterLink(_dask_call(client, actor), _dask_release(client, futures, future))


def _dask_workers(client: Any, address: RemoteAddress) -> list[tuple[str, dict[str, int]]]:
    """Return the addresses of the workers that declare a GPU, or of all if none does."""
    resources = guarded("workers", lambda: client.run(_declared_resources))
    if isinstance(resources, Failure):
        raise InputError(f"{address.text}: {_no_relay(resources)}")
    declared = [(name, {"GPU": 1}) for name, own in resources.items() if own.get("GPU", 0) >= 1]
    workers = declared or [(name, {}) for name in resources]
    if not workers:
        raise InputError(f"{address.text}: the scheduler has no worker: start one on a GPU's host")
    return sorted(workers)


def _declared_resources(dask_worker: Any) -> dict[str, float]:
    return dict(dask_worker.state.total_resources)


def _dask_call(client: Any, actor: Any) -> Callable[[str, tuple[Any, ...], float], Any]:
    def call(method: str, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        with client.as_current():  # an actor looks for its client so
            future = getattr(actor, method)(*arguments)
        return future.result(timeout=timeout_s)

    return call


def _dask_release(client: Any, futures: list[Any], future: Any) -> Callable[[], Any]:
    def release() -> None:  # the last one closes the client
        futures.remove(future)
        future.release()
        if not futures:
            client.close(timeout=2)

    return release


def _ray(address: RemoteAddress, silence_s: str) -> Iterator[tuple[str, ClusterLink]]:
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise _missing(address, "ray") from None
    where = f"ray://{address.host}:{address.port}"
    if not ray.is_initialized():
        opened = guarded("connect", lambda: ray.init(where, log_to_driver=False))
        if isinstance(opened, Failure):
            raise InputError(
                f"{address.text}: no Ray head answers ({_first(opened)}): check that one runs "
                "there with this machine's versions of Ray and Python, and that "
                "`pip install 'ray[client]'` was done here"
            )
    count = int(ray.cluster_resources().get("GPU", 0))
    if not count:
        raise InputError(f"{address.text}: the cluster has no GPU: start a node with --num-gpus")
    make = ray.remote(num_gpus=1)(Relay)
    for number in range(min(count, address.workers or count)):
        actor = make.remote(address.python, silence_s)

        def call(
            method: str, arguments: tuple[Any, ...], timeout_s: float, actor: Any = actor
        ) -> Any:
            return ray.get(getattr(actor, method).remote(*arguments), timeout=timeout_s)

        label = f"{address.text} GPU actor {number}"
        ready = guarded("start", lambda: call("receive", (0.0,), _CALL_S))
        if isinstance(ready, Failure):
            ray.kill(actor)
            raise InputError(f"{label}: {_no_relay(ready)}")
        link = ClusterLink(call, partial(ray.kill, actor))
        link._waiting += [json.loads(line) for line in ready.splitlines()]
        yield label, link


def _no_relay(failure: Failure) -> str:
    first = _first(failure)
    if "No module named" in first or "ModuleNotFound" in first:
        own = version_of("asmtune")
        return f"no asmtune there, or another version ({first}): install asmtune {own} there"
    return f"its agent does not start ({first}): see the worker's log"


def _missing(address: RemoteAddress, package: str) -> MissingPackageError:
    return MissingPackageError(
        f"{address.text}: {package} is not installed here: pip install 'asmtune[clusters]'"
    )
