"""The loop: what is compiled and timed when, what is told, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_machines import Bench, bowl, foreseen, grid, measured

from asmtune.core.config import Config
from asmtune.core.records.verdicts import Features, Reason, Verdict
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.search.base import BatchSizes, Limits, Proposal, SearchResult
from asmtune.tuning.search.loop import batch_of, run
from asmtune.tuning.search.model import make_strategy
from asmtune.tuning.search.state import PRIOR_GAIN, SearchState

SPACE = grid(5, 5)
DEFAULT, BEST = SPACE[0], Config({"A": 128, "B": 64})
TIME = bowl(A=128, B=64)
PACE = BatchSizes(first=6, batch=4, trial=4)


def searched(
    state: SearchState, bench: Bench, limits: Limits | None = None, strategy: str = "exhaustive"
) -> SearchResult:
    """Run the loop once."""
    chosen = make_strategy(strategy, pace=PACE)
    return run(chosen, state, bench, bench, limits or Limits())


def ticking(step: float) -> Iterator[float]:
    """A clock that advances each time it is looked at."""
    now = 0.0
    while True:
        yield now
        now += step


def test_workers_compile_while_the_gpu_times() -> None:
    """The next batch begins before the configs of the last one are timed."""
    bench = Bench(TIME)
    searched(SearchState(foreseen(SPACE), DEFAULT), bench)
    names = [name for name, _ in bench.events]
    assert names[:6] == ["start", "collect", "start", "trial", "collect", "start"]
    assert names[-1] == "trial"
    second = bench.events[2][1]
    assert not set(second) & set(bench.events[3][1])


def test_default_and_seeds_come_first() -> None:
    """The first batch and the first trial begin with the default and the seeds, in this order."""
    bench, default, seeds = Bench(TIME), SPACE[13], (SPACE[20], SPACE[9])
    searched(SearchState(foreseen(SPACE), default, seeds), bench)
    (_, batch), (_, trial) = bench.events[0], bench.events[3]
    assert batch[:3] == trial[:3] == [default, *seeds]
    assert len(batch) == PACE.first
    assert len(set(bench.noted("start"))) == len(bench.noted("start")) == len(SPACE)


def test_ends_with_reason_and_finalists() -> None:
    """The fastest are named, fastest first, with the default behind where it is not one."""
    ended = searched(SearchState(foreseen(SPACE), DEFAULT), Bench(TIME), Limits(finalists=3))
    assert ended.reason == "all 25 configs tried"
    assert ended.finalists[0].config == BEST
    assert [v.config for v in ended.finalists][-1] == DEFAULT
    assert len(ended.finalists) == 4
    assert all(v.artifact for v in ended.finalists)
    ended = searched(SearchState(foreseen(SPACE), BEST), Bench(TIME), Limits(finalists=3))
    assert len(ended.finalists) == 3


@settings(max_examples=40)
@given(
    compiles=st.none() | st.integers(0, 30),
    name=st.sampled_from(["exhaustive", "model"]),
)
def test_limits_hold(compiles: int | None, name: str) -> None:
    """No limit is passed, but that the default is always compiled and timed; the reason says so."""
    bench, state = Bench(TIME), SearchState(foreseen(SPACE), DEFAULT)
    ended = searched(state, bench, Limits(compiles=compiles), name)
    most = max(1, 25 if compiles is None else compiles)
    assert len(bench.noted("trial")) <= len(bench.noted("start")) == state.compiles <= most
    assert DEFAULT in state.timings
    assert ended.reason


def test_seconds_spent() -> None:
    """A limit of seconds ends the search after a trial, and the batch under way is left alone."""
    clock = ticking(1.0)
    state = SearchState(foreseen(SPACE), DEFAULT, clock=lambda: next(clock))
    bench = Bench(TIME)
    ended = searched(state, bench, Limits(seconds=2.0))
    assert ended.reason == "budget: 2 s spent"
    assert [name for name, _ in bench.events][-1] == "trial"
    assert state.pending
    assert ended.finalists


def test_nothing_compiles() -> None:
    """Where no config compiles all are tried, and the end says what most fail with."""
    bench = Bench(TIME, broken=SPACE)
    ended = searched(SearchState(foreseen(SPACE), DEFAULT), bench, strategy="model")
    assert ended.finalists == ()
    assert ended.reason.startswith(f"none of 25 configs tried ran: 25 fail as {DEFAULT} does: ")
    assert "registers at ptx" in ended.reason
    assert bench.noted("trial") == []


def test_failures_cost_themselves_alone() -> None:
    """The best of what runs is found among configs that fail to compile or to launch."""
    broken, refused = SPACE[:8], SPACE[20:]
    bench, state = Bench(TIME, broken, refused), SearchState(foreseen(SPACE), DEFAULT)
    ended = searched(state, bench)
    assert ended.finalists[0].config == BEST
    assert set(state.failures) == {*broken, *refused}
    assert not set(bench.noted("trial")) & set(broken)


def test_a_space_ranked_by_a_sample() -> None:
    """The first batch is timed, then the space is ranked again, and only then the next begins.

    A config that the later verdicts drop is no candidate any more, unless it was tried.
    """
    bench, tried = Bench(TIME), SPACE[:6]
    dropped = [Verdict(c, False, "rules", reasons=(Reason("r", "t"),)) for c in (SPACE[3], BEST)]

    def later() -> list[Verdict]:
        bench.events.append(("later", []))
        return dropped

    state = SearchState(foreseen(SPACE), DEFAULT, later=later)
    searched(state, bench)
    names = [name for name, _ in bench.events]
    assert names[:5] == ["start", "collect", "trial", "later", "start"]
    assert names.count("later") == 1
    assert bench.events[0][1] == tried
    assert set(state.configs) == set(SPACE) - {BEST}
    assert set(bench.noted("trial")) == set(state.configs)


def test_long_compiles_begin_first() -> None:
    """A batch is in the order of its sketches' instructions, what has no sketch before all."""
    told = foreseen(SPACE)
    for place in range(1, len(told)):
        told[place] = replace(told[place], features=Features({"instructions": 100.0 * place}))
    state, limits = SearchState(told, DEFAULT), Limits()
    proposal = Proposal(tuple(SPACE[:8]))
    assert batch_of(proposal, state, limits) == [SPACE[0], *SPACE[7:0:-1]]
    few = batch_of(proposal, state, Limits(compiles=3), [DEFAULT])
    assert few == [SPACE[0], SPACE[2], SPACE[1]]  # those that were proposed first
    assert batch_of(proposal, SearchState(foreseen(SPACE), DEFAULT), limits) == SPACE[:8]


