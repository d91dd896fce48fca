"""Configs that this process has met, by key; a dict that programs may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Memory(dict[tuple[Any, ...], Any]):
    """`kernel.cache`: configs by key.

    Programs clear `triton.autotune`'s to tune anew, or put a config of theirs into it; both
    must reach the launches that are planned already.

    Args:
        on_change: called after each change that a program makes.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def learn(self, key: tuple[Any, ...], config: Any) -> None:
        """Remembers a key that had no config, so that no planned launch has another."""
        super().__setitem__(key, config)

    def __setitem__(self, key: tuple[Any, ...], config: Any) -> None:
        super().__setitem__(key, config)
        self._on_change()

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        super().__delitem__(key)
        self._on_change()

    def clear(self) -> None:
        """Forgets all."""
        super().clear()
        self._on_change()

    def pop(self, *args: Any) -> Any:
        """As `dict.pop`."""
        taken = super().pop(*args)
        self._on_change()
        return taken

    def popitem(self) -> tuple[tuple[Any, ...], Any]:
        """As `dict.popitem`."""
        taken = super().popitem()
        self._on_change()
        return taken

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As `dict.update`."""
        super().update(*args, **kwargs)
        self._on_change()
