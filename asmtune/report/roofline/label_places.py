"""Where labels go, so that none lies on another or on a marker; pixels, y upwards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_RINGS: Final = (9.0, 16.0, 26.0, 40.0, 58.0, 80.0, 106.0, 138.0, 176.0, 220.0, 270.0, 330.0)
"""Distances from a point to its label that are tried, nearest first."""

_DIRECTIONS: Final = 16
"""Directions of each ring; the first is to the right."""

_CROSSING: Final = 0.1
"""Pixels that a label moves further off rather than cover a square pixel of a line."""


@dataclass(frozen=True)
class Box:
    """A rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> tuple[float, float]:
        """Computes the centre."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Finds its point that is nearest to another."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def overlap(self, other: Box) -> float:
        """Computes the area that two boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def inside(self, other: Box) -> bool:
        """Says if another box holds all of it."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top


@dataclass(frozen=True)
class Label:
    """The width and height of a text that belongs to a point, `x` and `y`."""

    x: float
    y: float
    width: float
    height: float


def places(
    labels: Sequence[Label], frame: Box, obstacles: Sequence[Box], lines: Sequence[Box] = ()
) -> list[Box]:
    """Finds a box for each label, in order: near its point, inside the frame, and free.

    Where nothing is free, the place with the least overlap is taken. Labels never leave the
    frame; they cover a line only if they would stand far off otherwise.
    """
    boxes: list[Box] = []
    for label in labels:
        boxes.append(_best(label, frame, [*obstacles, *boxes], lines))
    return boxes


def _best(label: Label, frame: Box, taken: Sequence[Box], lines: Sequence[Box]) -> Box:
    best = _centred(label, label.x, label.y)
    least = (math.inf, math.inf)
    for ring, box in _candidates(label):
        if least[0] == 0 and ring > least[1]:
            break
        if box.inside(frame):
            covered = sum(box.overlap(other) for other in taken)
            crossed = sum(box.overlap(line) for line in lines)
            if (cost := (covered, ring + _CROSSING * crossed)) < least:
                best, least = box, cost
    return best


def _candidates(label: Label) -> Iterator[tuple[float, Box]]:
    for ring in _RINGS:
        for step in range(_DIRECTIONS):
            # Right, left, up, down first: they read best.
            angle = 2 * math.pi * ((step % 4) / 4 + (step // 4) / _DIRECTIONS)
            x = label.x + math.cos(angle) * (ring + label.width / 2)
            y = label.y + math.sin(angle) * (ring + label.height / 2)
            yield ring, _centred(label, x, y)


def _centred(label: Label, x: float, y: float) -> Box:
    half, tall = label.width / 2, label.height / 2
    return Box(x - half, y - tall, x + half, y + tall)
