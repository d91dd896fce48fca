"""Events and warnings of keys that this process resolves."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asmtune.base.text import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.misses.lookups import Choice
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.triton_api.user_state import inside

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest


@dataclass(frozen=True, kw_only=True)
class KeyResolved:
    """Event of a key that this process has resolved for the first time.

    Attributes:
        kernel: its dotted name.
        how: a `misses.Choice`'s: "tuned", "known", "predicted" and the others.
        compiled, timed: configs, while it was tuned.
        seconds: wall clock, from the first launch of the key to its config.
    """

    kernel: str
    how: str
    compiled: int = 0
    timed: int = 0
    seconds: float = 0.0


F = TypeVar("F")

_Launched = Callable[["TuningRequest", KernelCall], None]

_Planned = Callable[[str, tuple[Any, ...], Any], None]

_listeners: Final[list[Callable[[KeyResolved], None]]] = []
_recorders: Final[list[_Launched]] = []
_planners: Final[list[_Planned]] = []


def emit(event: KeyResolved) -> None:
    """Call all listeners, in the thread that launches or tunes."""
    for listener in tuple(_listeners):
        with inside():
            listener(event)


def emit_launch(request: TuningRequest, call: KernelCall) -> None:
    """Call all recorders with a launch whose key is not in memory, before it is resolved.

    A launch that PyTorch's compiler only describes has meta tensors and the grid (1,).
    """
    for recorder in tuple(_recorders):
        recorder(request, call)


def emit_plan(kernel: str, key: Callable[[], tuple[Any, ...]], plan: Any) -> None:
    """Call all planners with the plan of a kernel's launches, and with their key in memory."""
    for planner in tuple(_planners):
        planner(kernel, key(), plan)


def listening(listener: Callable[[KeyResolved], None]) -> AbstractContextManager[None]:
    """Call a listener for every resolved key of the process, until the context is left."""
    return _held_in(_listeners, listener)


def recording(recorder: _Launched) -> AbstractContextManager[None]:
    """Call a recorder for the launches of keys that are not in memory, until the context is left.

    A key that is not final, such as one that is tuned in the background, comes several times.
    """
    return _held_in(_recorders, recorder)


def planning(planner: _Planned) -> AbstractContextManager[None]:
    """Call a function for every plan, with its kernel's name and key, until the context is left."""
    return _held_in(_planners, planner)


@contextlib.contextmanager
def _held_in(functions: list[F], function: F) -> Iterator[None]:
    functions.append(function)
    try:
        yield
    finally:
        functions.remove(function)


def print_tuned(request: TuningRequest, choice: Choice, key: tuple[Any, ...]) -> None:
    """Print a tuned key if the user asks Triton's autotuner to print."""
    from asmtune.triton_api.autotuners import prints_tuning

    if choice.how == "tuned" and prints_tuning():
        kernel = request.problem.name
        print(f"asmtune: {kernel} at {key}: {choice.config}, tuned in {choice.seconds:.2f} s")  # noqa: T201


def whole_record(key: TuneKey, expected: Provenance) -> TuneRecord | None:
    """Read the whole record of a key whose config alone was read before."""
    from asmtune.base.settings import Settings
    from asmtune.store.interchange import find_tuned
    from asmtune.store.safe_store import open_user_store

    store = open_user_store(Settings.from_environment())
    return find_tuned(key, expected, store).record


_ADVICE: Final = {
    "capture": "a CUDA graph is being captured, in which nothing is tuned; launch it once "
    "before the capture",
    "compile": "torch.compile traces it, where nothing can be timed; run one step before it "
    "compiles, under torch.compiler.set_stance('force_eager')",
}

LAUNCHING_MODULES: Final = ("torch.", "contextlib", "threading")
"""Modules that launch on behalf of a program; warnings point to their caller."""


class UntunedWarning(UserWarning):
    """A launch was captured or compiled with a config that is not the best of its key."""


class Notices:
    """Warns of each kernel and key once, from whichever thread comes first."""

    def __init__(self) -> None:
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def first(self, moment: str, text: str) -> bool:
        """Return whether nobody has asked this before."""
        with self._lock:
            is_first = (moment, text) not in self._warned
            self._warned.add((moment, text))
        return is_first

    def untuned(self, key: TuneKey, config: Config, moment: str) -> None:
        """Warn that a launch continues with an untuned config; `moment` is a key of `_ADVICE`."""
        text = key_text(key)
        if self.first(moment, text):
            message = f"{text}: not tuned; {_ADVICE[moment]}; goes on with {config}"
            warnings.warn(message, UntunedWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))

    def untaken(self, key: TuneKey, used: Config, best: Config) -> None:
        """Warn that a compiled launch loses options of its best config."""
        text = key_text(key)
        if self.first("options", text):
            message = (
                f"{text}: PyTorch's compiler takes no maxnreg, num_ctas or ir_override; goes on "
                f"with {used} in the place of {best}; a launch in a torch.library.custom_op has it"
            )
            warnings.warn(message, UntunedWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))


def key_text(key: TuneKey) -> str:
    """Format a key in one line: `module.add at n=8, x_ptr fp16 on NVIDIA H200`."""
    values = [f"{name}={value}" for name, value in key.shape.items()]
    values += [f"{name} {dtype}" for name, dtype in key.dtypes.items()]
    return f"kernel {key.kernel} at {', '.join(values) or 'any arguments'} on {key.device}"


def miss_message(request: TuningRequest, earlier: TuneRecord | None = None) -> str:
    """Say that no store knows a launch, except `earlier` of another Triton, and how to tune it."""
    function = jit_function(request.problem.kernel)
    file = inspect.getsourcefile(python_function(function)) or function.__module__
    shape = ",".join(f"{name}={value}" for name, value in request.key.shape.items())
    command = " ".join(["asmtune tune", file, *(["--shape", shape] if shape else [])])
    what = "no store knows a config"
    if earlier is not None:
        what = f"a store knows a config of triton {earlier.provenance.triton} alone"
    return (
        f"{key_text(request.key)}: {what}, and on_miss='raise'; "
        f"`{command}` tunes it where the file is a kernel module, "
        "and so does one launch with on_miss='tune'"
    )
