"""Tile axes that are held at the default's values: those that a recurrence's state depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import numpy as np

from asmtune.core.config import OPTION_AXES, OPTION_DEFAULTS, Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.core.space.table import LACKING, SpaceTable
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.front import ProblemAnalysis

LEAST: Final = 2
"""Values of a held axis where no default is named: its least. Over 8 recurrences recorded on an
H200 they keep all of the best speed; the first value alone keeps 0.17 of it on one, whose 2-byte
elements are copied ahead only two at once. Larger tiles leave processors idle, up to 14 times."""


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


def searched_part(
    front: ProblemAnalysis, space: Space, default: Config, *, tiles: bool
) -> SearchedSpace:
    """Return the space to search, without other values of the axes that are held.

    In a recurrence each step waits for the last. The tile decides how much state a program keeps
    in registers and how many programs share the work, and a larger one leaves processors idle. So
    the axes that the state or the grid depends on are held, if the grid is small. All others are
    searched, as are the tiles of a walk, which starts each tile anew. Axes of a launch whose
    programs do not follow the tile, such as one on a fixed grid, are held as well: a smaller tile
    would leave results unwritten.

    A list of configs is searched whole, since its author chose each of them; so are all axes if
    `tiles` is True. Where the space names no default of its own, a held axis keeps its `LEAST`
    least values. The front end keeps what it reads for the search.

    Raises:
        ProblemError: arguments and config do not fit the kernel.
    """
    work = front.work(default)
    if isinstance(work, Failure):
        unknown = f"whether tiles must be held is not known: its default config: {work}"
        return SearchedSpace(space, (unknown,))
    reasons = {} if space.is_listed or tiles else _reasons(front, space, default, work)
    held = _held(space, default, reasons, front.problem.shape)
    if not held:
        why = "all configs listed are" if space.is_listed else "its tile axes are"
        suffix = f"; {why} searched" if space.is_listed or tiles else ""
        notes = (f"recurrence: {work.state.reason}{suffix}",) if work.state else ()
        return SearchedSpace(space, notes)
    return SearchedSpace(space.replace(**held), tuple(_notes(reasons, held)))


def _reasons(front: ProblemAnalysis, space: Space, default: Config, work: Work) -> dict[str, str]:
    """Return why to hold, by axis; axes that may be searched are left out."""
    axes = [n for n, values in space.axes.items() if n not in OPTION_AXES and len(values) > 1]
    problem = front.problem
    reasons = {}
    for axis in axes:
        other = _neighbour(space, problem.shape, default, axis)
        # Without state only an axis that the grid does not follow can leave a result unwritten.
        if other is None or not (work.state or problem.grid_of(other) == work.grid):
            continue
        changed = front.work(other)
        if isinstance(changed, Work):
            reasons[axis] = _reason(work, changed, f"{axis}={other.kwargs[axis]}")
    return {axis: reason for axis, reason in reasons.items() if reason}


def _reason(work: Work, changed: Work, change: str) -> str:
    """Return why a change of the default's tile is left to the author; "" to search it."""
    if work.state is None:
        return _unwritten(work, changed, change)
    kinds = changed.state.kinds if changed.state else None
    if (changed.grid, kinds) == (work.grid, work.state.kinds):
        return ""
    return f"recurrence: {work.state.reason}"


def _neighbour(space: Space, shape: Mapping[str, Any], default: Config, axis: str) -> Config | None:
    """Return the config least unlike the default that has another value of an axis, or None.

    Of equally unlike ones the one with the least value of it, which needs most programs.
    """
    own = {**OPTION_DEFAULTS, **default.values()}
    for value in sorted((v for v in space.axes[axis] if v != own[axis]), key=_size):
        alone = Config(**{**vars(default), "kwargs": {**default.kwargs, axis: value}})
        if space.lacks(alone, **shape) is None:
            return alone
    return _among(space.points(**shape), own, axis)


def _size(value: Any) -> float:
    return float(value) if isinstance(value, Real) else 0.0


def _among(points: SpaceTable, own: Mapping[str, Any], axis: str) -> Config | None:
    others = points.take(np.flatnonzero(~points.equal(axis, own[axis])))
    if not len(others):
        return None
    unlike = {name: ~others.equal(name, own.get(name, LACKING)) for name in others.values}
    tiles = np.sum([unlike[name] for name in unlike if name not in OPTION_AXES], axis=0)
    sizes = np.array([_size(v) for v in others.values[axis]])[others.columns[axis]]
    return others[int(np.lexsort([sizes, np.sum([*unlike.values()], axis=0), tiles])[0])]


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


def _held(
    space: Space, default: Config, axes: Iterable[str], shape: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Return the values of the held axes: the default's, or the least where none is named."""
    fixed = {name: (default.kwargs[name],) for name in axes}
    if space.default == default:
        return fixed
    points = space.points(**shape)
    least = {
        name: tuple(sorted(points.present(name))[:LEAST])
        for name in fixed
        if all(type(value) is int for value in space.axes[name])
    }
    held = {n: own for n, own in {**fixed, **least}.items() if set(own) != set(space.axes[n])}
    return held if next(space.replace(**held).configs(**shape), None) else fixed


def _notes(reasons: Mapping[str, str], held: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a line per reason: the axes held, where, and how to search them."""
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, own in reasons.items() if own == reason and name in held]
        if not names:
            continue
        values = " ".join(f"{name}={' or '.join(map(str, held[name]))}" for name in names)
        least = any(len(held[name]) > 1 for name in names)
        why = " (the least, as no default is named)" if least else ""
        all_of_them = "search_held_tiles=True (--search-held-tiles) searches all"
        yield f"{reason}; held at {values}{why}; {all_of_them}"
