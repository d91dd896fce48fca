"""GPUs of other hosts by address: opened once a process, checked, and their compilers."""

from __future__ import annotations

import atexit
import itertools
import platform
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, versions
from asmtune.base.text import shortened, user_stacklevel
from asmtune.compile.sandbox import Starter, elsewhere
from asmtune.core.hardware.driver import DeviceAttributes
from asmtune.measure.bench import remote
from asmtune.measure.bench.links import RemoteAddress, open_links
from asmtune.measure.bench.remote import HostLostError, Link, RemoteChild, RemoteHost


class RemoteWarning(UserWarning):
    """The two ends of a connection differ in something that does not stop tuning."""


@dataclass(frozen=True, eq=False)
class RemoteGpu:
    """A GPU of another host.

    Attributes:
        host: the host.
        index: the GPU's index there.
        attributes: what its driver says of it.
        uuid: what tells it from all other GPUs; "" if its host does not say.
    """

    host: RemoteHost
    index: int
    attributes: DeviceAttributes
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.host.name} GPU {self.index}"

    def check_functions(self) -> None:
        """Check that functions of the user's can be sent there.

        Raises:
            InputError: the host has another Python, which cannot load them.
        """
        there, own = str(self.host.about["python"]), platform.python_version()
        if _minor(there) != _minor(own):
            raise InputError(
                f"{self}: Python {there} there cannot load functions of yours, such as hooks, of "
                f"Python {own}: install Python {'.'.join(_minor(own))} there, or leave them out"
            )

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
    hosts: dict[str, RemoteHost] = {}
    with ExitStack() as undo:
        for name, link in open_links(address, str(remote.SILENCE_S)):
            undo.callback(link.stop)
            host = _agent(address, name, link)
            undo.callback(host.close)
            _check(host)
            gpu = _gpus_of(host, address)[0].uuid if address.scheme != "ssh" else ""
            if hosts.setdefault(gpu or name, host) is not host:
                text = f"{name}: its GPU is that of {hosts[gpu].name} too, which times alone"
                warnings.warn(text, RemoteWarning, stacklevel=user_stacklevel())
                host.close()
        undo.pop_all()
    return list(hosts.values())


def _agent(address: RemoteAddress, name: str, link: Link) -> RemoteHost:
    try:
        return RemoteHost(name, link)
    except TimeoutError:
        raise InputError(
            f"{name}: no answer within {remote.START_S:g} s: check that the host is up"
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
    return [
        RemoteGpu(host, i, DeviceAttributes.from_json(known[i], where), known[i].get("uuid", ""))
        for i in chosen
    ]
