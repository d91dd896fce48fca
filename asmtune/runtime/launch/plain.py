"""The launcher in Python, for machines without a C compiler; the C part does the same.

Names, arguments and meaning are those of `native/`: `Launcher`, `Plan`, `GIVEN`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from asmtune.base.errors import AsmtuneError
from asmtune.core.failures import guarded
from asmtune.core.problem import GRID_LIMITS
from asmtune.core.records.artifacts import Failure
from asmtune.runtime.launch.layout import COMPUTED, CONSTEXPR, KEYED, Kinds
from asmtune.triton_api.launching import CurrentStream

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
    """The launcher in Python; see `native/launcher.c`.

    Attributes:
        rules: names and functions of `@triton.heuristics`.
        last: the plan of the last launch; None where it was slow.
    """

    def __init__(self, names: tuple[str, ...], modes: bytes, *rest: Any) -> None:
        self._names = names
        self._index = {name: index for index, name in enumerate(names)}
        self._modes = modes
        self._functions: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...]
        self._kinds: Kinds
        self._machine: CurrentStream
        self._functions, self.rules, self._kinds, self._machine, self._quiet, self._slow = rest
        computed = [self._index[name] for name, _ in self.rules if name in self._index]
        self._first_computed = min(computed, default=len(names))
        self._plans: dict[Any, LaunchPlan] = {}
        self.last: LaunchPlan | None = None

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._launch, grid)

    def keep(self, key: Any, plan: LaunchPlan, _: Any, results: tuple[Any, ...] = ()) -> None:
        """Keep the plan of a key, and of the rules' results; keys hold what they are made of."""
        keys = [key]
        if self.rules:
            try:
                keys.append((key, *self._computed_parts(results)))
            except _NoLaunchKey:  # such launches stay with the slow path
                return
        for one in keys:
            if len(self._plans) >= MOST_ENTRIES:
                self._plans = {}
            self._plans[one] = plan

    def forget(self) -> None:
        """Forget every plan."""
        self._plans = {}
        self.last = None

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        if observer is not None:
            observer(self, None, None, None)
        key = plan = hook = None
        computed: tuple[Any, ...] = ()
        ordered = self._ordered(args, kwargs)
        device = self._machine.device()
        if ordered is not None:
            try:
                key = (device, *self._launch_key(ordered, device))
                plan = self._plans.get(key)
            except _NoLaunchKey:
                key = None
        if plan is not None and ordered is not None and self._may_follow(plan):
            hook, plans = plan.hook, self._plans
            if hook is not None:  # before the rules and the grid, as Triton does
                hook(self._seen(plan, grid, ordered))
            results, followed, sizes = self._results(plan, grid, ordered), None, None
            if results is not None:
                computed = (plan.chosen, results) if self.rules else ()
                # Hook and rules saw a config that may have been forgotten meanwhile.
                is_known = not self.rules or plans is self._plans
                followed = self._followed(key, plan, results) if is_known else None
            if followed is not None and results is not None:
                values = _filled(self._with(ordered, results), followed)
                sizes = self._grid_sizes(grid, values)
            if not self._is_unchanged(key, ordered, device):
                key = None
            elif followed is not None and sizes is not None:
                self._relay(followed, sizes, device, values)
                self.last = followed
                return followed.kernel
        return self._slow(grid, args, kwargs, key, (), hook, *computed)

    def _relay(
        self, plan: LaunchPlan, sizes: tuple[int, int, int], device: int, values: list[Any]
    ) -> None:
        """Launch with a plan; a grid of no programs launches nothing."""
        if 0 not in sizes:
            plan.relay(*sizes, self._machine.stream(device), *plan.between, *values)

    def _may_follow(self, plan: LaunchPlan) -> bool:
        """Return whether a plan, or with rules any of its key's, may serve a launch."""
        return not any(self._quiet) and (bool(self.rules) or _holds(plan))

    def _seen(self, plan: LaunchPlan, grid: Any, ordered: list[Any]) -> dict[str, Any]:
        """Return what Triton calls a config's hook and the first rule with."""
        return {**plan.chosen, "grid": grid, "warmup": False, **self._named(ordered)}

    def _results(self, plan: LaunchPlan, grid: Any, ordered: list[Any]) -> tuple[Any, ...] | None:
        """Call the rules as Triton does; None where one raises, which the slow path will tell."""
        seen = self._seen(plan, grid, ordered)
        results = []
        try:
            for name, rule in self.rules:
                seen[name] = _result(rule, dict(seen))
                results.append(seen[name])
        except _NoLaunchKey:
            return None
        return tuple(results)

    def _followed(self, key: Any, plan: LaunchPlan, results: tuple[Any, ...]) -> LaunchPlan | None:
        """Return the plan of the rules' results, if it holds; without rules the key's own."""
        if not self.rules:
            return plan
        try:
            own = self._plans.get((key, *self._computed_parts(results)))
        except _NoLaunchKey:
            return None
        return own if own is not None and _holds(own) else None

    def _with(self, ordered: list[Any], results: tuple[Any, ...]) -> list[Any]:
        """Return the arguments with what the rules computed."""
        arguments = list(ordered)
        for (name, _), result in zip(self.rules, results, strict=True):
            if name in self._index:
                arguments[self._index[name]] = result
        return arguments

    def _is_unchanged(self, key: Any, ordered: list[Any], device: int) -> bool:
        """Check that tensors are still of the key, after code of the user that ran in between."""
        try:
            classes = self._argument_parts(ordered, device)
        except _NoLaunchKey:
            return False
        return list(key[1 : 1 + len(classes)]) == classes

    def _ordered(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Return the arguments in the order of the parameters; None if one matches no parameter."""
        if len(args) > self._first_computed:
            return None  # Triton refuses a position for what a rule computes
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
            elif mode & COMPUTED:  # a number that is given counts where the key names it alone
                part = self._value_part(value)
                counts = mode & KEYED or type(value) in (str, *self._kinds.frozen)
                key.append(part if counts else None)
            elif mode & CONSTEXPR:
                key.append(self._value_part(value))
            else:
                key.append(self._class_part(value, device))
                if mode & KEYED:
                    key.append(self._value_part(value))
        return key

    def _computed_parts(self, results: Sequence[Any]) -> list[Any]:
        """Make the part of a key for the rules' results, the last of each name."""
        parts = []
        names = dict(zip((name for name, _ in self.rules), results, strict=True))
        for name, result in names.items():
            index = self._index.get(name)
            if index is None or self._modes[index] & CONSTEXPR:
                parts.append(self._value_part(result))
            elif type(result) in self._kinds.tensors:
                raise _NoLaunchKey
            else:
                parts.append(self._class_part(result, -1))
        return parts

    def _function_part(self, function: Callable[..., Any], needs: list[Any]) -> Any:
        if any(value is GIVEN for value in needs):
            raise _NoLaunchKey
        return self._value_part(_result(function, *needs))

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

    def _named(self, values: list[Any]) -> dict[str, Any]:
        pairs = zip(self._names, values, strict=True)
        return {name: value for name, value in pairs if value is not GIVEN}

    def _grid_sizes(self, grid: Any, values: list[Any]) -> tuple[int, int, int] | None:
        if type(grid) is not tuple and callable(grid):
            grid = grid(self._named(values))
        if type(grid) not in (tuple, list) or not 1 <= len(grid) <= 3:
            return None
        for size, most in zip(grid, GRID_LIMITS, strict=False):
            if type(size) is not int or not 0 <= size <= most:
                return None
        return (*grid, 1, 1)[:3]


def _result(function: Callable[..., Any], *values: Any) -> Any:
    """Call the user's function; where it raises, the slow path calls it again, and names it."""
    try:
        result = guarded("key", lambda: function(*values))
    except AsmtuneError as error:
        raise _NoLaunchKey from error
    if isinstance(result, Failure):
        raise _NoLaunchKey
    return result


def _holds(plan: LaunchPlan) -> bool:
    return all(owner.get(name, GIVEN) is expected for owner, name, expected in plan.guards)


def _filled(ordered: list[Any], plan: LaunchPlan) -> list[Any]:
    """Return the values of all parameters: the plan's own where the launch gives none."""
    return [
        own if given is GIVEN else given for given, own in zip(ordered, plan.values, strict=True)
    ]


# A backend is this module or the C module: the C part names its classes so.
Launcher = PythonLauncher
Plan = LaunchPlan
