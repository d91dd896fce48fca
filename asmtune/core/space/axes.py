"""Axes: their values, and whether a config lies on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asmtune.base.errors import SpaceError
from asmtune.core.config import OPTION_AXES, OPTION_DEFAULTS, Config


def point_of(config: Config, context: Mapping[str, Any]) -> dict[str, Any]:
    """What constraints see of a config: options that it leaves out have their defaults."""
    return {**context, **OPTION_DEFAULTS, **config.to_dict()}


def misfit_of(config: Config, axes: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Why a config is no point of the axes; None where it is one."""
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


def axis_values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of an axis.

    Raises:
        SpaceError: there are none, one repeats, or one cannot be a value of it.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
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
    if name in OPTION_AXES:
        for value in unique:
            if not (value is None and name == "maxnreg") and not (type(value) is int and value > 0):
                raise SpaceError(f"axis {name!r} has {value!r}: expected whole numbers above 0")
    return unique


def spanned_axes(points: Sequence[Config]) -> dict[str, tuple[Any, ...]]:
    """The axes that configs of a list lie on, each value in the order of its first config."""
    spanned: dict[str, dict[Any, None]] = {}
    for config in points:
        for name, value in config.to_dict().items():
            if name != "ir_override":  # a file is no value between two others
                spanned.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in spanned.items()}
