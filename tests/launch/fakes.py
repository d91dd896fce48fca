"""Launchers over a driver that only takes notes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from asmtune.runtime.launch.planning import Launcher, kinds
from asmtune.triton_api.launching import CurrentStream

SOURCE = Path(__file__).with_name("fake_driver.c")


class Noted(ctypes.Structure):
    """A launch, as `fake_driver.c` records it."""

    _fields_ = (
        ("function", ctypes.c_ulonglong),
        ("stream", ctypes.c_ulonglong),
        ("sizes", ctypes.c_uint * 7),
        ("parameters", (ctypes.c_ubyte * 128) * 66),
        ("count", ctypes.c_int),
        ("launches", ctypes.c_int),
        ("attributes", (ctypes.c_uint * 4) * 4),
        ("attribute_count", ctypes.c_int),
        ("encodings", ctypes.c_int),
    )


class Encoded(ctypes.Structure):
    """What a tensor map was made of, in the driver's order: the last axis first."""

    _fields_ = (
        ("address", ctypes.c_ulonglong),
        ("shape", ctypes.c_uint * 5),
        ("strides", ctypes.c_uint * 4),
        ("box", ctypes.c_uint * 5),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("swizzle", ctypes.c_int),
        ("promotion", ctypes.c_int),
        ("fill", ctypes.c_int),
    )


class FakeDriver:
    """The driver's library, built here.

    Attributes:
        path: of the library.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "libfakecuda.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(self.path)], check=True
        )
        self._library = ctypes.CDLL(str(self.path))
        self._library.fake_noted.restype = ctypes.POINTER(Noted)

    def expect(self, widths: Sequence[int], *, code: int = 0, context: bool = True) -> None:
        """Set the bytes of each parameter, the answer of a launch, and if there is a context."""
        self._library.fake_expect(len(widths), bytes(widths), code, int(context))

    def capture(self, state: int) -> None:
        """Set if streams are being captured into a graph."""
        self._library.fake_capture(state)

    @property
    def noted(self) -> Noted:
        """The last launch."""
        return self._library.fake_noted().contents  # type: ignore[no-any-return]

    def parameters(self) -> list[bytes]:
        """The bytes of each of the last launch's parameters; those behind its width are 0."""
        return [bytes(self.noted.parameters[i][:8]) for i in range(self.noted.count)]

    def map(self, place: int) -> Encoded:
        """The tensor map that is a parameter of the last launch."""
        return Encoded.from_buffer_copy(bytes(self.noted.parameters[place]))

    def attributes(self) -> list[list[int]]:
        """The attributes of the last launch: id, and three numbers of its value."""
        return [list(self.noted.attributes[i]) for i in range(self.noted.attribute_count)]


class PlanFacts(NamedTuple):
    """What a plan is made of; see `native/plan.c`."""

    function: int
    threads: int
    shared: int
    slots: tuple[tuple[int, int, Any], ...]
    values: tuple[Any, ...]
    kernel: Any
    config: Any
    guards: tuple[tuple[dict[str, Any], str, Any], ...]
    relay: Callable[..., Any]
    between: tuple[Any, ...]
    hook: Any
    chosen: dict[str, Any]
    scratch: tuple[int, int, Any] = (0, 1, None)
    attributes: tuple[int, bool, bool] = (1, False, False)
    descriptors: tuple[tuple[Any, ...], ...] = ()


FACTS: Any = SimpleNamespace(GIVEN=object(), Plan=PlanFacts)
"""A backend whose plans can be read."""


@dataclass
class Slow:
    """Notes what the slow path is asked."""

    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any, Any]] = field(default_factory=list)

    def __call__(self, *call: Any) -> str:
        """The slow path."""
        self.calls.append(call)
        return "slow"


def launcher(backend: Any, layout: Any, slow: Callable[..., Any], **parts: Any) -> Launcher:
    """A launcher of a backend on "device" -1, where the host's tensors are."""
    machine = parts.get("machine", CurrentStream(lambda: -1, lambda _: 77))
    names, modes, functions, rules = layout.names, layout.modes, layout.functions, layout.rules
    made: Launcher = backend.Launcher(
        names, modes, functions, rules, kinds(), machine, parts.get("quiet", ()), slow
    )
    return made
