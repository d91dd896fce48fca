"""Leaving the user's state of PyTorch for asmtune's own work, and returning to it.

The user's modes of dispatch and of functions, gradients, autocast and the like would change what a
search does, and a mode would take its operations for the program's: selective checkpointing keeps
the results of all that it sees. `outside` sets the state of this thread aside, and `inside` brings
it back around a function of the user's. This is the only module that names what PyTorch does not
document for that, in versions 2.11 and 2.13.

Three settings belong to the process and to no thread: determinism, anomaly detection and the
default dtype. `searching` sets them aside as well, while no function of the user's runs: other
threads see PyTorch's defaults for the seconds of a search, and what one of them sets then, stays.
Launches of known keys leave the three alone, and so does tuning in the background: the program goes
on beside it for minutes, and another process times.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from asmtune.base.deadline import ProcessSetting

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def outside() -> Iterator[None]:
    """Leave the user's state of this thread, and return to it at the end, whatever happens.

    A context inside another does nothing, and so does one where PyTorch is not loaded.
    """
    torch: Any = sys.modules.get("torch")
    if _here.left is not None or not hasattr(torch, "inference_mode"):
        yield
        return
    state = _here.left = _UserState(torch)
    try:
        state.leave()
        yield
    finally:
        state.enter()
        _here.left = None


@contextmanager
def searching() -> Iterator[None]:
    """Do as `outside`, and set the settings of the process aside as well."""
    with outside():
        if _here.left is None:
            yield
            return
        is_users, _here.is_users = _here.is_users, False
        try:
            with _process_settings().changed(resuming=is_users):
                yield
        finally:
            _here.is_users = is_users


@contextmanager
def inside() -> Iterator[None]:
    """Return to the state that `outside` has left, for a function of the user's."""
    state = _here.left
    if state is None:
        yield
        return
    is_users = _here.is_users
    with nullcontext() if is_users else _process_settings().suspended():
        try:
            state.enter()
            _here.left, _here.is_users = None, True
            yield
        finally:
            _here.left, _here.is_users = state, is_users
            state.leave()


def has_function_modes() -> bool:
    """Return whether a mode of the user's hears of each read of a tensor."""
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "inference_mode") and torch._C._len_torch_function_stack() > 0


def within(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of the user's that runs `inside`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with inside():
            return function(*args, **kwargs)

    return call


def carried() -> Callable[[], None]:
    """Return what a thread that works for this one calls first, so that `inside` works there."""
    state = _here.left

    def begin() -> None:
        _here.left = None if state is None else state.elsewhere()

    return begin


def are_deterministic_algorithms_enabled() -> bool:
    """Return PyTorch's switch as the program has set it, also while it is set aside."""
    torch = sys.modules.get("torch")
    return hasattr(torch, "set_default_dtype") and bool(_process_settings().before()[0])


class _UserState:
    """The user's state in one thread.

    `_aside` holds what brings each part back, from the moment in which it is taken away, so that a
    Ctrl-C between two parts loses none.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._aside: list[Callable[[], Any]] = []
        self._guard: Any = None
        self._gradients = False, False, False

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

    def enter(self) -> None:
        """Bring the state back."""
        while self._aside:
            self._aside.pop()()

    def elsewhere(self) -> _UserState:
        """Return the state that is aside for another thread, which begins outside of it."""
        state = _UserState(self._torch)
        state._gradients = self._gradients
        # A thread's own state, where that thread starts another, has its `_open` there: the other
        # would open this state's guard, which then ends in whichever thread frees it.
        own = self._open, self._close
        state._aside = [state._open if part in own else part for part in self._aside]
        return state


def _gradients(torch: Any, inference: bool, backward: bool, forward: bool) -> Any:
    """Set the modes of autograd; the end of what is returned restores them."""
    guard = torch.inference_mode(inference)
    guard.__enter__()
    torch.set_grad_enabled(backward)
    torch._C._set_fwd_grad_enabled(forward)
    return guard


@functools.cache
def _process_settings() -> ProcessSetting[tuple[Any, ...]]:
    """Make the setting of the process; its parts are read and written together."""
    import torch

    def read() -> tuple[Any, ...]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_anomaly_enabled(),
            torch.is_anomaly_check_nan_enabled(),
            torch.get_default_dtype(),
        )

    def write(values: tuple[Any, ...]) -> None:
        # Not `use_deterministic_algorithms`, which loads Inductor. Without determinism its filling
        # of uninitialised memory does nothing.
        torch._C._set_deterministic_algorithms(values[0], warn_only=values[1])
        torch.set_anomaly_enabled(values[2], values[3])
        torch.set_default_dtype(values[4])

    return ProcessSetting(read, write, (False, False, False, True, torch.float32))


class _Here(threading.local):
    """Where a thread is.

    Attributes:
        left: the state that it has left; None where it is in the user's.
        is_users: whether a function of the user's runs in it, and no search of its own.
    """

    left: _UserState | None = None
    is_users: bool = False


_here: Final = _Here()