def test_expected_gains_are_trusted_as_far_as_they_came() -> None:
    """What is expected of a batch counts against the model once it is timed and gained less."""
    state = SearchState(foreseen(SPACE), DEFAULT)

    def trust_after(batch: Sequence[Config], gain: float | None, us: float) -> list[float]:
        seen = []
        state.begin_batch(batch, gain)
        state.add_verdicts(foreseen(batch))
        seen.append(state.trust)
        state.add_outcomes([(config, measured(config, us)) for config in batch])
        return [*seen, state.trust]

    assert trust_after(SPACE[:4], None, 100.0) == [1.0, 1.0]
    assert trust_after(SPACE[4:8], PRIOR_GAIN, 100.0) == [1.0, 0.5]
    assert trust_after(SPACE[8:9], PRIOR_GAIN, 50.0) == [0.5, 1.0]  # more than was expected


@pytest.mark.parametrize("limits", [Limits(seconds=1.0), Limits(compiles=6)], ids=str)
def test_a_spent_budget_waits_for_no_ranking(limits: Limits) -> None:
    """Later verdicts, which may take seconds, are left out where they can change nothing."""
    clock = partial(next, ticking(1.0))
    state = SearchState(
        foreseen(SPACE), DEFAULT, clock=clock, later=lambda: pytest.fail("waited for")
    )
    ended = searched(state, Bench(TIME), limits)
    assert ended.reason.startswith("budget: ")
    assert ended.finalists


def test_a_listener_hears_each_stage() -> None:
    """The search begins; batches and trials come with the gain that is expected."""
    watch, bench, state = (
        Mock(spec=TuningListener),
        Bench(TIME),
        SearchState(foreseen(SPACE), DEFAULT),
    )
    run(make_strategy("model", pace=PACE), state, bench, bench, Limits(), watch)
    names = [name for name, *_ in watch.method_calls]
    assert names[:3] == ["search_started", "batch", "trial"]
    outcomes, gains = zip(*(one.args for one in watch.trial.call_args_list), strict=True)
    assert [config for trial in outcomes for config, _ in trial] == list(state.timings)
    assert gains[0] is None
    assert any(gain is not None and gain > 0.0 for gain in gains)
