"""The launcher without plans: every launch takes the slow path.

It serves where the C part cannot be built or is not wanted, and kernels whose launches have no key:
those under the interpreter, of too many parameters, or with another program's decorator underneath.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Protocol

GIVEN: Final = object()
"""Stands for "the launch gives it" and "not there"."""


class Observer(Protocol):
    """Hears of each launch while a call is traced; see `native/launcher.c`."""

    def __call__(self, launcher: Any, plan: Any, grid: Any, values: Any) -> None:
        """Note a launch; plan, grid and values are None where the slow path launches."""

    def unheard(self, call: Callable[..., Any], *values: Any) -> None:
        """Call a function, and do not take what it does for the traced function's own."""


observer: Observer | None = None


class SlowLauncher:
    """Takes what `native/launcher.c` takes, and calls the slow path for each launch.

    Attributes:
        rules: names and functions of `@triton.heuristics`.
        last: None: no launch has a plan.
    """

    def __init__(self, *parts: Any) -> None:
        self.rules, self._slow = parts[3], parts[-1]
        self.last: Any = None

    def __len__(self) -> int:
        return 0

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._launch, grid)

    def keep(self, *_: Any) -> None:
        """Keep nothing."""

    def forget(self) -> None:
        """Forget nothing: there is no plan."""

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        if observer is not None:
            observer(self, None, None, None)
        return self._slow(grid, args, kwargs, None, (), None)


Launcher = SlowLauncher
"""A backend is this module or the C module: the C part names its class so."""
