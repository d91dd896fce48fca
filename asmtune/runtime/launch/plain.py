"""The launcher in Python, for machines without a C compiler; the C part does the same.

Names, arguments and meaning are those of `native/`: `Launcher`, `Plan`, `GIVEN`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from asmtune.base.errors import AsmtuneError
from asmtune.core.failures import guarded
from asmtune.core.problem import GRID_LIMITS
from asmtune.core.records.artifacts import Failure
from asmtune.runtime.launch.kinds import CurrentStream, Kinds
from asmtune.runtime.launch.layout import CONSTEXPR, KEYED

GIVEN: Final = object()
"""Stands for "the launch gives it" and "not there"."""

MOST_ENTRIES: Final = 4096
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)


class Plan(NamedTuple):
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


class _Unusual(Exception):  # noqa: N818 - no error: the slow path takes over
    """An argument without words."""


class Launcher:
    """The way of a launch; see `native/launcher.c`."""

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
        self._places = {name: index for index, name in enumerate(names)}
        self._modes = modes
        self._functions = functions
        self._kinds = kinds
        self._machine = machine
        self._quiet, self._slow = rest
        self._plans: dict[Any, Plan] = {}
        self.last: Plan | None = None

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._launch, grid)

    def keep(self, key: Any, plan: Plan, held: tuple[Any, ...]) -> None:  # noqa: ARG002 - C's
        """Remembers the plan of a key; keys hold what they are made of."""
        if len(self._plans) >= MOST_ENTRIES:
            self._plans = {}
        self._plans[key] = plan

    def forget(self) -> None:
        """Forgets every plan."""
        self._plans = {}
        self.last = None

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        key = plan = None
        placed = self._placed(args, kwargs)
        device = self._machine.device()
        if placed is not None:
            try:
                key = (device, *self._words(placed, device))
                plan = self._plans.get(key)
            except _Unusual:
                key = None
        if plan is not None and placed is not None and self._holds(plan):
            values = [
                own if given is GIVEN else given
                for given, own in zip(placed, plan.values, strict=True)
            ]
            sizes = self._sizes(grid, values)
            if sizes is not None:
                if plan.hook is not None:
                    plan.hook({**plan.chosen, **self._named(values)})
                plan.relay(*sizes, self._machine.stream(device), *plan.between, *values)
                self.last = plan
                return plan.kernel
        return self._slow(grid, args, kwargs, key, ())

    def _placed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Arguments by place; None where one has none."""
        placed = list(args) + [GIVEN] * (len(self._names) - len(args))
        for name, value in kwargs.items():
            place = self._places.get(name)
            if place is None or place < len(args):
                return None
            placed[place] = value
        return placed if len(placed) == len(self._names) else None

    def _words(self, placed: list[Any], device: int) -> list[Any]:
        words: list[Any] = []
        for value, mode in zip(placed, self._modes, strict=True):
            if value is GIVEN:
                words.append(None)
            elif mode & CONSTEXPR:
                words.append(self._value(value))
            else:
                words.append(self._class(value, device))
                if mode & KEYED:
                    words.append(self._value(value))
        for function, indices in self._functions:
            words.append(self._function_value(function, [placed[index] for index in indices]))
        return words

    def _function_value(self, function: Callable[..., Any], needs: list[Any]) -> Any:
        if any(value is GIVEN for value in needs):
            raise _Unusual
        try:
            result = guarded("key", lambda: function(*needs))
        except AsmtuneError as error:
            raise _Unusual from error
        if isinstance(result, Failure):  # the slow path calls it again, and says whose it is
            raise _Unusual
        return self._value(result)

    def _class(self, value: Any, device: int) -> Any:
        kind = type(value)
        if kind in self._kinds.tensors:
            if value.get_device() != device:
                raise _Unusual
            return value.dtype, value.data_ptr() % 16 == 0
        if kind is int:
            if value not in _INT64:
                raise _Unusual
            return value in _INT32, value == 1, value % 16 == 0
        if value is None or kind is float or kind is bool:
            return kind
        raise _Unusual

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return float, value.hex()
        if kind is int and value not in _INT64:
            raise _Unusual
        if value is None or kind in (bool, int, str) or kind in self._kinds.frozen:
            return kind, value
        raise _Unusual

    def _holds(self, plan: Plan) -> bool:
        return not any(self._quiet) and all(
            owner.get(name, GIVEN) is expected for owner, name, expected in plan.guards
        )

    def _named(self, values: list[Any]) -> dict[str, Any]:
        pairs = zip(self._names, values, strict=True)
        return {name: value for name, value in pairs if value is not GIVEN}

    def _sizes(self, grid: Any, values: list[Any]) -> tuple[int, int, int] | None:
        if type(grid) is not tuple and callable(grid):
            grid = grid(self._named(values))
        if type(grid) not in (tuple, list) or not 1 <= len(grid) <= 3:
            return None
        for size, most in zip(grid, GRID_LIMITS, strict=False):
            if type(size) is not int or not 1 <= size <= most:
                return None
        return (*grid, 1, 1)[:3]
