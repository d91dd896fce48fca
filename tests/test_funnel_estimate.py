"""The first stage of the funnel: features by tile arithmetic, and what they leave to sketches."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.tile.interpolate import Places
from asmtune.predict.prune import arithmetic, rounds
from asmtune.predict.prune.arithmetic import (
    UnreadableKernel,
    estimated,
    narrowed,
    sampled_works,
)
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.prune.rounds import sketch_best, sketches_for
from asmtune.predict.score.keep import MOST_LOST, Keep
from asmtune.predict.score.roofline import predict
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.vectors import features_read
from asmtune.report.documents import read_reports, report_json
from asmtune.report.tables import prune_table
from asmtune.tuning import initial_state
from asmtune.tuning.options import EFFORTS
from tests.sample_kernels import asks_for_warps, one_pointer, product_problem

FIRST_STAGE = Path(__file__).parents[1] / "benchmarks" / "results" / "first_stage.json"
TILES = Space(
    {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
)


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that compiles the best two by the roofline."""
    return Funnel(target, make_scorer("roofline"), settings, compile=Keep(2))


def estimates_of(front: ProblemAnalysis, configs: Sequence[Config]) -> list[Verdict]:
    """The estimates, which there must be."""
    verdicts = estimated(front, configs)
    assert not isinstance(verdicts, UnreadableKernel), verdicts
    return verdicts


def features_of(verdict: Verdict) -> Features:
    """The features, which there must be."""
    assert verdict.features is not None, verdict
    return verdict.features


@pytest.fixture
def product() -> Problem:
    """A matrix product of 1024 x 1024 x 1024."""
    return product_problem()


@pytest.mark.slow(seconds=6)
def test_against_sketches(funnel: Funnel, product: Problem) -> None:
    """Shared memory, FLOPs and grids of a product are a sketch's own; times rank as its times."""
    configs = list(TILES.configs())[::5]
    front = funnel.front(product)
    pairs = list(
        zip(estimates_of(front, configs), front.verdicts(configs, "sketch", {}), strict=True)
    )
    for estimate, sketch in pairs:
        own, exact = features_of(estimate), features_of(sketch)
        for name in ("shared_bytes", "programs", "trips", "num_warps", "num_stages"):
            assert own[name] == exact[name], (estimate.config, name)
        assert own["tensor_cycles"] == pytest.approx(exact["tensor_cycles"])
        assert own["unique_bytes"] == pytest.approx(exact["unique_bytes"])
        assert own["regs_per_thread"] == pytest.approx(exact["regs_per_thread"], rel=0.35)
        assert own.keys() >= set(features_read())
    ranks = [np.argsort(np.argsort([pair[i].predicted_us for pair in pairs])) for i in (0, 1)]
    assert np.corrcoef(*ranks)[0, 1] > 0.8


