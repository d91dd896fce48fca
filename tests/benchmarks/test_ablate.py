"""The ablation: a group that is taken away is gone, and nothing else is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.oracle import load_oracle
from asmtune.predict.features.profile import Profile
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay.results import CUTS
from asmtune.workshop.replay.train import moment_rows, rank_unseen, unseen_result
from benchmarks import ablate
from benchmarks.ablate import ABLATIONS, Launch, Reader, TimedTask, ablated, read, unseen

DATA = Path(__file__).parents[1] / "replay_data"
ALL, NO_COUNTS, NO_RESOURCES, NO_LAYOUTS, NO_BOUNDS, TILES, BEFORE = ABLATIONS

RESOURCES = frozenset(
    {
        "regs_per_thread",
        "spill_words",
        "stack_bytes",
        "shared_bytes",
        "code_bytes",
        "programs_per_sm",
        "programs_per_sm_by_registers",
        "programs_per_sm_by_shared",
        "occupancy",
    }
)
OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})

Change = Callable[[Launch, float], Launch]


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


@pytest.mark.slow
def test_all_features_is_the_learned_scorer(
    timings: Path, timed: Sequence[TimedTask], target: Target, settings: Settings
) -> None:
    """With nothing taken away, rows and what is kept of unseen kernels are the scorer's own."""
    funnel = Funnel(target, make_scorer("chance"), settings)
    moments = moment_rows(load_oracle(timings), DATA / "kernels", funnel, early=False)
    plain = [rows.assembly for rows in moments]
    mine = ablated(timed, ABLATIONS[ALL], target)
    for rows, expected in zip(mine, plain, strict=True):
        assert (rows.kernel, rows.shape, rows.dtype) == (
            expected.kernel,
            expected.shape,
            expected.dtype,
        )
        np.testing.assert_array_equal(rows.vectors, expected.vectors)
        np.testing.assert_array_equal(rows.slowdown, expected.slowdown)
    kept = [task.kept for task in unseen(ALL, mine, 1).tasks]
    ranked = rank_unseen(plain, {"assembly": plain}, 1)["assembly"]
    assert kept == [task.kept for task in unseen_result(ranked).tasks]


def changed_static(profile: Profile, names: frozenset[str], by: float) -> Profile:
    """Other values for some features."""
    values = {name: v * by + 1 if name in names else v for name, v in profile.static.items()}
    return replace(profile, static=values)


def other_resources(launch: Launch, by: float) -> Launch:
    """The same instructions with other registers, spills, shared memory and occupancy."""
    return replace(launch, compiled=changed_static(launch.compiled, RESOURCES, by))


def other_instructions(launch: Launch, by: float) -> Launch:
    """The same resources with other instructions, in number and in latency."""
    names = frozenset(launch.compiled.static) - RESOURCES - OPTIONS
    profile = changed_static(launch.compiled, names, by)
    segments = tuple(
        replace(
            part,
            classes={kind: n * round(by) for kind, n in part.classes.items()},
            traffic={kind: n * round(by) for kind, n in part.traffic.items()},
            operand_bytes=round(by),
            chain=part.chain * by,
        )
        for part in profile.segments
    )
    return replace(launch, compiled=replace(profile, segments=segments))


def other_assembly(launch: Launch, by: float) -> Launch:
    """All of that at once."""
    return other_instructions(other_resources(launch, by), by)


def other_sketch(launch: Launch, by: float) -> Launch:
    """The same assembly, from another TTGIR."""
    return replace(launch, sketched=other_assembly(launch, by).compiled)


def other_layouts(launch: Launch, by: float) -> Launch:
    """The same instructions, with the lanes of a warp further apart."""
    requests = {
        place: tuple(
            replace(one, lanes=tuple(tuple(step * round(by) for step in b) for b in one.lanes))
            for one in own
        )
        for place, own in launch.compiled.requests.items()
    }
    return replace(launch, compiled=replace(launch.compiled, requests=requests))


def other_bounds(launch: Launch, by: float) -> Launch:
    """The same tiles, of which masks leave another share."""
    accesses = tuple(replace(one, share=one.share / by) for one in launch.work.accesses)
    return replace(launch, work=replace(launch.work, accesses=accesses))


def other_names(launch: Launch, by: float) -> Launch:
    """The same sizes under other names, with flags and texts beside them."""
    sizes = {f"X{n}": value for n, value in enumerate(launch.config.kwargs.values())}
    options = {"num_warps": launch.config.num_warps, "num_stages": launch.config.num_stages}
    config = Config.from_dict({**sizes, **options, "FLAG": by > 10, "KIND": f"{by}"})
    return replace(launch, config=config)


@pytest.mark.parametrize(
    ("change", "blind"),
    [
        (other_resources, {NO_RESOURCES, TILES, BEFORE}),
        (other_instructions, {NO_COUNTS, TILES, BEFORE}),
        (other_assembly, {TILES, BEFORE}),
        (other_sketch, set(ABLATIONS) - {BEFORE}),
        (other_layouts, {NO_COUNTS, NO_LAYOUTS, TILES, BEFORE}),
        (other_bounds, {NO_BOUNDS, TILES}),
        (other_names, set(ABLATIONS)),
    ],
)
@given(by=st.floats(2, 1000))
@hypothesis_settings(
    deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_blind_to_what_is_taken_away(
    timed: Sequence[TimedTask], target: Target, change: Change, blind: set[str], by: float
) -> None:
    """What a group says moves no column of the ablations without it, and some of all others.

    Predictions are made of the columns, the roofline's share included.
    """
    launches = timed[0].launches
    # One launch alone, so that the others, against which it is compared, stay as they are.
    moved = [change(launches[0], by), *launches[1:]]
    for name, columns in ABLATIONS.items():
        same = np.array_equal(columns(launches, target), columns(moved, target))
        assert same == (name in blind), name


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
