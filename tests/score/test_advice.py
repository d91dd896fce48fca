"""What to try: which config is named, and that it does what is said and is predicted faster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.roofline import (
    ADVICE,
    FASTER,
    HELPS,
    SPILLS,
    SPILLS_FEED,
    changed,
    nearest,
    suggestions,
)


def verdict(
    us: float, rank: int | None = 1, bottleneck: str = "latency", **values: float
) -> Verdict:
    """A config with some stages and warps, which are features too."""
    stages, warps = int(values.get("num_stages", 3)), int(values.get("num_warps", 4))
    features = Features({**dict.fromkeys(FEATURES, 0.0), "num_stages": stages, **values})
    return Verdict(
        Config({"BLOCK": int(values.get("programs", 1))}, num_warps=warps, num_stages=stages),
        kept=True,
        rank=rank,
        features=features,
        predicted_us=us,
        bottleneck=bottleneck,
    )


def test_every_bottleneck_is_known() -> None:
    """Each piece of advice has what tells a config that follows it, or None."""
    assert HELPS.keys() == ADVICE.keys()
    assert ADVICE.keys() >= SPILLS_FEED


def test_the_fewest_changes_come_first() -> None:
    """One axis that is changed goes before a faster config with two; then the fastest."""
    own = verdict(100.0, num_stages=2)
    one = verdict(90.0, num_stages=3)
    faster = verdict(80.0, num_stages=4)
    two = verdict(10.0, num_stages=4, num_warps=8)
    first, second = suggestions(own, [own, one, two, faster])
    assert first.verdict is faster
    assert second.verdict is None
    assert second.possible
    assert (first.text, second.text) == ADVICE["latency"]


def test_two_suggestions_name_two_configs() -> None:
    """What follows both pieces of advice stands for one of them."""
    own = verdict(100.0, num_stages=2, programs=8)
    both = verdict(50.0, num_stages=3, programs=16)
    other = verdict(60.0, num_stages=2, programs=32, num_warps=8)
    first, second = suggestions(own, [both, other])
    assert (first.verdict, second.verdict) == (both, other)


@given(st.floats(1, 1e6), st.floats(0.5, 1.5), st.booleans())
def test_named_configs_are_ranked_and_faster(us: float, factor: float, ranked: bool) -> None:
    """What cannot run, or is predicted to gain less than a hundredth, is never named."""
    own = verdict(us, num_stages=2)
    other = verdict(us * factor, 1 if ranked else None, num_stages=3)
    first, _ = suggestions(own, [own, other])
    assert (first.verdict is other) == (ranked and us * factor < us * (1 - FASTER))


@pytest.mark.parametrize("bottleneck", sorted(SPILLS_FEED))
def test_spills_come_first(bottleneck: str) -> None:
    """Where registers spill, a config that spills less is looked for first."""
    own = verdict(100.0, bottleneck=bottleneck, spill_words=40)
    less = verdict(50.0, spill_words=4, num_warps=8)
    first, second = suggestions(own, [less])
    assert (first.text, first.verdict) == (SPILLS[0], less)
    assert second.text == ADVICE[bottleneck][0]


def test_nothing_to_try_without_a_prediction() -> None:
    """A config that did not compile has no bottleneck."""
    assert suggestions(Verdict(Config({}), False, "compile"), [verdict(1.0)]) == ()


def test_nearest_is_never_the_config_itself() -> None:
    """Nor anything where there is no other."""
    own = verdict(5.0)
    assert nearest(own.config, [own]) is None
    assert changed(own.config, own.config) == 0
