"""`Entry`: the vendor's function that a kernel is timed against, and the kernel's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Inputs = Mapping[str, Any]
Shape = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A kernel's line in the table.

    Attributes:
        vendor_name: the vendor's name of the function.
        vendor: makes a launch of the vendor's from the public function's inputs; what happens
            before the launch, such as a forward pass, is not timed.
        group: name of the group that its speedup is averaged in.
        apart: tells rows, by shape and dtype, that are averaged apart from the group.
        flops: counts operations of a shape, if arithmetic limits the kernel and not memory.
        rates: the target's name of the rate of each dtype, where `flops` is given.
        dtypes: dtypes that the vendor has a function for; all if empty.
        others: further launches to time beside, by name, made as the vendor's; a row has
            `over_NAME` for each.
        exact: computes the results from inputs in float64, where the module's `baseline` would
            not fit in memory.
    """

    vendor_name: str
    vendor: Callable[[Inputs], Callable[[], Any]]
    group: str
    flops: Callable[[Shape], float] | None = None
    rates: Mapping[str, str] = field(default_factory=dict)
    dtypes: Sequence[str] = ()
    others: Mapping[str, Callable[[Inputs], Callable[[], Any]]] = field(default_factory=dict)
    apart: Callable[[Shape, str], bool] | None = None
    exact: Callable[..., Any] | None = None

    def group_at(self, shape: Shape, dtype: str) -> str:
        """Name the group that a row is averaged with."""
        aside = self.apart is not None and self.apart(shape, dtype)
        return f"{self.group}, others" if aside else self.group
