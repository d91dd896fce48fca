"""Scorers: chance, and the table of names."""

from __future__ import annotations

import statistics

import pytest

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer


def test_chance_is_uniform_and_seeded() -> None:
    """Equal draws are equal, different ones differ, and the mean is a half."""
    chance, many = make_scorer("chance"), [Candidate(Config({}), load_target("H200"))] * 5000
    first = chance.score(many, 3)
    assert first == make_scorer("chance").score(many, 3)
    assert first != chance.score(many, 4)
    assert all(0 <= score < 1 for score in first)
    assert statistics.mean(first) == pytest.approx(0.5, abs=0.02)
    assert chance.draws > 100


def test_an_unknown_scorer() -> None:
    """An unknown name is refused with the list and the nearest."""
    with pytest.raises(InputError, match=r"unknown scorer 'rooflin': .*did you mean roofline\?"):
        make_scorer("rooflin")
