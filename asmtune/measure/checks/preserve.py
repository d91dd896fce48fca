"""Keeping the user's tensors whole while configs run on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from asmtune.measure.checks.regions import Copy, regions_of, settle
from asmtune.measure.checks.tensors import slots_of


@contextmanager
def preserved(values: Iterable[Any]) -> Iterator[None]:
    """Gives every tensor among `values` its contents back at the end.

    For code that may write any of them, such as a config's `pre_hook`; where the IR tells what
    is written, a `Rehearsal` copies that alone. Costs one copy of each tensor in device memory,
    and the time of copying it twice. What lies between the elements of a view comes back too.
    """
    slots, _ = slots_of({str(place): value for place, value in enumerate(values)})
    settle(slots)
    copies = [Copy(region) for region in regions_of(slots)]
    try:
        yield
    finally:
        settle(slots)
        for copy in copies:
            copy.restore()
