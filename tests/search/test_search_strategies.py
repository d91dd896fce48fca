"""The strategies: what each tries, in which order, and that the same seed gives the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_machines import Bench, Time, bowl, foreseen, grid

from asmtune.core.config import Config
from asmtune.tuning.search.base import BatchSizes, Limits, SearchResult
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.model import make_strategy
from asmtune.tuning.search.state import SearchState

SPACE = grid(6, 6, 6)
BEST = Config({"A": 256, "B": 32, "C": 128})
TIME = bowl(A=256, B=32, C=128)


def searched(
    name: str, time: Time, *, seed: int = 0, space: list[Config] = SPACE
) -> tuple[SearchResult, Bench]:
    """Search without limits; return the result, and what was asked for in it."""
    bench = Bench(time)
    strategy = make_strategy(name, seed, pace=BatchSizes(first=16, batch=8, trial=8))
    return run(strategy, SearchState(foreseen(space), space[0]), bench, bench, Limits()), bench


def test_exhaustive_goes_through_the_space_in_order() -> None:
    """Everything is compiled and timed, in the space's order."""
    ended, bench = searched("exhaustive", TIME)
    assert bench.noted("start") == bench.noted("trial") == SPACE
    assert ended.finalists[0].config == BEST


def test_model_finds_the_best_by_few() -> None:
    """From the axes alone the model finds the best of a smooth space by a part of it, and stops."""
    space = grid(8, 8, 8)
    ended, bench = searched("model", TIME, space=space)
    assert ended.finalists[0].config == BEST
    assert len(bench.noted("trial")) <= len(bench.noted("start")) < len(space) / 3
    assert ended.reason.startswith("expected gain ")
    assert ended.reason.endswith(" under 2.0%")


@pytest.mark.parametrize("name", ["model", "exhaustive"])
def test_same_seed_same_search(name: str) -> None:
    """Two searches of one seed ask for the same configs in the same order, and end alike."""
    (one, first), (other, second) = searched(name, TIME, seed=5), searched(name, TIME, seed=5)
    assert first.events == second.events
    assert one == other


@settings(max_examples=40)
@given(
    name=st.sampled_from(["model", "exhaustive"]),
    space=st.lists(
        st.builds(
            Config,
            st.fixed_dictionaries(
                {"BLOCK": st.sampled_from([16, 32, 64]), "FLAG": st.booleans()},
                optional={"WAY": st.sampled_from(["a", "b"])},
            ),
            num_warps=st.sampled_from([1, 2, 4, 8]),
            maxnreg=st.sampled_from([None, 64, 128]),
        ),
        min_size=1,
        max_size=30,
        unique=True,
    ),
    seed=st.integers(0, 3),
)
def test_any_space(name: str, space: list[Config], seed: int) -> None:
    """In any space nothing is tried twice or from elsewhere, and the fastest tried is named."""

    def time(config: Config) -> float:
        return 1.0 + random.Random(f"{seed} {config}").random()

    ended, bench = searched(name, time, seed=seed, space=space)
    started, timed = bench.noted("start"), bench.noted("trial")
    assert len(set(started)) == len(started)
    assert len(set(timed)) == len(timed)
    assert set(timed) <= set(started) <= set(space)
    assert ended.finalists[0].config == min(timed, key=time)
