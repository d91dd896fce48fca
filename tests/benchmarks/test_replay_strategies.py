"""Strategies over recorded timings: the shares they keep, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.tuning.search.base import BatchSizes
from asmtune.tuning.search.model import STRATEGIES
from asmtune.workshop.replay.oracle import load_oracle
from benchmarks.replay_strategies import (
    PlanResult,
    ReplayPlan,
    replay_strategies,
)

DATA = Path(__file__).parents[1] / "replay_data"
ORACLE = load_oracle(DATA / "timings.json")
STEP = BatchSizes(first=4, batch=4, trial=4)


@pytest.fixture(scope="module")
def funnel(target: Target, settings: Settings) -> Funnel:
    """The funnel that compiles and reads; its scorer predicts."""
    return Funnel(target, make_scorer("roofline"), settings)


def replayed(funnel: Funnel, *plans: ReplayPlan) -> list[PlanResult]:
    """Over the tasks of the tests."""
    return replay_strategies(ORACLE, DATA / "kernels", funnel, plans)


def test_exhaustive_keeps_everything(funnel: Funnel) -> None:
    """All configs tried keep all of the best speed; what fails costs a compile or a timing."""
    (result,) = replayed(funnel, ReplayPlan("all", "exhaustive", STEP))
    assert [search.marks[-1].kept for search in result.searches] == [1.0, 1.0, 1.0]
    # Of the first task's 6 configs rules drop one, and one does not launch.
    assert [search.marks[-1].compiles for search in result.searches] == [5, 3, 20]
    assert [search.marks[-1].timings for search in result.searches] == [5, 3, 20]
    assert [search.reason for search in result.searches] == [
        f"all {count} configs tried" for count in (5, 3, 20)
    ]


def test_every_strategy_replays(funnel: Funnel) -> None:
    """Each strategy searches each task with each seed, and its numbers come out as JSON."""
    plans = [ReplayPlan(name, name, STEP, seeds=2) for name in STRATEGIES]
    results = replayed(funnel, *plans)
    for result in results:
        assert len(result.searches) == 6
        document = json.loads(json.dumps(result.to_json()))
        assert document["strategy"] == result.plan.name
        assert set(document["kernels"]) == {"barriers", "returns"}
        assert 0.0 < document["all"]["worst"] <= document["all"]["kept"] <= 1.0
        assert document["by_compiles"]["32"]["kept"] == document["all"]["kept"]
    assert results == replayed(funnel, *plans)
