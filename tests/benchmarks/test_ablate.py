"""The ablation: a group that is taken away is gone, and nothing else is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay.oracle import load_oracle
from asmtune.workshop.replay.results import CUTS
from benchmarks import ablate
from benchmarks.ablate import ABLATIONS, INSTRUCTIONS, RESOURCES, Launch, Reader, TimedTask, read

DATA = Path(__file__).parents[1] / "replay_data"
_, NO_COUNTS, NO_RESOURCES, _, NO_BOUNDS, TILES, BEFORE = ABLATIONS


@pytest.fixture(scope="module")
def timings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timings with five configs of `barriers`, so that it has a task of its own."""
    document = json.loads((DATA / "timings.json").read_text())
    rows = document["tasks"][0]["rows"]
    rows.append({**rows[0], "config": {**rows[0]["config"], "num_warps": 8}})
    path = tmp_path_factory.mktemp("ablate") / "more.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def timed(timings: Path, target: Target, settings: Settings) -> list[TimedTask]:
    """Its tasks with their launches."""
    reader = Reader(target, make_scorer("chance"), settings)
    return list(read(load_oracle(timings), DATA / "kernels", reader))


def other_features(launch: Launch, groups: frozenset[str], by: float) -> Launch:
    """The same launch with other values of the features of some headings."""
    static = {
        name: value * by + 1 if FEATURES[name].group in groups else value
        for name, value in launch.compiled.static.items()
    }
    return replace(launch, compiled=replace(launch.compiled, static=static))


@given(by=st.floats(2, 1000))
@hypothesis_settings(
    deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_blind_to_what_is_taken_away(timed: Sequence[TimedTask], target: Target, by: float) -> None:
    """What a group says moves no column of the ablations without it, and some of all others."""
    launches = timed[0].launches
    accesses = tuple(replace(one, share=one.share / by) for one in launches[0].work.accesses)
    moved = {
        NO_RESOURCES: other_features(launches[0], RESOURCES, by),
        NO_COUNTS: other_features(launches[0], INSTRUCTIONS, by),
        "sketch": replace(
            launches[0], sketched=other_features(launches[0], RESOURCES, by).compiled
        ),
        NO_BOUNDS: replace(launches[0], work=replace(launches[0].work, accesses=accesses)),
    }
    blind = {
        NO_RESOURCES: {NO_RESOURCES, TILES, BEFORE},
        NO_COUNTS: {NO_COUNTS, TILES, BEFORE},
        "sketch": set(ABLATIONS) - {BEFORE},
        NO_BOUNDS: {NO_BOUNDS, TILES},
    }
    for what, one in moved.items():
        # One launch alone, so that the others, against which it is compared, stay as they are.
        others = [one, *launches[1:]]
        same = {
            n
            for n, f in ABLATIONS.items()
            if np.array_equal(f(launches, target), f(others, target))
        }
        assert same == blind[what], what


@pytest.mark.slow
def test_command(
    timings: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command prints a line an ablation, and writes the figures with their provenance."""
    output = tmp_path / "ablation.json"
    command = ["ablate", str(timings), "--kernels", str(DATA / "kernels"), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", command)
    ablate.main()
    document = json.loads(output.read_text())
    assert list(document["scorers"]) == list(ABLATIONS)
    printed = capsys.readouterr().out.splitlines()
    for name, entry in document["scorers"].items():
        assert set(entry["all"]) == {*CUTS, "worst_top10"}
        assert list(entry["kernels"]) == ["barriers", "returns"]
        assert sum(line.startswith(f"| {name} | ") for line in printed) == 1
    assert (document["tasks"], document["rows"]) == (2, 25)
    assert document["target"] == "H200"
    assert document["files"] == ["more.json"]
    assert "triton" in document["provenance"]
