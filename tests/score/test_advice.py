"""Suggestions: each is a change of axes that the model predicts to be faster, or there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.score.roofline import FASTER, changed_axes, nearest, suggestions


def verdict(us: float, rank: int | None = 1, **axes: int) -> Verdict:
    """A config of some axes with a predicted time, most of it waiting."""
    options = {name: axes.pop(name) for name in ("num_warps", "num_stages") if name in axes}
    terms = {"latency": us - 1.0, "DRAM": 1.0}
    config = Config({"BLOCK": 64, **axes}, **options)
    return Verdict(config, True, rank=rank, predicted_us=us, bottleneck="latency", terms_us=terms)


def test_the_fewest_changes_come_first() -> None:
    """One axis that is changed goes before a faster config with two; of one axis the fastest."""
    own = verdict(100.0, num_stages=2)
    slower = verdict(90.0, num_stages=3)
    one = verdict(80.0, num_stages=4)
    two = verdict(10.0, num_stages=4, num_warps=8)
    first, second = suggestions(own, [own, slower, two, one])
    assert (first.verdict, second.verdict) == (one, two)
    assert (first.term, first.term_us) == ("latency", (99.0, 79.0))


def test_a_further_axis_must_gain() -> None:
    """A change that only adds an axis to another, and is no faster, is not suggested."""
    own, one = verdict(100.0, num_stages=2), verdict(80.0, num_stages=4)
    more = verdict(80.0, num_stages=4, num_warps=8)
    assert [each.verdict for each in suggestions(own, [more, one])] == [one]


@given(st.floats(1, 1e6), st.floats(0.5, 1.5), st.booleans())
def test_suggested_configs_are_ranked_and_faster(us: float, factor: float, ranked: bool) -> None:
    """A config that cannot run, or is predicted to gain less than a hundredth, is never named."""
    own = verdict(us, num_stages=2)
    other = verdict(us * factor, 1 if ranked else None, num_stages=3)
    named = [each.verdict for each in suggestions(own, [own, other])]
    assert named == [other] * (ranked and us * factor < us * (1 - FASTER))


def test_nearest_is_never_the_config_itself() -> None:
    """Nor anything where there is no other."""
    own = verdict(5.0)
    assert nearest(own.config, [own]) is None
    assert changed_axes(own.config, own.config) == frozenset()
