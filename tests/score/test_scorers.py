"""Scorers: chance, points, and the table of names."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
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


def features(**counts: float) -> Features:
    """Features of which a few are not 0."""
    return Features({**dict.fromkeys(FEATURES, 0.0), **counts})


def test_the_terms_of_weights() -> None:
    """A score is the sum of its terms; PTX without mma.sync has those of wgmma or tcgen05."""
    scorer, target = make_scorer("weights"), load_target("H200")
    ampere = features(text_mma_sync=8, text_bra=3, text_wgmma=100)
    assert scorer.points(ampere) == {
        "text_mma_sync": 80, "text_cp_async": 0, "text_bar_sync": 0, "text_bra": -15, "text_ret": 0
    }  # fmt: skip
    for name in ("text_wgmma", "text_tcgen05_mma"):
        assert scorer.points(features(**{name: 4}))["text_mma_sync"] == 40
    candidates = [Candidate(Config({}), target, features=f) for f in (ampere, None)]
    assert scorer.score(candidates) == [65, float("-inf")]
    assert make_scorer("roofline").points(ampere) == {}


def test_points_of_a_file(tmp_path: Path) -> None:
    """A file's points take the place of all others, and nothing is known of their error."""
    path = tmp_path / "points.json"
    path.write_text(json.dumps({"text_wgmma": 2, "regs_per_thread": -0.5}))
    scorer = make_scorer(f"weights:{path}")
    found = scorer.points(features(text_wgmma=3, regs_per_thread=64, text_bra=9))
    assert found == {"text_wgmma": 6, "regs_per_thread": -32}
    assert scorer.notes(load_target("H200")) == ()
    (note,) = make_scorer("weights").notes(load_target("H200"))
    assert "0.545 of the best speed on 51 recorded tasks (H200)" in note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("{", "not whole JSON"),
        ("[1]", r"\[1\]; expected points by feature"),
        ("{}", r"\{\}; expected points by feature"),
        ('{"text_bar": 1}', r"unknown feature 'text_bar'; did you mean text_bra\?"),
        ('{"text_bra": "5"}', 'text_bra is "5"; expected points'),
        ('{"text_bra": true}', "text_bra is true; expected points"),
        ('{"text_bra": 1e999}', "text_bra is Infinity; expected points|not whole JSON"),
    ],
)
def test_a_bad_file_of_points(tmp_path: Path, text: str | None, message: str) -> None:
    """Each is refused in one line that names the file."""
    path = tmp_path / "points.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        InputError, match=rf"--scorer weights:.*points\.json: .*({message})"
    ) as raised:
        make_scorer(f"weights:{path}")
    assert "\n" not in str(raised.value)


def test_an_unknown_scorer() -> None:
    """An unknown name lists the scorers, with the nearest."""
    with pytest.raises(InputError, match=r"unknown scorer 'rofline': .*did you mean roofline\?"):
        make_scorer("rofline")
