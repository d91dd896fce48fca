"""`Constraint`: a condition over axes, and the moment from which it can be checked."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asmtune.base.errors import USER_CODE_ERRORS, SpaceError
from asmtune.base.text import shortened, user_stacklevel

Predicate = Callable[..., bool]


class ConstraintWarning(UserWarning):
    """A constraint has raised at a config, which is left out."""


@dataclass(frozen=True)
class Constraint:
    """A named condition over some of the axes.

    Attributes:
        name: the condition in words, for error messages and reports.
        predicate: takes axes (and names of the problem's shape) by name.
        needs: these names.
        raised: where the predicate has raised first, and what; empty if it has not.
    """

    name: str
    predicate: Predicate
    needs: tuple[str, ...] = field(init=False)
    raised: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, given: Any) -> Constraint:
        """Make a constraint of a function of axes by name; return one as it is.

        Raises:
            SpaceError: it is neither.
        """
        if isinstance(given, cls):
            return given
        if not callable(given):
            raise SpaceError(
                f"constraint {shortened(repr(given))}: give a Constraint, or a function of axes by "
                "name that returns True or False"
            )
        return cls(getattr(given, "__name__", type(given).__name__), given)

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.predicate).parameters.values()
        needs = tuple(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        object.__setattr__(self, "needs", needs)

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Return True if the point satisfies the condition.

        Where the predicate raises, return False; the first time, warn.
        """
        try:
            return bool(self.predicate(**{name: point[name] for name in self.needs}))
        except USER_CODE_ERRORS as error:
            if not self.raised:
                cause = f"{type(error).__name__}: {error}"
                self.raised.append(f"constraint {self.name!r} failed at {dict(point)}: {cause}")
                warnings.warn(
                    f"{self.raised[0]}; such configs are left out: make it return True or False",
                    ConstraintWarning,
                    stacklevel=user_stacklevel(),
                )
            return False


def planned(
    constraints: Iterable[Constraint],
    axes: Sequence[str],
    last: Iterable[str],
    context: Mapping[str, Any],
) -> list[list[Constraint]]:
    """Group constraints by the number of axes that must be bound to check them.

    `axes` are in the order in which they are bound, the names of `last` together with the last
    one; the values of `context` are known from the start.

    Raises:
        SpaceError: a constraint names something that is not among these.
    """
    order = {name: depth for depth, name in enumerate(axes, 1)}
    order |= {name: len(axes) for name in last if name not in order}
    plan: list[list[Constraint]] = [[] for _ in range(len(axes) + 1)]
    for constraint in constraints:
        unknown = [n for n in constraint.needs if n not in order and n not in context]
        if unknown:
            raise SpaceError(
                f"constraint {constraint.name!r} names {unknown[0]!r}, which is neither an "
                f"axis ({', '.join(axes)}) nor given by the shape "
                f"({', '.join(context) or 'empty'})"
            )
        plan[max((order.get(n, 0) for n in constraint.needs), default=0)].append(constraint)
    return plan
