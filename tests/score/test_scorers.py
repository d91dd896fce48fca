"""Scorers: the formula as proposed, chance, and the table of names."""

from __future__ import annotations

import statistics

import pytest

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Features
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.score.scorer import Candidate
from asmtune.predict.score.scorers import make_scorer, scorer_names
from tests.sample_kernels import product_problem


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


def test_weights_on_real_assembly(target: Target, settings: Settings) -> None:
    """On a compiled product the score is what counting words in its PTX by hand gives."""
    tile = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}
    request = Lowering(product_problem(), target, 30).request(Config(tile))
    assert isinstance(request, LowerRequest)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    words = [word for line in artifact.outputs["ptx"].splitlines() for word in line.split()]

    def count(mnemonic: str) -> int:
        return sum(
            word.rstrip(";") == mnemonic or word.startswith(f"{mnemonic}.") for word in words
        )

    by_hand = (
        10 * count("mma.sync")
        + 2 * count("cp.async")
        - 30 * count("bar.sync")
        - 5 * (count("bra") + count("ret"))
    )
    assert count("mma.sync") > 0
    assert count("cp.async") > 0
    static = ProfileReader(target)(artifact).static
    compiled = Candidate(Config(tile), target, features=Features(static))
    assert make_scorer("weights").score([compiled]) == [by_hand]


def test_chance_is_uniform_and_seeded() -> None:
    """Equal draws are equal, different ones differ, and the mean is a half."""
    chance, many = make_scorer("chance"), [candidate()] * 5000
    first = chance.score(many, 3)
    assert first == make_scorer("chance").score(many, 3)
    assert first != chance.score(many, 4)
    assert all(0 <= score < 1 for score in first)
    assert statistics.mean(first) == pytest.approx(0.5, abs=0.02)
    assert chance.draws > 100


def test_every_name_makes_its_scorer() -> None:
    """The scorers' names are those that the table knows, `weights` and `chance` among them."""
    assert {"weights", "chance"} <= set(scorer_names())
    assert [make_scorer(name).name for name in scorer_names()] == list(scorer_names())


def test_an_unknown_scorer() -> None:
    """An unknown name is refused with the list and the nearest."""
    with pytest.raises(InputError, match=r"unknown scorer 'weight': .*did you mean weights\?"):
        make_scorer("weight")
