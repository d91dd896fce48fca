"""Several GPUs at once, each stood for by a real process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench.child_bench import Team
from tests.bench.bench_support import CHILD, entrant, setup


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """Two GPUs of one model, that have begun with a right config of 10 us."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = Team(setup(), [0, 1], command=(*CHILD, "names:H200,H200"))
    config, outcome = made.begin(entrant("good"))
    assert config == entrant("good").config
    assert isinstance(outcome, Measurement)
    yield made
    made.close()


def told(outcomes: list[Any]) -> list[Any]:
    """Medians, and the kinds of failures."""
    return [r.kind if isinstance(r, Failure) else r.median_us for _, r in outcomes]


def child_of(team: Team, member: int) -> int:
    """The process id of a member's child."""
    session = team._members[member]._children._session
    assert session is not None
    return session._child.pid


@pytest.mark.slow
def test_outcomes_come_in_the_order_of_the_entrants(team: Team) -> None:
    """Shares of two GPUs, one of whose processes dies, are put together as asked."""
    assert team.device == "H200"
    modes = ["good", "wrong", "good", "segfault", "nothing", "good", "good"]
    entrants = [entrant(mode, 1.0 + place) for place, mode in enumerate(modes)]
    outcomes = team.trial(entrants)
    assert [config for config, _ in outcomes] == [e.config for e in entrants]
    assert told(outcomes) == [1.0, "wrong_output", 3.0, "crash", "unwritten", 6.0, 7.0]
    assert told(team.final([entrants[5], entrants[2]])) == [6.0, 3.0]
    assert [bool(member.notes) for member in team._members] == [False, True]
    assert told(team.trial([entrant("good", 2.0)])) == [2.0]
    assert team.trial([]) == []
    assert team.energy(entrant("good", 5.0)) == 0.005


@pytest.mark.slow
def test_a_gpu_that_is_lost_leaves(team: Team) -> None:
    """The other one times its share, and finals if it was the first; that is noted."""
    entrants = [entrant("good", 1.0 + place) for place in range(4)]
    lose(team)
    assert told(team.trial(entrants)) == [1.0, 2.0, 3.0, 4.0]
    assert "without one GPU: the process that times on GPU 0 died 3 times" in team.notes[-1]
    assert told(team.final(entrants[:2])) == [1.0, 2.0]
    lose(team)
    with pytest.raises(MeasureError, match="GPU 1 died 3 times"):
        team.final(entrants)


def lose(team: Team) -> None:
    """Kill the child of the first member, and let no other start."""
    team._members[0]._children.command = ("false",)
    os.kill(child_of(team, 0), signal.SIGKILL)


@pytest.mark.slow
def test_gpus_of_two_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their timings do not compare; the message lists who is what."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(InputError, match=r"\(GPU 0: H200, GPU 1: A100\)"):
        Team(setup(), [0, 1], command=(*CHILD, "names:H200,A100"))


@pytest.mark.slow
def test_a_gpu_that_does_not_open_stops_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by the user, it must be there; the error is its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(InputError, match="GPU 1: CUDA_VISIBLE_DEVICES=0 shows 1"):
        Team(setup(), [0, 1], command=(*CHILD, "names:H200"))
