"""What of PyTorch's state asmtune's own work leaves, and the user's functions get back.

The user's modes of dispatch and of functions, gradients, autocast and the like would change what a
search does, and a mode would take its operations for the program's: selective checkpointing keeps
the results of all that it sees. `outside` sets the state of this thread aside, and `inside` brings
it back around a function of the user's. This is the only module that names what PyTorch does not
document for that, in versions 2.11 and 2.13.

Three settings belong to the process and to no thread: determinism, anomaly detection and the
default dtype. They are set aside while a thread that launches searches, and no function of the
user's runs. Other threads meanwhile see PyTorch's defaults; what one of them sets then, stays.
Tuning in the background leaves the three alone, since the program goes on beside it for minutes,
and its timings are taken in another process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple


@contextmanager
def outside(*, settings: bool = True) -> Iterator[None]:
    """Leave the user's state, and return to it at the end, whatever happens.

    A context inside another does nothing, and so does one where PyTorch is not loaded.

    Args:
        settings: whether the settings of the process are set aside as well.
    """
    torch: Any = sys.modules.get("torch")
    if _here.left is not None or not hasattr(torch, "inference_mode"):
        yield
        return
    state = _here.left = _UserState(torch, _settings if settings else None)
    try:
        state.leave()
        yield
    finally:
        state.enter(searches=False)
        _here.left = None


@contextmanager
def inside() -> Iterator[None]:
    """Return to the state that `outside` has left, for a function of the user's."""
    state = _here.left
    if state is None:
        yield
        return
    try:
        state.enter()
        _here.left = None
        yield
    finally:
        _here.left = state
        state.leave()


def carried() -> Callable[[], None]:
    """Return what a thread that works for this one calls first, so that `inside` works there."""
    state = _here.left

    def begin() -> None:
        _here.left = None if state is None else state.elsewhere()

    return begin


