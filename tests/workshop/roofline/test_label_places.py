"""Labels lie beside their points, inside the frame, and neither on each other nor on a line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from asmtune.workshop.roofline.label_places import Box, Label, Line, places

FRAME = Box(0.0, 0.0, 700.0, 420.0)

labels = st.builds(
    Label,
    x=st.floats(20, 680),
    y=st.floats(20, 400),
    width=st.floats(20, 130),
    height=st.just(13.0),
)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """A line anywhere in the frame."""
    ends = st.tuples(st.floats(0, 700), st.floats(0, 420))
    return Line(*draw(ends), *draw(ends))


QUICK = settings(deadline=None, phases=[Phase.explicit, Phase.generate])


@QUICK
@given(st.lists(labels, max_size=16))
def test_labels_never_overlap(wanted: list[Label]) -> None:
    """Of 16 labels, wherever their points lie, no two share a pixel and none leaves the frame."""
    found = places(wanted, FRAME, [])
    assert len(found) == len(wanted)
    assert None not in found[:1]
    there = [(box, label) for box, label in zip(found, wanted, strict=True) if box is not None]
    for box, label in there:
        assert box.inside(FRAME)
        assert abs(box.right - box.left - label.width) < 1e-6
        assert not any(
            box.left < one.x < box.right and box.bottom < one.y < box.top for one in wanted
        )
    assert all(one.overlap(other) == 0 for (one, _), (other, _) in itertools.combinations(there, 2))


@QUICK
@given(st.lists(labels, max_size=30), st.lists(lines(), max_size=8))
def test_no_label_lies_on_a_line(wanted: list[Label], drawn: list[Line]) -> None:
    """Neither on a line nor on one that leads to a label; a label without a place has none."""
    found = places(wanted, FRAME, [], drawn)
    assert len(found) == len(wanted)
    boxes = [(box, label) for box, label in zip(found, wanted, strict=True) if box is not None]
    for box, _ in boxes:
        assert not any(line.crosses(box) for line in drawn)
        assert not any(box.overlap(other) for other, _ in boxes if other is not box)
        leaders = (label.leader(other) for other, label in boxes if other is not box)
        assert not any(leader.crosses(box) for leader in leaders if leader is not None)


@given(labels, st.lists(st.tuples(st.floats(0, 690), st.floats(0, 410)), max_size=10))
def test_markers_stay_free(label: Label, corners: list[tuple[float, float]]) -> None:
    """A label covers no marker, its own point's neither."""
    markers = [Box(x, y, x + 8, y + 8) for x, y in corners]
    own = Box(label.x - 4, label.y - 4, label.x + 4, label.y + 4)
    (box,) = places([label], FRAME, [own, *markers])
    assert box is not None
    assert all(box.overlap(marker) == 0 for marker in (own, *markers))


def test_a_lone_label_stands_on_the_right() -> None:
    """Nothing in the way: beside its point, on its height."""
    (box,) = places([Label(100, 100, 50, 13)], FRAME, [])
    assert box is not None
    assert 100 < box.left < 115
    assert box.middle[1] == 100


@pytest.mark.parametrize(
    ("line", "crosses"),
    [
        (Line(0, 0, 10, 10), True),
        (Line(5, 5, 5, 5), True),
        (Line(5, -9, 5, 9), True),
        (Line(-5, 4, 1, 12), False),
        (Line(-5, 5, -1, 5), False),
        (Line(0, 10, 10, 10), False),
        (Line(20, 20, 11, 11), False),
    ],
)
def test_lines_and_boxes(line: Line, crosses: bool) -> None:
    """A line crosses a box if a part of it is inside; along an edge it does not."""
    assert line.crosses(Box(0, 0, 10, 10)) is crosses


def test_lines_are_never_crossed() -> None:
    """A line beside the point is kept off; where lines are everywhere, there is no place."""
    label = Label(200, 200, 50, 13)
    beside = Line(206, 200, 280, 200)
    (box,) = places([label], FRAME, [], [beside])
    assert box is not None
    assert not beside.crosses(box)
    grid = [Line(0, y, 700, y) for y in range(0, 420, 5)]
    assert places([label], FRAME, [], grid) == [None]


def test_within_reach() -> None:
    """What is free only further off than the reach is no place."""
    label, round_about = Label(200, 200, 50, 13), [Box(120, 150, 280, 250)]
    assert places([label], FRAME, round_about, reach=30) == [None]
    (box,) = places([label], FRAME, round_about)
    assert box is not None
    assert label.leader(box) is not None


def test_where_nothing_is_free_there_is_no_place() -> None:
    """A frame that is full but for a strip that is lower than the label."""
    full = [Box(0, 0, 100, 40), Box(0, 45, 100, 100)]
    assert places([Label(50, 50, 40, 13)], Box(0, 0, 100, 100), full) == [None]


def test_a_frame_that_is_too_small() -> None:
    """A label wider than the frame has no place."""
    assert places([Label(5, 5, 40, 13)], Box(0, 0, 10, 10), []) == [None]
