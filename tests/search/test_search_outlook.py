"""What the surrogate sees of verdicts and axes: predictions at one level, and places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from search_machines import Bench, bowl, foreseen, grid

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.vectors import features_read
from asmtune.tuning.search.base import Axes, BatchSizes, Limits, Predictor
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.model import ConfigPoints, covering, make_strategy
from asmtune.tuning.search.state import SearchState

TARGET = load_target("H200")
SPACE = grid(8, 8)
SLOWER = 0.1
BEST = Config({"A": 256, "B": 64})
TIME = bowl(A=256, B=64)


class Told(Scorer):
    """Foresees what a feature says: a time, as its score says the logarithm of."""

    name = "told"
    ranks_before_compiling = True

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """Minus what is foreseen."""
        return [-float(np.log((c.features or {})["latency_cycles"])) for c in candidates]


def features(us: float, **others: float) -> Features:
    """All that the columns read, a one each, but for what foretells the time."""
    return Features({**dict.fromkeys(features_read(), 1.0), "latency_cycles": us, **others})


def sketched(of: Sequence[Config] = SPACE, factor: float = 1.0) -> list[Verdict]:
    """Verdicts that foresee the true times, up to a factor."""
    return [replace(v, features=features(factor * TIME(v.config))) for v in foreseen(of)]


def test_places_follow_the_values() -> None:
    """Numbers stand by size, no limit above every limit, and a hand-edited file apart."""
    blocks, caps = (128, 16, 64), (None, 64, 168)
    configs = [Config({"BLOCK": b, "EVEN": True}, maxnreg=cap) for b in blocks for cap in caps]
    axes = Axes(configs)
    assert axes.places[Config({"BLOCK": 16, "EVEN": True}, maxnreg=64)] == (0, 0)
    assert axes.places[Config({"BLOCK": 128, "EVEN": True})] == (2, 2)
    assert axes.coordinates(configs[:2]).tolist() == [[1.0, 1.0], [1.0, 0.0]]
    edited = configs[0].with_override("edited.ptx")
    others = [Config({"WAY": "row"}), Config({"WAY": "column"}), Config({"SPLIT": 2})]
    places = Axes([*configs, edited, *others]).places
    assert len(set(places.values())) == len(places) == 13
    assert Axes(configs[:1]).coordinates(configs[:1]).shape == (1, 0)


def test_moments_are_levelled() -> None:
    """Assembly that foresees everything twice as slow changes no order between the moments."""
    state = SearchState(sketched(), SPACE[0])
    state.add_verdicts(sketched(SPACE[:7], factor=2.0))
    points = ConfigPoints(state, Predictor(Told(), TARGET)).points(state)
    slowdown = np.log([TIME(config) for config in SPACE])
    assert points.predicted == pytest.approx(slowdown - slowdown.min())
    assert points.compiled.tolist() == [True] * 7 + [False] * 57


def test_true_predictions_are_followed() -> None:
    """With a scorer that is right, the first batch holds the best, and little more is compiled."""
    bench = Bench(TIME)
    strategy = make_strategy("model", 0, Predictor(Told(), TARGET), BatchSizes(first=6, batch=4))
    state = SearchState(sketched(), SPACE[0])
    ended = run(strategy, state, bench, bench, Limits())
    assert BEST in bench.noted("start")[:6]
    assert ended.finalists[0].config == BEST
    assert len(bench.noted("start")) < len(SPACE) / 2


def test_a_first_batch_covers_each_value() -> None:
    """The last few of a batch are for values that the best predicted lack, the best of each."""
    order = sorted(range(64), key=lambda i: (SPACE[i].kwargs["A"], SPACE[i].kwargs["B"]))
    chosen = [SPACE[i].kwargs for i in covering(SPACE, order, 16)]
    assert chosen[:12] == [SPACE[i].kwargs for i in order[:12]]
    assert [c["A"] for c in chosen[12:]] == [64, 128, 256, 512]
    assert all(c["B"] == 16 for c in chosen[12:])
    assert covering(SPACE, order, 64)[:48] == order[:48]
    assert sorted(covering(SPACE, order, 64)) == sorted(order)
    assert covering(SPACE[:1], [0], 16) == [0]
    assert covering(SPACE, order, 1) == order[:1]


def test_a_value_that_the_scorer_misses_is_found() -> None:
    """Where a value that is foreseen to be slow is the fastest, the search finds it."""
    space = grid(8, 8, 8)

    def foretold(config: Config) -> float:
        return TIME(config) * float(config.kwargs["C"] / 16) ** SLOWER

    def us(config: Config) -> float:
        return TIME(config) * (0.5 if config.kwargs["C"] == 512 else 1.0)

    bench = Bench(us)
    told = [replace(v, features=features(foretold(v.config))) for v in foreseen(space)]
    sizes = BatchSizes(first=16, batch=8, trial=16)
    strategy = make_strategy("model", 0, Predictor(Told(), TARGET), sizes)
    ended = run(strategy, SearchState(told, space[0]), bench, bench, Limits())
    assert ended.finalists[0].config == Config({"A": 256, "B": 64, "C": 512})
    assert len(bench.noted("start")) < len(space) / 4


def test_a_floor_under_all_times_ends_a_search() -> None:
    """Where many configs tie at the best time, gains that are expected and never come end it."""
    space, draw = grid(8, 8, 8), np.random.default_rng(0)
    rough = {config: float(np.exp(draw.normal(0.0, 0.3))) for config in space}

    class Trusting(SearchState):
        """A state that believes every expected gain."""

        trust = 1.0

    compiled = []
    for kind in (SearchState, Trusting):
        bench = Bench(lambda config: max(150.0, TIME(config) * rough[config]))
        strategy = make_strategy("model", pace=BatchSizes(first=16, batch=16))
        ended = run(strategy, kind(foreseen(space), space[0]), bench, bench, Limits())
        assert bench.time(ended.finalists[0].config) == 150.0
        compiled.append(len(bench.noted("start")))
    assert compiled[0] < compiled[1] / 2
