"""Where labels go, so that none lies on a line, on a marker or on another; pixels, y upwards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_RINGS: Final = (9.0, 12.0, 16.0, 21.0, 27.0, 34.0, 42.0, 58.0, 80.0, 106.0)
"""Distances from a point to its label that are tried, nearest first; then all of the frame is."""

_DIRECTIONS: Final = 32
"""Directions of each ring; the first is to the right."""

_STEP: Final = 8
"""Pixels between the places of the frame that are tried last."""

NEAR: Final = 12.6
"""Distance from which on a line leads from a label to its point."""


Place = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> tuple[float, float]:
        """Compute the centre."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Find its point that is nearest to another."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)

    def overlap(self, other: Box) -> float:
        """Compute the area that two boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def inside(self, other: Box) -> bool:
        """Say if another box holds all of it."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top


@dataclass(frozen=True)
class Line:
    """A straight line between two points."""

    x0: float
    y0: float
    x1: float
    y1: float

    def crosses(self, box: Box) -> bool:
        """Say if a part of it lies within a box."""
        first, last = 0.0, 1.0
        for start, end, low, high in (
            (self.x0, self.x1, box.left, box.right),
            (self.y0, self.y1, box.bottom, box.top),
        ):
            if start == end:
                if not low < start < high:
                    return False
                continue
            ends = sorted(((low - start) / (end - start), (high - start) / (end - start)))
            first, last = max(first, ends[0]), min(last, ends[1])
        return first < last


@dataclass(frozen=True)
class Label:
    """The width and height of a text that belongs to a point, `x` and `y`."""

    x: float
    y: float
    width: float
    height: float

    def leader(self, box: Box) -> Line | None:
        """Return the line from its box to its point; None where the box is near."""
        near = box.nearest(self.x, self.y)
        far = math.dist(near, (self.x, self.y)) > NEAR
        return Line(*near, self.x, self.y) if far else None


def places(
    labels: Sequence[Label],
    frame: Box,
    obstacles: Sequence[Box],
    lines: Sequence[Line] = (),
    reach: float = math.inf,
) -> list[Box | None]:
    """Find a box for each label, in order: near its point, inside the frame, and free.

    A box touches no obstacle, no line, no label's point, no other label and no line that leads
    to one, and is at most `reach` from its point. A label that has no such place has None.
    """
    boxes: list[Box | None] = []
    points = [Box(label.x - 1, label.y - 1, label.x + 1, label.y + 1) for label in labels]
    taken, crossed = [*obstacles, *points], list(lines)
    for label in labels:
        named = [box for box in boxes if box is not None]
        free = (
            box
            for far, box in _candidates(label, frame)
            if far <= reach
            and box.inside(frame)
            and _is_free(box, taken, crossed)
            and not _leads_through(label.leader(box), named)
        )
        box = next(free, None)
        boxes.append(box)
        if box is not None:
            taken.append(box)
            if (leader := label.leader(box)) is not None:
                crossed.append(leader)
    return boxes


def _is_free(box: Box, taken: Sequence[Box], lines: Sequence[Line]) -> bool:
    covers = any(box.overlap(other) for other in taken)
    return not covers and not any(line.crosses(box) for line in lines)


def _leads_through(leader: Line | None, boxes: Sequence[Box]) -> bool:
    return leader is not None and any(leader.crosses(box) for box in boxes)


def _candidates(label: Label, frame: Box) -> Iterator[tuple[float, Box]]:
    for ring in _RINGS:
        for step in range(_DIRECTIONS):
            # Right, left, up, down first: they read best.
            angle = 2 * math.pi * ((step % 4) / 4 + (step // 4) / _DIRECTIONS)
            x = label.x + math.cos(angle) * (ring + label.width / 2)
            y = label.y + math.sin(angle) * (ring + label.height / 2)
            yield ring, _centred(label, x, y)
    across, up = int(frame.right - frame.left), int(frame.top - frame.bottom)
    corners = [(x, y) for x in range(0, across, _STEP) for y in range(0, up, _STEP)]
    half, tall = label.width / 2, label.height / 2
    boxes = [_centred(label, frame.left + x + half, frame.bottom + y + tall) for x, y in corners]
    far = {box: math.dist(box.nearest(label.x, label.y), (label.x, label.y)) for box in boxes}
    yield from ((far[box], box) for box in sorted(boxes, key=far.__getitem__))


def _centred(label: Label, x: float, y: float) -> Box:
    half, tall = label.width / 2, label.height / 2
    return Box(x - half, y - tall, x + half, y + tall)


def numbered_together(at: Sequence[Place], apart: float) -> list[tuple[Place, str]]:
    """Number points from 1; those closer than `apart` share a label: `3, 5-8`."""
    groups: list[tuple[Place, list[int]]] = []
    for number, here in enumerate(at, 1):
        near = [numbers for there, numbers in groups if math.dist(here, there) < apart]
        if near:
            near[0].append(number)
        else:
            groups.append((here, [number]))
    return [(here, _ranges(numbers)) for here, numbers in groups]


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
