"""Kernels on a machine's roofline, before tuning and after.

    roofs     what the machine can do: compute and memory, each rate with its source
    counts    what a launch asks for: FLOPs and bytes, by the IR
    points    a config of a launch with its time; before and after; the whole
    survey    from a launch to its points: which config is tuned, and where times come from
    clock     times now, on this machine's GPU

The form is that of Williams, Waterman and Patterson (2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.roofline.clock import PairClock as PairClock
    from asmtune.roofline.counts import Counts as Counts
    from asmtune.roofline.counts import Load as Load
    from asmtune.roofline.points import Chart as Chart
    from asmtune.roofline.points import Entry as Entry
    from asmtune.roofline.points import Point as Point
    from asmtune.roofline.roofs import Roof as Roof
    from asmtune.roofline.roofs import roofs_of as roofs_of
    from asmtune.roofline.survey import Subject as Subject
    from asmtune.roofline.survey import Survey as Survey

__all__ = [
    "Chart",
    "Counts",
    "Entry",
    "Load",
    "PairClock",
    "Point",
    "Roof",
    "Subject",
    "Survey",
    "roofs_of",
]

_HOMES: Final = {
    "Chart": "points",
    "Counts": "counts",
    "Entry": "points",
    "Load": "counts",
    "PairClock": "clock",
    "Point": "points",
    "Roof": "roofs",
    "Subject": "survey",
    "Survey": "survey",
    "roofs_of": "roofs",
}

__getattr__ = loader(__name__, _HOMES)
