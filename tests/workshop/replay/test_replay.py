"""Replay: regret computed as by hand."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Features
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay.flow import judged_moments, replay
from asmtune.workshop.replay.oracle import Row, Task, load_oracle
from asmtune.workshop.replay.results import (
    CUTS,
    Agreement,
    ReplayReport,
    ScorerResult,
    TaskResult,
    cut_sizes,
    kept_of,
    replay_table,
)
from tests.command_lines import Commands

DATA = Path(__file__).parents[2] / "replay_data"
TIMINGS = DATA / "timings.json"


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """The funnel that compiles and reads."""
    return Funnel(target, make_scorer("chance"), settings)


class FewestBarriers(Scorer):
    """Ranks by the barriers of the machine code, the fewest first."""

    name = "barriers"

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """Minus the number of barriers."""
        return [-c.features["text_bar_sync"] for c in candidates if c.features is not None]


@pytest.mark.slow
def test_shares_by_hand(funnel: Funnel) -> None:
    """Every share of a ranking by barriers can be worked out by hand."""
    report = replay(load_oracle(TIMINGS), DATA / "kernels", funnel, [FewestBarriers()])
    (result,) = report.scorers
    # Ranked 0, 1, 2, 3: 4, 2, 1, 8 ms. Best 1 ms.
    assert result.tasks[0].kept == {
        "top1": 0.25, "top5": 1.0, "top10": 1.0, "top5pct": 0.25, "top10pct": 0.25,
    }  # fmt: skip
    # A tie of 5 and 4 ms, in the file's order, then 10 ms. Best 4 ms.
    assert result.tasks[1].kept == {
        "top1": 0.8, "top5": 1.0, "top10": 1.0, "top5pct": 0.8, "top10pct": 0.8,
    }  # fmt: skip
    # Ranked as they stand: 16, 8, ..., best of five 8, of ten 4, of all 2.
    assert result.tasks[2].kept == {
        "top1": 0.125, "top5": 0.25, "top10": 0.5, "top5pct": 0.125, "top10pct": 0.25,
    }  # fmt: skip
    assert result.kernels == ("barriers", "returns")
    summary = result.summary()
    assert summary["top1"] == pytest.approx((0.25 * 0.8 * 0.125) ** (1 / 3))
    assert summary["top5"] == pytest.approx(0.25 ** (1 / 3))
    assert summary["worst_top10"] == 0.5
    assert result.summary("barriers")["top1"] == pytest.approx(0.2**0.5)
    assert result.summary("barriers")["worst_top10"] == 1.0
    assert result.summary("returns")["top10pct"] == pytest.approx(0.25)


@pytest.mark.slow
def test_chance_is_the_expectation(funnel: Funnel) -> None:
    """Over its draws chance comes near what a uniform choice gives on average."""
    report = replay(load_oracle(TIMINGS), DATA / "kernels", funnel, [make_scorer("chance")])
    kept = [task.kept for task in report.scorers[0].tasks]
    assert kept[0]["top1"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 8) / 4, abs=0.06)
    assert kept[1]["top1"] == pytest.approx((1 + 4 / 5 + 4 / 10) / 3, abs=0.06)
    assert kept[0]["top5"] == kept[1]["top10"] == 1.0
    again = replay(load_oracle(TIMINGS), DATA / "kernels", funnel, [make_scorer("chance")])
    assert again.scorers == report.scorers


def test_agreement_with_what_was_recorded(
    funnel: Funnel, changed: Callable[[Callable[[Any], None]], Path]
) -> None:
    """Each config counts once, as told to run or fail and as recorded, and so does a resource."""

    def record(document: Any) -> None:
        document["tasks"][1]["rows"][0] |= {"regs": 1, "spills": 0, "shared": 0}

    report = replay(load_oracle(changed(record)), DATA / "kernels", funnel, [FewestBarriers()])
    assert dict(report.agreement.failures) == {
        ("runs", "runs"): 27,
        ("fails", "fails"): 1,
        ("runs", "fails"): 1,
    }
    assert dict(report.agreement.resources) == {
        ("regs", "differs"): 1,
        ("spills", "equal"): 1,
        ("shared", "equal"): 1,
    }


class Favourites(Scorer):
    """Ranks configs by a list of numbers; the features must be there."""

    name = "favourites"

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The number of barriers."""
        assert all(candidate.features is not None for candidate in candidates)
        return [float(candidate.config.kwargs["BARRIERS"]) for candidate in candidates]


class Forgetful(Favourites):
    """Knows its kernels, and is told which one it must not have seen."""

    name = "forgetful"

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def without_kernel(self, kernel: str) -> Favourites:
        """Another scorer, whose ranking is the opposite."""
        self.told.append(kernel)
        return Opposite()


class Opposite(Favourites):
    """The fewest barriers first."""

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """Minus the number of barriers."""
        return [-score for score in super().score(candidates, draw)]


@pytest.mark.slow
def test_a_trained_scorer_never_saw_the_kernel(funnel: Funnel) -> None:
    """A scorer that was trained is asked, once a kernel, for one that never saw it."""
    told: list[str] = []
    report = replay(load_oracle(TIMINGS), DATA / "kernels", funnel, [Forgetful(told)])
    assert told == ["barriers", "returns"]
    opposite = replay(load_oracle(TIMINGS), DATA / "kernels", funnel, [Opposite()])
    assert report.scorers[0].tasks == opposite.scorers[0].tasks
    assert report.scorers[0].scorer == "forgetful"