def are_deterministic_algorithms_enabled() -> bool:
    """Return PyTorch's switch as the program has set it, also while it is set aside."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(_settings.of_user(torch, _DETERMINISM)[0])


class _UserState:
    """The user's state in one thread.

    `_aside` holds what brings each part back, from the moment in which it is taken away, so that a
    Ctrl-C between two parts loses none.
    """

    def __init__(self, torch: Any, settings: _ProcessSettings | None) -> None:
        self._torch, self._settings = torch, settings
        self._aside: list[Callable[[], Any]] = []
        self._guard: Any = None
        self._gradients = False, False, False
        self._carried = False

    def leave(self) -> None:
        """Set the state aside, as it is now."""
        torch, aside = self._torch, self._aside
        c, hooks, layers = torch._C, torch._C._autograd, torch._C._functorch
        # Modes of functions come first, since they hear of what changes the rest.
        while c._len_torch_function_stack():
            mode = c._pop_torch_function_stack()
            aside.append(partial(c._push_on_torch_function_stack, mode))
        default = torch._GLOBAL_DEVICE_CONTEXT
        if (device := vars(default).pop("device_context", None)) is not None:
            aside.append(partial(setattr, default, "device_context", device))
        while c._len_torch_dispatch_stack():
            mode = c._pop_torch_dispatch_stack(None)
            aside.append(partial(c._push_on_torch_dispatch_stack, mode))
        while layers.peek_interpreter_stack() is not None:
            aside.append(partial(layers.push_dynamic_layer_stack, layers.pop_dynamic_layer_stack()))
        # Where hooks are disabled none is called, and none could be put back.
        while hooks._saved_tensors_hooks_is_enabled() and (
            pair := hooks._top_saved_tensors_default_hooks(True)
        ):
            hooks._pop_saved_tensors_default_hooks()
            aside.append(partial(hooks._push_saved_tensors_default_hooks, *pair))
        # What autocast has cached waits with its casts, since nothing counts as an end of it.
        for kind in filter(torch.is_autocast_enabled, c._autocast_supported_devices()):
            torch.set_autocast_enabled(kind, False)
            aside.append(partial(torch.set_autocast_enabled, kind, True))
        self._leave_gradients()
        if self._settings is not None:
            self._settings.place(self, None if self._carried else True)

    def _leave_gradients(self) -> None:
        if self._guard is not None:
            self._close()
            self._aside.append(self._open)
            return
        torch = self._torch
        is_forward = torch._C._is_fwd_grad_enabled()
        self._gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), is_forward
        self._aside.append(self._close)
        self._guard = _gradients(torch, False, False, False)

    def _close(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.__exit__(None, None, None)

    def _open(self) -> None:
        self._guard = _gradients(self._torch, *self._gradients)

    def enter(self, *, searches: bool = True) -> None:
        """Bring the state back; the thread goes on to search after it, or not."""
        if self._settings is not None:
            self._settings.place(self, False if searches else None)
        while self._aside:
            self._aside.pop()()

    def elsewhere(self) -> _UserState:
        """Return the state that is aside for another thread, which begins outside of it."""
        state = _UserState(self._torch, self._settings)
        state._gradients, state._carried = self._gradients, True
        state._aside = [state._open if part == self._close else part for part in self._aside]
        return state


def _gradients(torch: Any, inference: bool, backward: bool, forward: bool) -> Any:
    """Set the modes of autograd; the end of what is returned restores them."""
    guard = torch.inference_mode(inference)
    guard.__enter__()
    torch.set_grad_enabled(backward)
    torch._C._set_fwd_grad_enabled(forward)
    return guard


class _Setting(NamedTuple):
    """A setting of the process: how it is read and set, and what it is by default."""

    get: Callable[[Any], tuple[Any, ...]]
    set: Callable[..., Any]
    default: Callable[[Any], tuple[Any, ...]]


# Not `use_deterministic_algorithms`, which loads Inductor. What fills memory anew counts with it.
_DETERMINISM: Final = _Setting(
    lambda torch: (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ),
    lambda torch, on, warns: torch._C._set_deterministic_algorithms(on, warn_only=warns),
    lambda _: (False, False),
)
_ANOMALY: Final = _Setting(
    lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    lambda torch, *values: torch.set_anomaly_enabled(*values),
    lambda _: (False, True),
)
_DTYPE: Final = _Setting(
    lambda torch: (torch.get_default_dtype(),),
    lambda torch, dtype: torch.set_default_dtype(dtype),
    lambda torch: (torch.float32,),
)


class _ProcessSettings:
    """The user's settings of the process, and which threads search or call the user's functions."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._places: dict[_UserState, bool] = {}
        self._aside: dict[_Setting, tuple[Any, ...]] = {}

    def place(self, state: _UserState, searches: bool | None) -> None:
        """Note whether a thread searches, calls a function of the user's, or is done."""
        torch = state._torch
        with self._lock:
            if searches is None:
                self._places.pop(state, None)
            else:
                self._places[state] = searches
            if not self._places or not all(self._places.values()):
                self.restore(torch)
                return
            for setting in (_DETERMINISM, _ANOMALY, _DTYPE):
                now, default = setting.get(torch), setting.default(torch)
                if setting not in self._aside and now != default:
                    self._aside[setting] = now
                    setting.set(torch, *default)

    def restore(self, torch: Any) -> None:
        """Set what is aside, but what a thread has set meanwhile."""
        while self._aside:
            setting, values = self._aside.popitem()
            if setting.get(torch) == setting.default(torch):
                setting.set(torch, *values)

    def of_user(self, torch: Any, setting: _Setting) -> tuple[Any, ...]:
        """Return a setting as the program has it."""
        return self._aside.get(setting) or setting.get(torch)

    def forked(self) -> None:
        """Begin anew in a forked process, whose only thread may not be the one that searches."""
        torch, self._lock = sys.modules.get("torch"), threading.RLock()
        self._places = {s: v for s, v in self._places.items() if s is _here.left}
        if not self._places:
            self.restore(torch)


class _Here(threading.local):
    """The state that this thread has left; None where it is in the user's."""

    left: _UserState | None = None


_here: Final = _Here()
_settings: Final = _ProcessSettings()
os.register_at_fork(after_in_child=_settings.forked)
