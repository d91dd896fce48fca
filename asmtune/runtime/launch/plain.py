"""The launcher in Python, for machines without a C compiler; the C part does the same.

Names, arguments and meaning are those of `native/`: `Launcher`, `Plan`, `GIVEN`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from asmtune.base.errors import AsmtuneError
from asmtune.core.failures import guarded
from asmtune.core.problem import GRID_LIMITS
from asmtune.core.records.artifacts import Failure
from asmtune.runtime.launch.layout import CONSTEXPR, KEYED, CurrentStream, Kinds

GIVEN: Final = object()
"""Stands for "the launch gives it" and "not there"."""

MOST_ENTRIES: Final = 4096


class Observer(Protocol):
    """Hears of each launch while a call is traced; see `native/launcher.c`."""

    def __call__(self, launcher: Any, plan: Any, grid: Any, values: Any) -> None:
        """Note a launch; plan, grid and values are None where the slow path launches."""

    def unheard(self, call: Callable[..., Any], *values: Any) -> None:
        """Call a function, and do not take what it does for the traced function's own."""


observer: Observer | None = None
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)


class LaunchPlan(NamedTuple):
    """A compiled kernel on one device; see `native/plan.c`."""

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
    hook: Callable[[dict[str, Any]], Any] | None
    chosen: dict[str, Any]
    scratch: int = 0


class _NoLaunchKey(Exception):  # noqa: N818 - no error: the slow path takes over
    """An argument that cannot be part of a launch key."""


class PythonLauncher:
    """The launcher in Python; see `native/launcher.c`."""

    def __init__(
        self,
        names: tuple[str, ...],
        modes: bytes,
        functions: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...],
        kinds: Kinds,
        machine: CurrentStream,
        *rest: Any,
    ) -> None:
        self._names = names
        self._index = {name: index for index, name in enumerate(names)}
        self._modes = modes
        self._functions = functions
        self._kinds = kinds
        self._machine = machine
        self._quiet, self._slow = rest
        self._plans: dict[Any, LaunchPlan] = {}
        self.last: LaunchPlan | None = None

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._launch, grid)

    def keep(self, key: Any, plan: LaunchPlan, held: tuple[Any, ...]) -> None:  # noqa: ARG002 - C's
        """Keep the plan of a key; keys hold references to what they are made of."""
        if len(self._plans) >= MOST_ENTRIES:
            self._plans = {}
        self._plans[key] = plan

    def forget(self) -> None:
        """Forget every plan."""
        self._plans = {}
        self.last = None

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        if observer is not None:
            observer(self, None, None, None)
        key = plan = hook = None
        ordered = self._ordered(args, kwargs)
        device = self._machine.device()
        if ordered is not None:
            try:
                key = (device, *self._launch_key(ordered, device))
                plan = self._plans.get(key)
            except _NoLaunchKey:
                key = None
        if plan is not None and ordered is not None and self._is_valid(plan):
            values = [
                own if given is GIVEN else given
                for given, own in zip(ordered, plan.values, strict=True)
            ]
            hook = plan.hook
            if hook is not None:  # before the grid, as Triton does
                hook({**plan.chosen, **self._named(values)})
            sizes = self._grid_sizes(grid, values)
            if not self._is_unchanged(key, ordered, device):
                key = None
            elif sizes is not None:
                plan.relay(*sizes, self._machine.stream(device), *plan.between, *values)
                self.last = plan
                return plan.kernel
        return self._slow(grid, args, kwargs, key, (), hook)

    def _is_unchanged(self, key: Any, ordered: list[Any], device: int) -> bool:
        """Check that tensors are still of the key, after code of the user that ran in between."""
        try:
            classes = self._argument_parts(ordered, device)
        except _NoLaunchKey:
            return False
        return list(key[1 : 1 + len(classes)]) == classes

    def _ordered(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Return the arguments in the order of the parameters; None if one matches no parameter."""
        ordered = list(args) + [GIVEN] * (len(self._names) - len(args))
        for name, value in kwargs.items():
            index = self._index.get(name)
            if index is None or index < len(args):
                return None
            ordered[index] = value
        return ordered if len(ordered) == len(self._names) else None

    def _launch_key(self, ordered: list[Any], device: int) -> list[Any]:
        """Make the key; functions of it run first, since they may give a tensor other memory."""
        results = [
            self._function_part(function, [ordered[index] for index in indices])
            for function, indices in self._functions
        ]
        return self._argument_parts(ordered, device) + results

    def _argument_parts(self, ordered: list[Any], device: int) -> list[Any]:
        key: list[Any] = []
        for value, mode in zip(ordered, self._modes, strict=True):
            if value is GIVEN:
                key.append(None)
            elif mode & CONSTEXPR:
                key.append(self._value_part(value))
            else:
                key.append(self._class_part(value, device))
                if mode & KEYED:
                    key.append(self._value_part(value))
        return key

    def _function_part(self, function: Callable[..., Any], needs: list[Any]) -> Any:
        if any(value is GIVEN for value in needs):
            raise _NoLaunchKey
        try:
            result = guarded("key", lambda: function(*needs))
        except AsmtuneError as error:
            raise _NoLaunchKey from error
        if isinstance(result, Failure):  # the slow path calls it again, and names the function
            raise _NoLaunchKey
        return self._value_part(result)

    def _class_part(self, value: Any, device: int) -> Any:
        kind = type(value)
        if kind in self._kinds.tensors:
            if value.get_device() != device:
                raise _NoLaunchKey
            return value.dtype, value.data_ptr() % 16 == 0
        if kind is int:
            if value not in _INT64:
                raise _NoLaunchKey
            return value in _INT32, value == 1, value % 16 == 0
        if value is None or kind is float or kind is bool:
            return kind
        raise _NoLaunchKey

    def _value_part(self, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return float, value.hex()
        if kind is int and value not in _INT64:
            raise _NoLaunchKey
        if value is None or kind in (bool, int, str) or kind in self._kinds.frozen:
            return kind, value
        raise _NoLaunchKey

    def _is_valid(self, plan: LaunchPlan) -> bool:
        return not any(self._quiet) and all(
            owner.get(name, GIVEN) is expected for owner, name, expected in plan.guards
        )

    def _named(self, values: list[Any]) -> dict[str, Any]:
        pairs = zip(self._names, values, strict=True)
        return {name: value for name, value in pairs if value is not GIVEN}

    def _grid_sizes(self, grid: Any, values: list[Any]) -> tuple[int, int, int] | None:
        if type(grid) is not tuple and callable(grid):
            grid = grid(self._named(values))
        if type(grid) not in (tuple, list) or not 1 <= len(grid) <= 3:
            return None
        for size, most in zip(grid, GRID_LIMITS, strict=False):
            if type(size) is not int or not 1 <= size <= most:
                return None
        return (*grid, 1, 1)[:3]


# A backend is this module or the C module: the C part names its classes so.
Launcher = PythonLauncher
Plan = LaunchPlan
