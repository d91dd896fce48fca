"""`Space`: axes with values, constraints over them, and a default config; or a list of configs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import SpaceError
from asmtune.base.text import did_you_mean
from asmtune.core.config import (
    AMD_OPTIONS,
    OPTION_AXES,
    OPTION_DEFAULTS,
    Config,
    check_option,
    check_types,
)
from asmtune.core.space.constraints import Constraint, Predicate, planned

if TYPE_CHECKING:
    from asmtune.core.space.table import SpaceTable


def point_of(config: Config, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that constraints see of a config, with defaults of missing options."""
    return {**context, **OPTION_DEFAULTS, **config.values()}


def misfit_of(config: Config, axes: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Return why a config is not a point of the axes; None if it is one."""
    if config.ir_override is not None:
        return "ir_override is no axis: give the space as a list of configs"
    values = point_of(config, {})
    for name, allowed in axes.items():
        if name not in values:
            return f"it lacks {name}"
        if values[name] not in allowed:
            return f"axis {name!r} has {', '.join(map(str, allowed))}"
    unknown = [name for name in config.kwargs if name not in axes]
    return f"there is no axis {unknown[0]!r}" if unknown else None


def _completed(config: Config, axes: Mapping[str, tuple[Any, ...]]) -> Config:
    """Return the config with AMD's own default of each of its options that is an axis."""
    missing = {n: v for n, v in AMD_OPTIONS.items() if n in axes and n not in config.kwargs}
    if not missing:
        return config
    return Config(**{**vars(config), "kwargs": {**config.kwargs, **missing}})


AUTO: Final = "auto"
"""In the place of a space: one that is proposed from the kernel's source (`proposal`)."""


def axis_values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Check the values of an axis.

    Raises:
        SpaceError: no value is given, one repeats, or one is not allowed.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SpaceError(f"axis {name!r} has {values!r}: expected a list of values")
    unique = tuple(values)
    if not unique:
        raise SpaceError(f"axis {name!r} is empty: give it at least one value")
    try:
        distinct = len(set(unique))
    except TypeError as error:
        raise SpaceError(f"axis {name!r} has a value that cannot be one: {error}") from error
    if distinct != len(unique):
        raise SpaceError(f"axis {name!r} repeats a value: {list(unique)}")
    if name == "ir_override":
        raise SpaceError("ir_override is no axis: give the space as a list of configs")
    for value in unique:
        if name in OPTION_AXES or name in AMD_OPTIONS:
            check_option(name, value, f"axis {name!r} has")
        elif isinstance(value, float) and not math.isfinite(value):
            raise SpaceError(f"axis {name!r} has {value!r}: expected finite numbers")
    return unique


def spanned_axes(points: Sequence[Config]) -> dict[str, tuple[Any, ...]]:
    """Return the axes of a list of configs, values in the order of their first config."""
    spanned: dict[str, dict[Any, None]] = {}
    for config in points:
        for name, value in config.values().items():
            if name != "ir_override":  # files have no order
                spanned.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in spanned.items()}


