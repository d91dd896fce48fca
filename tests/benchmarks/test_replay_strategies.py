"""Strategies over recorded timings: the shares they keep, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.oracle import load_oracle
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.tuning.search.base import BatchSizes, Limits
from asmtune.tuning.search.strategies import STRATEGIES
from benchmarks.replay_strategies import (
    PlanResult,
    RecordedTimer,
    Replayed,
    ReplayPlan,
    SearchPoint,
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


def test_share_within_a_budget_by_hand(funnel: Funnel) -> None:
    """Within its first configs, a search in the file's order keeps what the best of them has."""
    (result,) = replayed(funnel, ReplayPlan("all", "exhaustive", STEP, Limits(compiles=4)))
    returns = result.searches[2]
    # Recorded as 16, 8, 20, ... ms; the best of the task is 2.
    first = [row.ms for row in ORACLE.tasks[2].rows[:4] if row.ms is not None]
    assert returns.marks[-1] == SearchPoint(4, 4, pytest.approx(2.0 / min(first)))
    assert returns.reason == "budget: 4 configs compiled"


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


def test_curve_is_of_the_last_trial_within() -> None:
    """A curve has, at each budget that every search had a trial in, the last that was reached."""
    (task, other, _) = ORACLE.tasks
    one = Replayed(
        task, (SearchPoint(16, 8, 0.5), SearchPoint(40, 30, 0.8), SearchPoint(64, 50, 1.0)), ""
    )
    two = Replayed(other, (SearchPoint(30, 20, 0.8),), "")
    curve = PlanResult(ReplayPlan("plan"), (one, two)).curve()
    assert 16 not in curve
    assert curve[32] == {"kept": round((0.5 * 0.8) ** 0.5, 4), "worst": 0.5}
    assert curve[48] == {"kept": 0.8, "worst": 0.8}
    assert curve[64]["kept"] == round(0.8**0.5, 4)


def test_noise_is_the_seeds() -> None:
    """A config's timing differs with the seed by some percent, and is the same when asked again."""
    rows = {row.config: row for row in ORACLE.tasks[2].rows}
    verdicts = [Verdict(config, True) for config in rows]
    timings = [dict(RecordedTimer(rows, seed).trial(verdicts)) for seed in (0, 0, 1)]
    assert timings[0] == timings[1] != timings[2]
    for config, row in rows.items():
        timing = timings[0][config]
        assert isinstance(timing, Measurement)
        assert timing.median_us == pytest.approx((row.ms or 0.0) * 1e3, rel=0.1)
