"""How many to keep: the forms of it, and what each selects of a ranking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Selection
from asmtune.predict.score import keep
from asmtune.predict.score.error import Errors
from asmtune.predict.score.keep import AIM, UNMEASURED, Keep
from benchmarks.measured_error import RankedTask, error_table

GAPS = st.lists(st.floats(0.0, 4.0), min_size=1, max_size=300).map(
    lambda gaps: [0.0, *sorted(gaps)]
)


FORMS = {"auto": Keep(), " 20 ": Keep(20), "5%": Keep(percent=5.0), "2.5%": Keep(percent=2.5)}


def test_forms() -> None:
    """auto, a number and a share are read, and written as they are read."""
    for text, made in FORMS.items():
        assert Keep.of(text) == Keep.of(made) == Keep.of(str(made)) == made
        assert str(made) == text.strip()
    assert Keep.of(7) == Keep(7)


@pytest.mark.parametrize(
    "value",
    ["0", "-3", "150%", "0%", "5 %", "%", "1.5", "1e3", "٣", "9" * 5000, 0, True, "auto\n20"],
)
def test_no_forms(value: str | int) -> None:
    """Anything else is refused in one line that says what to give."""
    with pytest.raises(InputError, match=r"^keep .*; give auto, a number such as 20") as caught:
        Keep.of(value)
    assert "\n" not in str(caught.value)


@given(GAPS, st.integers(1, 400))
def test_a_number(gaps: list[float], count: int) -> None:
    """A number keeps so many, or all there are, which cannot drop the best."""
    selection = Keep(count).select(gaps, "roofline")
    assert selection.ranks == min(count, len(gaps))
    assert selection.expected_share is not None
    assert selection.chance_dropped is not None
    if count >= len(gaps):
        assert (selection.expected_share, selection.chance_dropped) == (1.0, 0.0)


def test_auto_takes_all_of_few() -> None:
    """Up to the count that its aim needs `auto` leaves none out; a number may."""
    count = int(keep.table_of("roofline", "assembly").cut_for(AIM).count)
    ways = [(Keep(), count), (Keep(), count + 1), (Keep(3), 1)]
    assert [own.takes_all(n, "roofline", "assembly") for own, n in ways] == [True, False, False]


def told(*slow_first: float) -> Errors:
    """The error of a scorer, "mine", whose rankings begin with these slowdowns."""
    slow = [*slow_first, 0.0, *([0.5] * 50)]
    scores = [-0.09 * rank for rank in range(len(slow))]
    table = error_table([RankedTask("a", scores, slow)])
    return Errors(("a GPU",), {}, {("mine", "assembly"): table})


def test_auto_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best came eighth, 0.63 behind, auto keeps up to ten within 0.7 of the first."""
    monkeypatch.setattr(keep, "shipped_errors", lambda: told(*[0.3] * 7))
    steep = [0.01 * rank for rank in range(5)] + [1.0] * 95
    flat = [0.001 * rank for rank in range(100)]
    assert Keep().select(steep, "mine").ranks == 5
    selection = Keep().select(flat, "mine")
    assert (selection.ranks, selection.expected_share, selection.chance_dropped) == (10, 1.0, 0.0)
    assert selection.source == "mine on 1 tasks of 1 kernels recorded on a GPU"


@given(GAPS)
def test_auto_reaches_its_aim(gaps: list[float]) -> None:
    """By the tables that ship, auto states its aim or more, and keeps five or all."""
    for scorer in ("learned", "roofline"):
        selection = Keep().select(gaps, scorer)
        assert selection.expected_share is not None
        assert selection.expected_share >= AIM
        assert selection.ranks >= min(5, len(gaps))
        assert selection.keep == "auto"


def test_a_scorer_without_a_table() -> None:
    """Its number is kept without a word of its worth; auto is refused, and not the default."""
    selection = Keep(2).select([0.0, 1.0, 2.0], "chance")
    assert (selection.expected_share, selection.chance_dropped) == (None, None)
    with pytest.raises(InputError, match=r"error of chance was never.*by learned or roofline"):
        Keep().select([0.0, 1.0, 2.0], "chance")
    assert Keep.default("chance") == Keep(UNMEASURED)
    assert Keep.default("roofline") == Keep()
    Keep(3).check("chance")


@pytest.mark.parametrize(("sketched", "ranks", "part"), [(25, 9, "quarter"), (20, 10, "tenth")])
def test_a_part_that_was_sketched_promises_less(
    sketched: int, ranks: int, part: str, target: Target
) -> None:
    """What was lost where a part was sketched comes off the share, and adds to the chance."""
    whole = Selection("auto", ranks, 0.9, 0.2, "tasks", low_share=0.8)
    share, low, dropped = keep.MOST_LOST[part][ranks >= 10]
    found = keep.of_whole_space(whole, sketched, 100 - sketched, target)
    numbers = (found.expected_share, found.low_share, found.chance_dropped)
    assert numbers == pytest.approx((0.9 - share, 0.8 - low, 0.2 + dropped))
    untold = keep.of_whole_space(Selection("20", 20), sketched, 1, target)
    assert untold.expected_share is None