class Space:
    """Axes with values, constraints over them, and a default config.

    Args:
        axes: values by name: the kernel's constexpr parameters, and
            `num_warps`, `num_stages`, `num_ctas`, `maxnreg` (None for no cap); for AMD devices
            `waves_per_eu`, `matrix_instr_nonkdim`, `kpack`.
        constraints: conditions that every config satisfies; functions are named by their name.
        default: the config to fall back to; the first feasible one otherwise.

    Raises:
        SpaceError: an axis is empty or repeats a value, an option has a value
            that Triton does not take, or a default lies outside the axes.
    """

    def __init__(
        self,
        axes: Mapping[str, Iterable[Any]],
        constraints: Iterable[Constraint | Predicate] = (),
        default: Config | None = None,
    ) -> None:
        if not isinstance(axes, Mapping) or not all(isinstance(name, str) for name in axes):
            raise SpaceError(f"{axes!r} is no mapping: expected a list of values by axis name")
        self.axes: Mapping[str, tuple[Any, ...]] = MappingProxyType(
            {name: axis_values(name, values) for name, values in axes.items()}
        )
        self.constraints = tuple(map(Constraint.of, constraints))
        self.default = default = None if default is None else _completed(default, self.axes)
        self._points: tuple[Config, ...] | None = None
        misfit = None if default is None else misfit_of(default, self.axes)
        if misfit is not None:
            raise SpaceError(f"default {default} lies outside the axes: {misfit}")

    @classmethod
    def from_configs(cls, configs: Sequence[Any], default: Config | None = None) -> Space:
        """Make a space of exactly these configs (`Config` or `triton.Config`), in order.

        Raises:
            SpaceError: the list is empty, holds something else, or lacks the default.
        """
        points = tuple(dict.fromkeys(Config.of(config) for config in configs))
        if not points:
            raise SpaceError("a space needs at least one config; the list given is empty")
        chosen = points[0] if default is None else Config.of(default)
        if chosen not in points:
            raise SpaceError(f"default {chosen} is not one of the {len(points)} configs given")
        for point in points:
            check_types(point)
        spanned = spanned_axes(points)
        space = cls({name: spanned[name] for name in spanned if name not in OPTION_AXES})
        space.axes = MappingProxyType(spanned)
        space.default, space._points = chosen, points
        return space

    @classmethod
    def of(cls, value: Any) -> Space:
        """Convert a space, a list of configs or a mapping of axes to a space.

        Raises:
            SpaceError: it is something else, or malformed.
        """
        if isinstance(value, Space):
            return value
        if isinstance(value, Mapping):
            return cls(value)
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise SpaceError(f"{value!r} is no space: expected a Space, configs or axes by name")
        return cls.from_configs(list(value))

    def where(self, name: str, predicate: Predicate) -> Space:
        """Return the space with one more named constraint."""
        return self._with(constraints=(*self.constraints, Constraint(name, predicate)))

    def replace(self, **axes: Iterable[Any]) -> Space:
        """Return the space with other values for some of its axes.

        A missing option axis (`num_warps` ...) is added. A default outside the new axes is removed.
        Each config of a list gets each of the values, and keeps its others.

        Raises:
            SpaceError: a name is neither an axis nor an option; lists the axes.
        """
        for name in axes:
            if name not in self.axes and name not in (*OPTION_AXES, *AMD_OPTIONS):
                known = [*self.axes, *(o for o in OPTION_AXES if o not in self.axes)]
                hint = did_you_mean(name, known)
                raise SpaceError(f"unknown axis {name!r}: the axes are {', '.join(known)}{hint}")
        if self._points is not None:
            lists = [[(name, value) for value in axis_values(name, axes[name])] for name in axes]
            made = (p.with_values(dict(c)) for p in self._points for c in itertools.product(*lists))
            return Space.from_configs([*made])
        return self._with(axes={**self.axes, **axes})

    @property
    def is_listed(self) -> bool:
        """Return whether the space was given as a list of configs, not by axes."""
        return self._points is not None

    @property
    def listed(self) -> tuple[Config, ...]:
        """Return the list of configs that the space was given as; empty for a space of axes."""
        return self._points or ()

    @property
    def size(self) -> int:
        """Return the number of points before constraints."""
        if self._points is not None:
            return len(self._points)
        return math.prod(len(values) for values in self.axes.values())

    def __iter__(self) -> Iterator[Config]:
        return self.configs()

    def configs(self, /, **context: Any) -> Iterator[Config]:
        """Yield the feasible configs in a fixed order.

        Args:
            context: values that constraints may name besides the axes: the
                problem's shape (`M=4096`).

        Raises:
            SpaceError: a constraint names something else, or there are too many configs.
        """
        return iter(self.points(**context))

    def points(self, /, **context: Any) -> SpaceTable:
        """Return the feasible configs in the same order, as columns; `context` as for `configs`.

        Raises:
            SpaceError: a constraint names something else, or there are too many configs.
        """
        from asmtune.core.space.table import SpaceTable  # loads NumPy

        plan = self._plan(context)
        if self._points is None:
            return SpaceTable.spanned(self.axes, plan, context)
        always = [constraint for level in plan for constraint in level]
        able = (p for p in self._points if all(c.holds(point_of(p, context)) for c in always))
        return SpaceTable.of(able)

    def first(self, /, **context: Any) -> Config:
        """Return the default config if it is feasible, else the first that is.

        Raises:
            SpaceError: no point is feasible; names the constraints.
        """
        plan = self._plan(context)
        if self.default is not None:
            point = point_of(self.default, context)
            if all(c.holds(point) for level in plan for c in level):
                return self.default
        if (config := next(self.configs(**context), None)) is not None:
            return config
        raise SpaceError(self.describe_empty(**context))

    def lacks(self, config: Config, /, **context: Any) -> str | None:
        """Return why a config is not in the space, or None; `context` is as for `configs`."""
        if self._points is not None and config not in self._points:
            return f"it is not among the {len(self._points)} configs given"
        misfit = misfit_of(config, self.axes) if self._points is None else None
        if misfit is not None:
            return misfit
        for name, usual in OPTION_DEFAULTS.items():
            if name not in self.axes and getattr(config, name) != usual and self._points is None:
                return f"there is no axis {name!r}"
        point = point_of(config, context)
        broken = [c.name for level in self._plan(context) for c in level if not c.holds(point)]
        return f"constraint {broken[0]!r} rejects it" if broken else None

    def matching(self, config: Config, /, **context: Any) -> Config | None:
        """Return the space's own config, with its `pre_hook`, that equals one without hook.

        A register cap derived from an artifact is not in the space: such a config matches the one
        without a cap, which is returned with the cap. The name of an alternative is left out. None
        if no config matches. `context` is as for `configs`.
        """
        wanted, uncapped = config.plain.to_dict(), config.with_cap(None).to_dict()
        without_cap: Config | None = None
        for own in self.configs(**context):
            values = own.to_dict()
            if values == wanted:
                return own
            if without_cap is None and values == uncapped:
                without_cap = own
        return None if without_cap is None else without_cap.with_cap(config.maxnreg)

    def describe_empty(self, /, **context: Any) -> str:
        """Name in one line the constraints that no point satisfies together, and the sizes.

        Where a constraint has raised, the text ends in the first reason.
        """
        raised = [text for one in self.constraints for text in one.raised]
        names = " and ".join(repr(one.name) for one in self.constraints)
        sizes = dict.fromkeys(n for one in self.constraints for n in one.needs if n in context)
        at = " at " + ", ".join(f"{n}={context[n]}" for n in sizes) if sizes else ""
        told = f"; {raised[0]}" if raised else ""
        return (
            f"no feasible point among {self.size}: none has {names}{at}{told}; "
            "relax one or widen axes"
        )

    def _with(
        self,
        axes: Mapping[str, Iterable[Any]] | None = None,
        constraints: tuple[Constraint, ...] | None = None,
    ) -> Space:
        space = Space(
            self.axes if axes is None else axes,
            self.constraints if constraints is None else constraints,
        )
        space._points = self._points
        if self.default is not None:
            default = _completed(self.default, space.axes)
            if axes is None or not misfit_of(default, space.axes):
                space.default = default
        return space

    def _plan(self, context: Mapping[str, Any]) -> list[list[Constraint]]:
        options = OPTION_AXES if self.is_listed else ()
        return planned(self.constraints, list(self.axes), options, context)
