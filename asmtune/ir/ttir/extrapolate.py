"""The state that a loop carries, beyond the trips that were walked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from asmtune.ir.ttir.scalars import Unknown, Value

PROBE: Final = 64
"""Trips of a loop with state after which steps that never changed are taken to go on."""


def extended(history: list[list[Value]], distance: int) -> list[Value]:
    """State `distance` trips after the last: it goes on by equal steps, else by the mean one."""
    found: list[Value] = []
    for place, last in enumerate(history[-1]):
        past = [state[place] for state in history]
        if not distance or any(isinstance(value, Unknown) for value in past):
            found.append(last)
            continue
        recent: list[Any] = past[-PROBE:]
        step = recent[-1] - recent[-2] if len(recent) > 1 else 0
        if _is_even(recent):
            found.append(recent[-1] + distance * step)
        else:
            first: Any = past[0]
            mean = distance * (recent[-1] - first) / (len(past) - 1)
            found.append(recent[-1] + type(first)(mean))
    return found


def _is_even(values: list[Any]) -> bool:
    """Whether numbers follow each other by equal steps."""
    return len({after - before for before, after in pairwise(values)}) <= 1


def settled(history: list[list[Value]]) -> bool:
    """Whether all that is known of the state has changed by equal steps of late."""
    columns = zip(*history[-PROBE:], strict=True)
    known = (column for column in columns if not isinstance(column[0], Unknown))
    return all(
        not any(isinstance(value, Unknown) for value in column) and _is_even(list(column))
        for column in known
    )
