"""Scorers: chance, points, the table of names, and those of other packages."""

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
from asmtune.predict.score.scorers import make_scorer, scorer_names


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
    assert "on 51 recorded tasks (NVIDIA H200" in note
    assert "weights 0." in note


BAD_POINTS = (
    *(None, "{", "[1]", "{}", '{"text_bar": 1}', '{"text_bra": "5"}'),
    *('{"text_bra": true}', '{"text_bra": 1e999}'),
)


@pytest.mark.parametrize("text", BAD_POINTS)
def test_a_bad_file_of_points(tmp_path: Path, text: str | None) -> None:
    """Each is refused in one line that names the file."""
    path = tmp_path / "points.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"^--scorer weights:.*points\.json: ") as raised:
        make_scorer(f"weights:{path}")
    assert "\n" not in str(raised.value)


PACKAGE = """
from asmtune.predict.score.scorer import Scorer

class Small(Scorer):
    name = "small"
    def score(self, candidates, draw=0):
        return [-c.config.num_warps for c in candidates]

def broken():
    raise OSError("no model")
"""


def test_a_scorer_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points name scorers; one that names something else, or fails, is refused."""
    (tmp_path / "small_scorer.py").write_text(PACKAGE)
    about = tmp_path / "small_scorer-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: small-scorer\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[asmtune.scorers]\nsmall = small_scorer:Small\nother = small_scorer:Small\n"
        "broken = small_scorer:broken\ngone = small_scorer:gone\nroofline = small_scorer:Small\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert scorer_names() == ("learned", "roofline", "weights", "chance", "small", *_OTHERS)
    configs = [Config({}, num_warps=warps) for warps in (8, 4)]
    candidates = [Candidate(config, load_target("H200")) for config in configs]
    assert make_scorer("small").score(candidates) == [-8, -4]
    assert type(make_scorer("roofline")).__name__ == "Roofline"
    with pytest.raises(InputError, match="whose name is 'other'"):
        make_scorer("other")
    with pytest.raises(
        InputError, match=r"scorer broken \(small_scorer:broken\): OSError: no model"
    ):
        make_scorer("broken")
    with pytest.raises(InputError, match=r"scorer gone .*AttributeError"):
        make_scorer("gone")
    with pytest.raises(InputError, match=r"unknown scorer 'smal': .*did you mean small\?"):
        make_scorer("smal")


_OTHERS = ("other", "broken", "gone")
