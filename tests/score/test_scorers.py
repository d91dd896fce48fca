"""Scorers: the formula as proposed, chance, and the table of names."""

from __future__ import annotations

import statistics

import pytest

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer


def candidate(**values: float) -> Candidate:
    """A compiled candidate with all features at zero but those given."""
    features = Features({**dict.fromkeys(FEATURES, 0.0), **values})
    return Candidate(Config({}), load_target("H200"), features=features)


def test_weights_by_hand() -> None:
    """10 mma.sync + 2 cp.async - 30 bar.sync - 5 (bra + ret), and nothing else counts."""
    candidates = [
        candidate(text_mma_sync=64, text_cp_async=12, text_bar_sync=3, text_bra=4, text_ret=2),
        candidate(text_wgmma=64, text_tcgen05_mma=8, instructions=900),
        candidate(text_ret=1),
    ]
    assert make_scorer("weights").score(candidates) == [544.0, 0.0, -5.0]


def test_weights_of_what_was_not_compiled() -> None:
    """A candidate without assembly comes last."""
    bare = Candidate(Config({}), load_target("H200"))
    scores = make_scorer("weights").score([bare, candidate(text_bar_sync=1000)])
    assert scores[0] < scores[1]


def test_chance_is_uniform_and_seeded() -> None:
    """Equal draws are equal, different ones differ, and the mean is a half."""
    chance, many = make_scorer("chance"), [candidate()] * 5000
    first = chance.score(many, 3)
    assert first == make_scorer("chance").score(many, 3)
    assert first != chance.score(many, 4)
    assert all(0 <= score < 1 for score in first)
    assert statistics.mean(first) == pytest.approx(0.5, abs=0.02)
    assert chance.draws > 100


def test_an_unknown_scorer() -> None:
    """An unknown name is refused with the list and the nearest."""
    with pytest.raises(InputError, match=r"unknown scorer 'weight': .*did you mean weights\?"):
        make_scorer("weight")
