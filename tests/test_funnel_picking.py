"""The model's first pick: what is sketched and compiled for it, and which problems are small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.picking import COMPILES, SAMPLE, bytes_us, first_pick, small_pick
from asmtune.predict.score.roofline import LAUNCH_US
from asmtune.predict.score.scorers import make_scorer
from tests.tuning_support import problem, space

WIDE = Space(
    {
        "BLOCK": (64, 128, 256, 512, 1024),
        "FLAW": (0,),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (2, 3),
    }
)


@pytest.fixture
def funnel(empty_settings: Settings) -> Funnel:
    """A funnel with an empty cache that ranks by the roofline."""
    return Funnel(load_target("H200"), make_scorer("roofline"), empty_settings)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Config]]:
    """The configs that were sketched and compiled."""
    seen: dict[str, list[Config]] = {"sketch": [], "assembly": []}
    plain = ProblemAnalysis.verdicts

    def noted(self: ProblemAnalysis, configs: Sequence[Config], moment: Any, known: Any) -> Any:
        seen[moment] += configs
        return plain(self, configs, moment, known)

    monkeypatch.setattr(ProblemAnalysis, "verdicts", noted)
    return seen


def test_all_are_sketched_and_few_compiled(funnel: Funnel, asked: dict[str, list[Any]]) -> None:
    """Of a space each config is sketched; the best and the default are compiled; rank 1 wins."""
    pick = first_pick(funnel, problem(), space())
    assert sorted(map(str, asked["sketch"])) == sorted(map(str, space()))
    assert COMPILES <= len(asked["assembly"]) <= COMPILES + 2
    assert pick.config in asked["assembly"]
    assert (pick.rank, pick.kept) == (1, True)
    assert pick.predicted_us is not None
    again = first_pick(funnel, problem(), space())
    assert again == pick


def test_a_small_problem_sketches_a_sample(funnel: Funnel, asked: dict[str, list[Any]]) -> None:
    """Of a larger space as many as a sample has are sketched, the default among them."""
    pick = small_pick(funnel, problem(), WIDE, 2 * LAUNCH_US)
    assert pick is not None
    assert pick.predicted_us is not None
    assert pick.predicted_us < 2 * LAUNCH_US
    assert len(set(asked["sketch"])) == SAMPLE < len(list(WIDE))
    assert WIDE.first(n=4096) in asked["sketch"]
    assert len(asked["assembly"]) <= COMPILES + 2


def test_one_sketch_tells_a_long_problem(funnel: Funnel, asked: dict[str, list[Any]]) -> None:
    """Where the default takes far longer than the limit leaves, no other config is sketched."""
    limit_us = LAUNCH_US + 0.1
    assert bytes_us(problem(), funnel.target) < limit_us
    assert small_pick(funnel, problem(), WIDE, limit_us) is None
    assert asked["sketch"] == [WIDE.first(n=4096)]
    assert asked["assembly"] == []


def test_bytes_alone_tell_a_large_problem(funnel: Funnel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that moves too many bytes is not looked at any further."""
    monkeypatch.setattr(ProblemAnalysis, "verdicts", None)
    large = problem(1 << 23)
    assert small_pick(funnel, large, WIDE, 6.8) is None
    # Three tensors of 32 MiB, at what an H200's memory was measured to give.
    rate = funnel.target.measured_dram_bytes_per_s
    assert rate is not None
    assert bytes_us(large, funnel.target) == pytest.approx(LAUNCH_US + 3 * (1 << 25) / rate * 1e6)
