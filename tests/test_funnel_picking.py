"""The model's first pick: what is sketched and compiled for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.picking import COMPILES, first_pick
from asmtune.predict.score.scorers import make_scorer
from tests.tuning_support import problem, space


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
