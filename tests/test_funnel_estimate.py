"""Large spaces: which part is sketched, and what its sketches tell of the others."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
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
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.prune import places, rounds
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import failed
from asmtune.predict.prune.picking import SAMPLE, _sample
from asmtune.predict.prune.places import Places, sampled_works
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.prune.rounds import SketchRounds, sketches_for, thinned
from asmtune.predict.score.keep import MOST_LOST, Keep
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.vectors import features_read
from asmtune.report.documents import report_json
from asmtune.report.tables import prune_table
from asmtune.tuning import initial_state
from asmtune.tuning.options import EFFORTS
from tests.sample_kernels import product_problem

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
WIDE = TILES.replace(num_warps=(2, 4, 8, 64), maxnreg=(None, *range(32, 250, 8)))


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that compiles the best two by the roofline."""
    return Funnel(target, make_scorer("roofline"), settings, compile=Keep(2))


@pytest.fixture
def product() -> Problem:
    """A matrix product of 1024 x 1024 x 1024."""
    return product_problem()


@pytest.mark.slow(seconds=6)
def test_against_sketches(funnel: Funnel, product: Problem) -> None:
    """What half of the sketches tell of the others is near these others' own sketches.

    Grids and options are exact.
    """
    configs = list(TILES.configs())
    front = funnel.front(product)
    ranker = Ranker(funnel.scorer, funnel.target, "sketch")
    part = SketchRounds(front, configs, ranker, 54, funnel.sketches, (1.0,))
    assert part.advance(front)
    carried = [verdict for verdict in part.candidates() if verdict.artifact is None]
    assert len(carried) == 54
    own = front.verdicts([verdict.config for verdict in carried], "sketch", funnel.sketches)
    off: dict[str, list[float]] = {}
    for guess, sketch in zip(carried, own, strict=True):
        assert guess.features is not None
        assert sketch.features is not None
        for name in ("programs", "num_warps", "num_stages"):
            assert guess.features[name] == sketch.features[name], (guess.config, name)
        for name in ("shared_bytes", "tensor_cycles", "regs_per_thread", "latency_cycles"):
            ratio = guess.features[name] / sketch.features[name]
            off.setdefault(name, []).append(abs(np.log(ratio)))
    assert {name: float(np.median(each)) for name, each in off.items()} == {
        name: pytest.approx(0.0, abs=0.15) for name in off
    }
    ranks = [np.argsort(np.argsort([v.predicted_us for v in each])) for each in (carried, own)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9


def test_the_promise_has_the_loss_that_was_measured() -> None:
    """A cut among the sketched configs is widened by the recorded file's largest losses."""
    document = json.loads(FIRST_STAGE.read_text())
    for part in ("quarter", "tenth"):
        losses = []
        for scorer in ("roofline", "learned"):
            whole, some = (
                np.array([task["kept"][f"{scorer}, {way}"] for task in document["tasks"]])
                for way in ("all sketched", f"a {part} sketched")
            )
            share = (whole - some).mean(axis=0)
            low = np.sort(whole, axis=0)[1] - np.sort(some, axis=0)[1]
            dropped = (some < 0.99).mean(axis=0) - (whole < 0.99).mean(axis=0)
            losses.append(np.stack([share, low, dropped]))
        most, few = np.max(losses, axis=0), np.array(document["cuts"]) < 10
        stated = [most[:, few].max(axis=1), most[:, ~few].max(axis=1)]
        expected = np.maximum(0.0, np.array(stated))
        assert np.array(MOST_LOST[part]) == pytest.approx(expected, abs=6e-4)


def test_each_value_of_an_axis_is_in_a_sample() -> None:
    """A sample shows every value of every axis, and is no larger than asked."""
    tiles = Space({"A": (16, 64, 256), "B": (1, 3), "MODE": ["x", "y"]}).points()
    own = Places.of(tiles, tiles.tile_names)
    sample = [tiles[place].kwargs for place in own.sample(6)]
    assert len(sample) == 6
    assert {tile["A"] for tile in sample} == {16, 64, 256}
    assert {tile["B"] for tile in sample} == {1, 3}
    assert {tile["MODE"] for tile in sample} == {"x", "y"}
    assert own.sample(50) == list(range(len(tiles)))


def test_an_axis_of_very_many_values() -> None:
    """Memory grows with the tiles, not with their number times that of an axis's values."""
    count = 50_000
    tiles = Space({"A": range(1, count + 1)}).points()
    tracemalloc.start()
    try:
        own = Places.of(tiles, tiles.tile_names)
        sample = own.sample(6)
        alike = own.alike(sample)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1000 * count
    assert alike.sum(axis=0).tolist() == [1.0] * len(sample)


def test_a_sample_to_compile_spreads_over_the_space(product: Problem) -> None:
    """Where nothing can be sketched, the default and configs at equal distances are compiled."""
    order = {config: place for place, config in enumerate(WIDE.points().led_by(WIDE.first()))}
    own = [order[config] for config in _sample(product, WIDE)]
    gaps = np.diff(own[1:])
    assert (len(own), own[:2], gaps.max() - gaps.min()) == (SAMPLE, [0, 1], 1)
    assert len(order) - own[-1] <= gaps.max()


def test_a_part_of_a_very_large_space_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, one of each value, what is wanted, and as many drawn as asked go on in order."""
    monkeypatch.setattr(rounds, "GO_ON", 60)
    points = WIDE.points().led_by(WIDE.first())
    wanted = points[777]
    own = list(thinned(points, wanted=[wanted]))
    assert own[0] == WIDE.first()
    assert wanted in own
    for name, values in WIDE.axes.items():
        assert {config.to_dict().get(name) for config in own} == set(values), name
    assert 60 <= len(own) <= 60 + sum(map(len, points.values.values())) + 2
    assert own == [config for config in points if config in set(own)]
    assert len(thinned(points, 50)) >= 75
    assert thinned(points, 6000) is points


def test_a_report_counts_what_it_does_not_list(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, table and JSON of a large space hold the configs without a verdict."""
    monkeypatch.setattr(rounds, "GO_ON", 30)
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
    assert json.loads(report_json([report]))["reports"][0]["counts"] == counts


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
def test_a_part_of_a_large_space_is_sketched(
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
        assert reason.text.endswith(f"by 10 sketches of others, at {verdict.predicted_us:,} us")
        assert verdict.features is None
    assert report.counts()["estimated_only"] == 98
    assert report.compiled is not None
    among_sketches = Keep(2).select([0.0, 0.1, 0.2], "roofline", "sketch")
    assert among_sketches.expected_share is not None
    lost = MOST_LOST["tenth"][0][0]
    assert report.compiled.expected_share == among_sketches.expected_share - lost
    compiled = sum(verdict.artifact is not None for verdict in report.verdicts)
    (note,) = (note for note in report.notes if "sketches" in note)
    assert note.startswith("of 108 configs 10 ranked by their sketches, ")
    assert compiled < 10


class _Sketcher:
    """A front whose sketches say that 8 warps take four times as long."""

    def __init__(self, refused: int = -1) -> None:
        self.rounds: list[list[Config]] = []
        self._refused = refused

    def by_rules(self, config: Config) -> Verdict:
        """Refuse one block."""
        kept = config.kwargs["BLOCK"] != self._refused
        return Verdict(config, kept, None if kept else "rules")

    def grid(self, config: Config) -> tuple[int, int, int]:
        """A program for each 1000 elements."""
        return (1000 // config.kwargs["BLOCK"], 1, 1)

    def verdicts(self, configs: Sequence[Config], *_: Any) -> list[Verdict]:
        """Verdicts with the times that configs take."""
        self.rounds.append(list(configs))
        made = []
        for config in configs:
            slower = 4.0 if config.num_warps == 8 else 1.0
            names = (*features_read(), "instructions")
            numbers = dict.fromkeys(names, 1.0) | {"shared_bytes": 0.0, "regs_per_thread": 32.0}
            numbers["latency_cycles"] = config.kwargs["BLOCK"] * slower
            made.append(Verdict(config, True, features=Features(numbers), artifact="made"))
        return made


class _ByLatency:
    """Ranks by a feature."""

    def score(self, candidates: Sequence[Any]) -> list[float]:
        """Return less for a longer latency."""
        return [-float(np.log(one.features["latency_cycles"])) for one in candidates]


def test_later_rounds_take_what_ranks_best(target: Target) -> None:
    """After the first round no config of 8 warps is sketched; the default is, and none refused."""
    configs = [
        Config({"BLOCK": block}, num_warps=warps, num_stages=2)
        for block in range(200, 100, -1)
        for warps in (4, 8)
    ]
    front: Any = _Sketcher(refused=199)
    ranker = Ranker(_ByLatency(), target, "sketch")  # type: ignore[arg-type]
    sketched = rounds.sketch_part(front, configs, ranker, 50, {})
    assert [len(configs) for configs in front.rounds] == [20, 15, 15]
    assert front.rounds[0][0] == configs[0]
    assert {config.num_warps for config in front.rounds[0]} == {4, 8}
    for chosen in front.rounds[1:]:
        assert {config.num_warps for config in chosen} == {4}
        assert max(config.kwargs["BLOCK"] for config in chosen) < 160
    assert len(sketched.verdicts) == 50 + 2
    assert len(sketched.left) == 148
    assert all(not verdict.kept for verdict in sketched.left)
    assert sketched.left[0].config.num_warps == 4
    assert "rank 198 " in str(sketched.left[-1].reasons[0])  # of 200 without the two refused


def test_hand_edited_configs_are_sketched_first(target: Target) -> None:
    """A config of edited IR is in the first round, since no other tells anything of it."""
    configs = [Config({"BLOCK": block}, num_warps=4) for block in range(200, 100, -1)]
    configs[70] = Config({"BLOCK": 130}, num_warps=4, ir_override="edited.ttgir")
    front: Any = _Sketcher()
    ranker = Ranker(_ByLatency(), target, "sketch")  # type: ignore[arg-type]
    assert SketchRounds(front, configs, ranker, 10, {}).advance(front)
    assert configs[70] in front.rounds[0]


def test_all_are_sketched_where_none_can_be_read(target: Target) -> None:
    """Where every sketch so far fails, so may all: the last round takes the others as well."""
    configs = [Config({"BLOCK": block}, num_warps=4) for block in range(200, 100, -1)]
    front: Any = _Sketcher()
    failure = Failure("compile", "options", "no such option")
    front.verdicts = lambda chosen, *_: [failed(config, failure) for config in chosen]
    ranker = Ranker(_ByLatency(), target, "sketch")  # type: ignore[arg-type]
    sketched = rounds.sketch_part(front, configs, ranker, 10, {})
    assert len(sketched.verdicts) == 100
    assert sketched.left == []


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


@pytest.mark.slow(seconds=6)
def test_a_search_of_a_large_space(
    funnel: Funnel, product: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search begins with a sample of sketches; all others stay candidates, in their order.

    The rest is sketched later. What launches do to their arguments is taken from a sample of tiles.
    """
    monkeypatch.setattr(initial_state, "MOST_SKETCHES", 12)
    monkeypatch.setattr(places, "MOST_TILES", 7)
    configs = list(TILES.configs())
    effort = EFFORTS["balanced"]
    front = funnel.front(product)
    ranking = initial_state.first_ranking(funnel, front, configs, effort)
    verdicts = ranking.verdicts
    assert len(funnel.sketches) == 3
    assert len(sampled_works(front, configs)) >= 7
    assert [verdict.config for verdict in verdicts] == configs
    assert ranking.later is not None
    later = ranking.later()
    ranking.close()
    assert len(funnel.sketches) == 12
    for made in (verdicts, later):
        assert [verdict.config for verdict in made] == configs
        assert all(verdict.kept for verdict in made)
        assert sum(verdict.features is not None for verdict in made) > 100
