"""The switch of deterministic choice: the same key gets the same config, and no launch times any.

A key gets the stored config, else the shipped one, else the model's pick (`tuning.deterministic`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from asmtune.base.errors import ArgumentTypeError
from asmtune.base.settings import deterministic_by_environment
from asmtune.triton_api.user_state import are_deterministic_algorithms_enabled

_chosen: Final[list[bool | None]] = [None]
_listeners: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


class Determinism:
    """The state before a call of `deterministic`, which the end of a `with` block restores."""

    def __init__(self, before: bool | None) -> None:
        self._before = before

    def __enter__(self) -> Determinism:
        return self

    def __exit__(self, *_: object) -> None:
        _choose(self._before)


def deterministic(enabled: bool = True) -> Determinism:
    """Make every launch of this process choose its config deterministically, or not.

    It counts from now on, or inside a `with` block; for all threads. It takes precedence over
    ASMTUNE_DETERMINISTIC and over `torch.use_deterministic_algorithms`.

        asmtune.deterministic()
        with asmtune.deterministic(): ...

    Raises:
        InputError: `enabled` is no bool.
    """
    if not isinstance(enabled, bool):
        raise ArgumentTypeError(f"deterministic({enabled!r:.60}): give True or False")
    before = _chosen[0]
    _choose(enabled)
    return Determinism(before)


def is_deterministic() -> bool:
    """Return whether launches choose deterministically now."""
    chosen = _chosen[0]
    if chosen is not None:
        return chosen
    return deterministic_by_environment() or are_deterministic_algorithms_enabled()


def on_switch(owner: Any, forget: Callable[[Any], None]) -> None:
    """Call `forget(owner)` at each switch, as long as the owner lives."""
    _listeners[owner] = forget


def _choose(state: bool | None) -> None:
    if state != _chosen[0]:
        _chosen[0] = state
        for owner, forget in list(_listeners.items()):
            forget(owner)
