"""The table at the end of `asmtune run`: what became of each kernel's keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table

from asmtune.report.cells import one_line, plain_table

if TYPE_CHECKING:
    from asmtune.runtime.events import Met

_HEADINGS: Final = ("kernel", "tuned", "compiled", "timed", "seconds", "from store", "picked")
_STORED: Final = "known"
_TUNED: Final = "tuned"


def keys_met_table(met: Sequence[Met]) -> Table:
    """A line a kernel, and their sum: keys tuned, configs compiled and timed, seconds.

    Args:
        met: at least one, of any kernels.
    """
    table = plain_table("asmtune: keys met", _HEADINGS)
    kernels: dict[str, list[Met]] = defaultdict(list)
    for one in met:
        kernels[one.kernel].append(one)
    for kernel, own in sorted(kernels.items()):
        table.add_row(one_line(kernel), *_cells(own))
    if len(kernels) > 1:
        table.add_row(f"{len(kernels)} kernels", *_cells(met))
    return table


def _cells(met: Sequence[Met]) -> tuple[str, ...]:
    tuned = sum(one.how == _TUNED for one in met)
    stored = sum(one.how == _STORED for one in met)
    return (
        str(tuned),
        str(sum(one.compiled for one in met)),
        str(sum(one.timed for one in met)),
        f"{sum(one.seconds for one in met):.1f}",
        str(stored),
        str(len(met) - tuned - stored),
    )
