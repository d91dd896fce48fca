"""Tile axes that are held at the default's values: the launch's programs do not follow them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

from asmtune.core.config import OPTION_AXES, OPTION_DEFAULTS, Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.core.space.table import SpaceTable
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.front import ProblemAnalysis


class HeldTilesWarning(UserWarning):
    """Tile axes of a kernel are held while it is tuned."""


@dataclass(frozen=True)
class SearchedSpace:
    """The part of a space that is searched, with the tile axes that are held.

    The notes tell a report's readers which, why, and how to search them.
    """

    space: Space
    notes: tuple[str, ...] = ()

    def configs(self, default: Config, shape: Mapping[str, Any]) -> SpaceTable:
        """Return each config once, the default first."""
        return self.space.points(**shape).led_by(default)


def searched_part(front: ProblemAnalysis, space: Space, default: Config) -> SearchedSpace:
    """Return the space to search, without other values of the axes that are held.

    A launch whose programs do not follow the tile, such as one on a fixed grid, leaves results
    unwritten with a smaller tile. So such an axis is held at the default's value. Where programs
    walk over tiles, all are written, and the axis is searched.

    A list of configs is searched whole, since its author chose each of them. The front end keeps
    what it reads for the search.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
    """
    work = front.work(default)
    if isinstance(work, Failure):
        unknown = f"whether tiles must be held is not known: its default config: {work}"
        return SearchedSpace(space, (unknown,))
    reasons = {} if space.is_listed else _reasons(front, space, default, work)
    if not reasons:
        return SearchedSpace(space)
    held = space.replace(**{name: (default.kwargs[name],) for name in reasons})
    return SearchedSpace(held, tuple(_notes(reasons, default)))


def _reasons(front: ProblemAnalysis, space: Space, default: Config, work: Work) -> dict[str, str]:
    """Return why to hold, by axis; axes that may be searched are left out."""
    axes = [n for n, values in space.axes.items() if n not in OPTION_AXES and len(values) > 1]
    problem = front.problem
    reasons = {}
    for axis in axes:
        other = _neighbour(space, problem.shape, default, axis)
        if other is None or problem.grid_of(other) != work.grid:
            continue
        changed = front.work(other)
        if isinstance(changed, Work):
            reasons[axis] = _unwritten(work, changed, f"{axis}={other.kwargs[axis]}")
    return {axis: reason for axis, reason in reasons.items() if reason}


def _neighbour(space: Space, shape: Mapping[str, Any], default: Config, axis: str) -> Config | None:
    """Return the default with the least other value of an axis, which needs most programs.

    None if the space has no such config.
    """
    own = {**OPTION_DEFAULTS, **default.values()}
    for value in sorted((v for v in space.axes[axis] if v != own[axis]), key=_size):
        alone = Config(**{**vars(default), "kwargs": {**default.kwargs, axis: value}})
        if space.lacks(alone, **shape) is None:
            return alone
    return None


def _size(value: Any) -> float:
    return float(value) if isinstance(value, Real) else 0.0


_WHOLE: Final = 0.9
"""Share of a result's bytes below which it is not written whole: programs are sampled."""


def _unwritten(work: Work, changed: Work, change: str) -> str:
    """Return which result a change leaves partly unwritten that was written whole, or ""."""
    for use, then in zip(work.arguments, changed.arguments, strict=False):
        whole = (use.size_bytes or 0) * _WHOLE
        if then.unique_written_bytes < whole <= use.unique_written_bytes:
            return (
                f"its programs do not follow its tiles: with {change} they write "
                f"{then.unique_written_bytes:,.0f} of {use.size_bytes:,} bytes of {use.name}"
            )
    return ""


def _notes(reasons: Mapping[str, str], default: Config) -> Iterator[str]:
    """Yield a line per reason: the axes held, where, and how to search them."""
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, own in reasons.items() if own == reason]
        values = " ".join(f"{name}={default.kwargs[name]}" for name in names)
        yield f"{reason}; held at {values}; a list of configs is searched whole"