class Early(Favourites):
    """Ranks before compiling as well; keeps the features that it saw."""

    name = "early"
    ranks_before_compiling = True

    def __init__(self) -> None:
        self.seen: list[list[Features | None]] = []

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:
        """The number of barriers."""
        self.seen.append([candidate.features for candidate in candidates])
        return super().score(candidates, draw)


@pytest.mark.slow
def test_both_moments(funnel: Funnel) -> None:
    """A scorer that ranks before compiling is judged on sketches, and as what chooses compiles."""
    oracle, scorer = load_oracle(TIMINGS), Early()
    report = replay(oracle, DATA / "kernels", funnel, [scorer, Favourites()])
    assert list(report.to_json()["scorers"]) == [
        "early", "early, before compiling", "early, 10% compiled", "early, 25% compiled",
        "favourites",
    ]  # fmt: skip
    after, before, tenth, quarter, plain = report.scorers
    assert before.tasks == after.tasks == plain.tasks
    found = list(judged_moments(oracle, DATA / "kernels", funnel, early=True))
    rows = [[i for i, row in enumerate(one.task.rows) if row.ms is not None] for one in found]
    for number, (one, timed) in enumerate(zip(found, rows, strict=True)):
        compiled, sketched = scorer.seen[4 * number], scorer.seen[4 * number + 1]
        assert compiled == [one.compiled[i].features for i in timed]
        assert sketched == [one.sketched[i].features for i in timed]
        assert compiled != sketched
        for result, percent in ((tenth, 10), (quarter, 25)):
            by_barriers = sorted(timed, key=lambda i: -one.task.rows[i].config.kwargs["BARRIERS"])
            count = math.ceil(len(timed) * percent / 100)
            times = [one.task.rows[i].ms or 0 for i in by_barriers]
            for cut, size in cut_sizes(len(timed)).items():
                share = min(times) / min(times[: min(size, count)])
                assert result.tasks[number].kept[cut] == pytest.approx(share)
        # What it compiles is ranked by its assembly, without the rest.
        asked = [len(seen) for seen in scorer.seen[4 * number + 2 : 4 * number + 4]]
        few = [math.ceil(len(timed) * percent / 100) for percent in (10, 25)]
        assert asked == few
        within = [*scorer.seen[4 * number + 2], *scorer.seen[4 * number + 3]]
        assert all(features in compiled for features in within)


@pytest.mark.parametrize(
    ("timed", "sizes"), [(1, (1, 1)), (19, (1, 1)), (20, (1, 2)), (59, (2, 5)), (674, (33, 67))]
)
def test_cut_sizes(timed: int, sizes: tuple[int, int]) -> None:
    """The k of p percent is n p // 100, and at least one; a budget's others count for nothing."""
    cuts = cut_sizes(timed)
    assert [cuts[name] for name in CUTS[:3]] == [1, 5, 10]
    assert (cuts["top5pct"], cuts["top10pct"]) == sizes
    times, scores = [4.0, 2.0, 1.0], [1.0, 2.0, 3.0]
    assert kept_of(times, scores)["top1"] == 1.0
    assert set(kept_of(times, scores, {0, 1}).values()) == {0.5}


def test_replay_table() -> None:
    """Each scorer has its line over all tasks and one for each kernel."""
    rows = (Row(Config({}), 1.0, None, {}),)
    tasks = [Task("gemm", {"M": 1}, "fp16", rows), Task("softmax", {"n": 2}, "fp16", rows)]
    results = tuple(
        TaskResult(task, dict.fromkeys(CUTS, share))
        for task, share in zip(tasks, (0.25, 1.0), strict=True)
    )
    agreement = Agreement()
    agreement.failures["runs", "fails"] = 3
    made = ReplayReport("NVIDIA H200", "H200", (ScorerResult("weights", results),), agreement)
    text = io.StringIO()
    Console(file=text, width=200).print(replay_table(made))
    lines = [[cell.strip() for cell in line.split("│")] for line in text.getvalue().splitlines()]
    assert ["weights", "all", "2", *["0.500"] * 5, "0.250"] in lines
    assert ["", "gemm", "1", *["0.250"] * 6] in lines
    assert ["told runs, recorded fails: 3"] in lines


@pytest.mark.slow(seconds=3)
def test_the_command(commands: Commands) -> None:
    """A replay prints the scorers asked for, as a table or as JSON."""
    asked = ("model", "replay", str(TIMINGS), "--kernels", str(TIMINGS.parent / "kernels"))
    ran = commands.run(*asked, "--scorer", "roofline", "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    scorers = json.loads(ran.out)["scorers"]
    assert scorers["roofline"]["kernels"]["barriers"]["top1"] == 0.4472
    table = commands.run(*asked, "--scorer", "roofline", "--target", "H100").out
    assert "0.447" in table
    assert "chance" not in table
    for name in ("before compiling", "10% compiled", "25% compiled"):
        assert f"roofline, {name}" in table
