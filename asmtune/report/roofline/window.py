"""What the axes of a roofline show, and where its points stand on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from asmtune.studies.roofline.points import Chart, Point

_EDGE: Final = 1.12
"""How far inside of the edge stands what has no intensity, as a factor."""


@dataclass(frozen=True)
class Window:
    """The ranges of both axes.

    Attributes:
        left, right: FLOPs a byte.
        bottom, top: FLOP/s.
    """

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def of(cls, chart: Chart) -> Self:
        """All points and every corner of the roofs, with room around."""
        points = points_of(chart)
        dram = next(roof.rate for roof in chart.roofs if roof.name == "DRAM")
        compute = [roof.rate for roof in chart.roofs if roof.kind == "compute"]
        known = [i for point in points if (i := point.work.intensity) is not None]
        left = min([*known, min(compute) / dram]) / 6
        right = max([*known, max(compute) / dram]) * 5
        edges = cls(left, right, 0.0, 0.0)
        heights = [edges.place(point)[1] for point in points]
        lowest = min([*heights, left * dram])
        return cls(left, right, lowest / 2, max(*heights, *compute) * 1.8)

    def place(self, point: Point) -> tuple[float, float]:
        """FLOPs a byte and FLOP/s.

        What does no FLOPs stands on the left edge, as high as its bytes a second put it under
        the memory roofs; what moves no bytes on the right one.
        """
        work = point.work
        if work.intensity is not None:
            return work.intensity, point.flops_per_s
        if work.bytes:
            edge = self.left * _EDGE
            return edge, point.bytes_per_s * edge
        return self.right / _EDGE, point.flops_per_s


def points_of(chart: Chart) -> list[Point]:
    """Every point, before and after."""
    return [p for entry in chart.entries for p in (entry.before, entry.after) if p is not None]
