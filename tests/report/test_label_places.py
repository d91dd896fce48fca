"""Labels lie beside their points, inside the frame, and not on each other."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from asmtune.report.roofline.label_places import Box, Label, places

FRAME = Box(0.0, 0.0, 700.0, 420.0)

labels = st.builds(
    Label,
    x=st.floats(20, 680),
    y=st.floats(20, 400),
    width=st.floats(20, 130),
    height=st.just(13.0),
)


@given(st.lists(labels, max_size=16))
def test_labels_never_overlap(wanted: list[Label]) -> None:
    """Of 16 labels, wherever their points lie, no two share a pixel and none leaves the frame."""
    found = places(wanted, FRAME, [])
    assert len(found) == len(wanted)
    for box, label in zip(found, wanted, strict=True):
        assert box.inside(FRAME)
        assert abs(box.right - box.left - label.width) < 1e-6
    assert all(one.overlap(other) == 0 for one, other in itertools.combinations(found, 2))


@given(labels, st.lists(st.tuples(st.floats(0, 690), st.floats(0, 410)), max_size=10))
def test_markers_stay_free(label: Label, corners: list[tuple[float, float]]) -> None:
    """A label covers no marker, its own point's neither."""
    markers = [Box(x, y, x + 8, y + 8) for x, y in corners]
    own = Box(label.x - 4, label.y - 4, label.x + 4, label.y + 4)
    (box,) = places([label], FRAME, [own, *markers])
    assert all(box.overlap(marker) == 0 for marker in (own, *markers))


def test_a_lone_label_stands_on_the_right() -> None:
    """Nothing in the way: beside its point, on its height."""
    (box,) = places([Label(100, 100, 50, 13)], FRAME, [])
    assert 100 < box.left < 115
    assert box.middle[1] == 100


def test_a_line_is_crossed_only_to_stay_near() -> None:
    """A line beside the point is kept off; one that is everywhere is crossed."""
    label = Label(200, 200, 50, 13)
    beside = Box(206, 199, 280, 201)
    (box,) = places([label], FRAME, [], [beside])
    assert box.overlap(beside) == 0
    grid = [Box(0, y, 700, y + 2) for y in range(0, 420, 5)]
    (box,) = places([label], FRAME, [], grid)
    assert abs(box.middle[0] - 200) < 60


def test_where_nothing_is_free_the_least_is_covered() -> None:
    """A frame that is full but for a strip: the label takes the strip as far as it goes."""
    full = [Box(0, 0, 100, 40), Box(0, 45, 100, 100)]
    (box,) = places([Label(50, 50, 40, 13)], Box(0, 0, 100, 100), full)
    assert box.overlap(full[0]) + box.overlap(full[1]) <= 40 * 8.5


def test_a_frame_that_is_too_small() -> None:
    """A label wider than the frame lies on its point."""
    (box,) = places([Label(5, 5, 40, 13)], Box(0, 0, 10, 10), [])
    assert box.middle == (5, 5)