@pytest.mark.slow(seconds=3)
def test_tiles_that_were_not_lowered(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile whose TTIR was never made has the numbers that its own TTIR would give."""
    configs = list(TILES.configs())
    whole = estimates_of(funnel.front(product), configs)
    monkeypatch.setattr(arithmetic, "MOST_TILES", 7)
    front = funnel.front(product)
    carried = estimates_of(front, configs)
    assert len(front.lowering._ttir) == 7
    for one, other in zip(whole, carried, strict=True):
        for name in ("tensor_cycles", "shared_bytes", "program_l2_bytes", "trips", "programs"):
            assert features_of(other)[name] == pytest.approx(features_of(one)[name], rel=1e-3), name


def test_the_promise_has_the_loss_that_was_measured() -> None:
    """A cut among the sketched configs is widened by the recorded file's largest losses."""
    document = json.loads(FIRST_STAGE.read_text())
    for part, how in (("quarter", ""), ("tenth", " of a tenth")):
        losses = []
        for scorer in ("roofline", "learned"):
            whole, both = (
                np.array([task["kept"][f"{scorer}, {way}"] for task in document["tasks"]])
                for way in ("all sketched", f"arithmetic and sketches{how}")
            )
            share = (whole - both).mean(axis=0)
            low = np.sort(whole, axis=0)[1] - np.sort(both, axis=0)[1]
            dropped = (both < 0.99).mean(axis=0) - (whole < 0.99).mean(axis=0)
            losses.append(np.stack([share, low, dropped]))
        most, few = np.max(losses, axis=0), np.array(document["cuts"]) < 10
        stated = [most[:, few].max(axis=1), most[:, ~few].max(axis=1)]
        assert np.array(MOST_LOST[part]) == pytest.approx(np.array(stated), abs=0.005)


def test_each_value_of_an_axis_is_in_a_sample() -> None:
    """A sample shows every value of every axis, and is no larger than asked."""
    tiles = Space({"A": (16, 64, 256), "B": (1, 3), "MODE": ["x", "y"]}).points()
    places = Places.of(tiles, tiles.tile_names)
    sample = [tiles[place].kwargs for place in places.sample(6)]
    assert len(sample) == 6
    assert {tile["A"] for tile in sample} == {16, 64, 256}
    assert {tile["B"] for tile in sample} == {1, 3}
    assert {tile["MODE"] for tile in sample} == {"x", "y"}
    assert places.sample(50) == list(range(len(tiles)))


def test_an_axis_of_very_many_values() -> None:
    """Memory grows with the tiles, not with their number times that of an axis's values."""
    count = 50_000
    tiles = Space({"A": range(1, count + 1)}).points()
    tracemalloc.start()
    try:
        places = Places.of(tiles, tiles.tile_names)
        sample = np.array(places.sample(6))
        fitted = np.ones((places.design(sample).shape[1], 2))
        alike = places.alike(sample)
        rows = places.predicted(np.arange(count), fitted)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1000 * count
    assert rows[sample] == pytest.approx(places.design(sample) @ fitted)
    assert alike.sum(axis=0).tolist() == [1.0] * len(sample)


WIDE = TILES.replace(num_warps=(2, 4, 8, 64), maxnreg=(None, *range(32, 250, 8)))


def test_a_large_space_is_narrowed_without_its_configs(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best by arithmetic go on with one of each value; of the others no config is made."""
    monkeypatch.setattr(arithmetic, "GO_ON", 60)
    monkeypatch.setattr(arithmetic, "MOST_TILES", 6)
    made: list[Config] = []
    from_dict = Config.from_dict

    def spied(values: Mapping[str, Any]) -> Config:
        made.append(from_dict(values))
        return made[-1]

    default = WIDE.first()
    points = WIDE.points().led_by(default)
    wanted = points[777]
    monkeypatch.setattr(Config, "from_dict", spied)
    narrow = narrowed(funnel.front(product), points, wanted=[wanted])
    options = 4 * 3 * 29
    assert len(made) <= options + 6 + 18  # rules once an option, tiles that are lowered, grids
    assert len(points) == 6264
    own = list(narrow.configs)
    assert own[0] == default
    assert wanted in own
    assert {config.num_warps for config in own} == {2, 4, 8, 64}
    counts = {(one.dropped_at, one.reason): one.configs for one in narrow.unlisted}
    assert sum(counts.values()) + len(own) == len(points)
    assert counts["rules", "threads"] == 6264 // 4 - sum(c.num_warps == 64 for c in own)
    assert 60 <= len(own) <= 60 + sum(map(len, points.values.values())) + 2


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("at_once", [1 << 15, 1000])
def test_columns_rank_as_single_configs(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """What goes on of a large space are the best of the verdicts on every config."""
    monkeypatch.setattr(arithmetic, "GO_ON", 300)
    monkeypatch.setattr(arithmetic, "AT_ONCE", at_once)
    front = funnel.front(product)
    limit = front.target.shared_bytes_per_block

    def place(verdict: Verdict) -> tuple[bool, float]:
        features = features_of(verdict)
        return features["shared_bytes"] > limit, predict(features, front.target).us

    configs = list(WIDE)
    able = [verdict for verdict in estimates_of(front, configs) if verdict.kept]
    ranked = sorted(map(place, able))
    places = {verdict.config: place(verdict) for verdict in able}
    chosen = narrowed(front, WIDE.points()).configs
    best = sorted(places[config] for config in chosen if config in places)[:300]
    assert [us for _, us in best] == pytest.approx([us for _, us in ranked[:300]], rel=1e-9)


def test_a_report_counts_what_it_does_not_list(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Counts, table and saved report of a large space hold the configs without a verdict."""
    monkeypatch.setattr(arithmetic, "GO_ON", 30)
    monkeypatch.setattr(arithmetic, "MOST_TILES", 4)
    monkeypatch.setattr(rounds, "SKETCHES", 4)
    report = funnel.prune(product, WIDE)
    counts = report.counts()
    assert counts["candidates"] == 6264 > len(report.verdicts)
    assert sum(counts.values()) == 2 * 6264
    assert sum(report.dropped().values()) == 6264 - len(report.kept)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(prune_table([report]))
    assert "6264" in capture.get()
    assert "counted, not listed" in capture.get()
    path = tmp_path / "report.json"
    path.write_text(report_json([report]))
    assert read_reports(path)[0].counts() == counts


@pytest.mark.parametrize(
    ("grid", "read"),
    [
        (lambda meta: (meta["BLOCK_M"], meta.get("BLOCK_N")), {"BLOCK_M", "BLOCK_N"}),
        (lambda meta: ({**meta}["BLOCK_M"],), None),
        (lambda meta: (sum(name == "K" for name in meta),), None),
        (lambda meta: (max(v for n, v in meta.items() if n == "BLOCK_M"),), None),
        ((4, 4), set()),
    ],
)
def test_what_a_grid_depends_on(product: Problem, grid: Any, read: set[str] | None) -> None:
    """A grid's function depends on the names that it asks for: all where it reads the mapping."""
    sizes, names = replace(product, grid=grid).watched_grid(TILES.first())
    assert sizes == replace(product, grid=grid).programs(TILES.first())
    assert set(names) >= TILES.axes.keys() if read is None else names == read


@pytest.mark.slow(seconds=6)
def test_the_best_of_a_large_space_are_sketched(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out says its rank and time, and the report counts it."""
    monkeypatch.setattr(rounds, "SKETCHES", 10)
    report = funnel.prune(product, TILES)
    assert len(funnel.sketches) == 10
    left = [verdict for verdict in report.verdicts if verdict.dropped_at == "estimate"]
    assert len(left) == len(list(TILES.configs())) - 10
    for verdict in left:
        (reason,) = verdict.reasons
        assert reason.rule == "estimated_only"
        assert reason.text.endswith(f"at {verdict.predicted_us:,} us, 10 are sketched")
        assert verdict.features is None
    assert report.counts()["estimated_only"] == 98
    assert report.compiled is not None
    among_sketches = Keep(2).select([0.0, 0.1, 0.2], "roofline", "sketch")
    assert among_sketches.expected_share is not None
    lost = MOST_LOST["tenth"][0][0]
    assert report.compiled.expected_share == among_sketches.expected_share - lost
    compiled = sum(verdict.artifact is not None for verdict in report.verdicts)
    (note,) = (note for note in report.notes if "tile arithmetic" in note)
    assert note.startswith("108 ranked by tile arithmetic, 10 by sketches, ")
    assert compiled < 10


@pytest.mark.slow(seconds=3)
def test_a_kernel_that_arithmetic_cannot_read(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is sketched as before where the TTIR depends on options, and a note says why."""
    monkeypatch.setattr(rounds, "SKETCHES", 2)
    problem = one_pointer(asks_for_warps)
    space = Space({"num_warps": (1, 2, 4, 8), "num_stages": (1, 2)})
    verdict = estimated(funnel.front(problem), list(space.configs()))
    assert verdict == UnreadableKernel("its TTIR depends on num_warps")
    monkeypatch.setattr(
        "asmtune.predict.prune.flow.estimated", lambda *_: UnreadableKernel("no reason")
    )
    small = TILES.replace(BLOCK_M=(64,), BLOCK_N=(64,))
    report = funnel.prune(product, small)
    assert not any(verdict.dropped_at == "estimate" for verdict in report.verdicts)
    assert "all were sketched, since tile arithmetic cannot rank them: no reason" in report.notes


class _Sketcher:
    """A front whose sketches say that 8 warps are four times as slow as estimated."""

    def __init__(self) -> None:
        self.rounds: list[list[Config]] = []

    def verdicts(self, configs: Sequence[Config], *_: Any) -> list[Verdict]:
        """Verdicts with the true times."""
        self.rounds.append(list(configs))
        return [verdict_at(config, 4.0 if config.num_warps == 8 else 1.0) for config in configs]


def verdict_at(config: Config, slower: float = 1.0) -> Verdict:
    """A verdict on a config whose time is its BLOCK, with 8 warps estimated at half of it."""
    us = config.kwargs["BLOCK"] * (0.5 if config.num_warps == 8 else 1.0) * slower
    return Verdict(config, True, features=Features({"shared_bytes": 0.0}), predicted_us=us)


def test_sketches_correct_the_estimates(target: Target) -> None:
    """After the first round the bias of 8 warps no longer decides; the default is sketched."""

    class ByTime:
        """Ranks by the block and the biased estimate."""

        def score(self, candidates: Sequence[Any]) -> list[float]:
            return [-float(np.log(verdict_at(c.config).predicted_us or 1)) for c in candidates]

    configs = [
        Config({"BLOCK": block}, num_warps=warps, num_stages=2)
        for block in range(200, 100, -1)
        for warps in (4, 8)
    ]
    front, estimates = _Sketcher(), [verdict_at(config) for config in configs]
    ranker = Ranker(ByTime(), target, "sketch")  # type: ignore[arg-type]
    sketched = sketch_best(front, estimates, ranker, 50, {})  # type: ignore[arg-type]
    assert [len(configs) for configs in front.rounds] == [20, 15, 15]
    assert front.rounds[0][0] == configs[0]
    assert sum(config.num_warps == 8 for config in front.rounds[0]) > 15
    assert {config.num_warps for config in front.rounds[1]} == {4}
    assert len(sketched.verdicts) == 50
    assert len(sketched.left) == 150
    assert all(not verdict.kept for verdict in sketched.left)


def test_sketches_for_a_budget() -> None:
    """A hundred at least, and three for each compile."""
    assert sketches_for(Keep(count=4), "roofline", 10_000) == 100
    assert sketches_for(Keep(count=50), "roofline", 10_000) == 150
    assert sketches_for(Keep(percent=5), "roofline", 10_000) == 1500
    assert 100 <= sketches_for(Keep(), "roofline", 10_000) <= 300


@pytest.mark.slow(seconds=3)
def test_an_amd_device(funnel: Funnel, product: Problem) -> None:
    """No sketch reads its TTGIR: all configs are compiled whatever the budget, and a note says so.

    A search begins with the verdicts of the rules.
    """
    machine = replace(funnel, target=load_target("MI300X"), compile=Keep(count=1, option="compile"))
    tiles = {"BLOCK_M": (32, 64), "BLOCK_N": (64,), "BLOCK_K": (32,), "num_warps": (2, 4)}
    report = machine.prune(product, Space(tiles))
    assert len(report.verdicts) == 4
    assert all(verdict.artifact for verdict in report.verdicts)
    assert "all were compiled: no sketch reads the TTGIR of gfx942" in report.notes
    configs = list(Space(tiles).configs())
    front, effort = machine.front(product), EFFORTS["balanced"]
    verdicts = initial_state.first_ranking(machine, front, configs, effort).verdicts
    assert [(one.config, one.kept, one.features) for one in verdicts] == [
        (config, True, None) for config in configs
    ]
    assert isinstance(estimated(front, configs), UnreadableKernel)


@pytest.mark.slow(seconds=6)
def test_a_search_of_a_large_space(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search begins with a sample of sketches; all others stay candidates, in their order.

    The rest is sketched later. What launches do to their arguments is taken from the IR that is
    lowered by then.
    """
    monkeypatch.setattr(initial_state, "MOST_SKETCHES", 12)
    monkeypatch.setattr(arithmetic, "MOST_TILES", 7)
    configs = list(TILES.configs())
    effort = EFFORTS["balanced"]
    front = funnel.front(product)
    ranking = initial_state.first_ranking(funnel, front, configs, effort)
    verdicts = ranking.verdicts
    assert len(funnel.sketches) == 3
    requests: list[Config] = []
    request = front.lowering.request
    monkeypatch.setattr(front.lowering, "request", lambda c: [requests.append(c), request(c)][1])
    assert len(sampled_works(front, configs)) >= 7
    assert requests == []
    assert [verdict.config for verdict in verdicts] == configs
    assert ranking.later is not None
    later = ranking.later()
    ranking.close()
    assert len(funnel.sketches) == 12
    for made in (verdicts, later):
        assert [verdict.config for verdict in made] == configs
        assert all(verdict.kept for verdict in made)
        assert sum(verdict.features is not None for verdict in made) > 100
    ranker = Ranker(make_scorer("roofline"), funnel.target, "sketch")
    estimates = estimates_of(front, configs)
    whole = sketch_best(front, estimates, ranker, 12, funnel.sketches)
    by_config = {verdict.config: verdict for verdict in later}
    assert all(by_config[verdict.config] == verdict for verdict in whole.verdicts)
