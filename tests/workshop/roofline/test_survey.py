"""From a launch to its points: stored, shipped or picked; and what cannot be."""

from __future__ import annotations

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.lookup import StoreLookup
from asmtune.tuning.request import key_of, provenance
from asmtune.workshop.roofline.survey import RooflineSubject, Survey
from tests.tuning_support import BEST, DEFAULT, DEVICE, problem, space
from tests.workload.workload_kernels import jagged


@pytest.fixture
def survey(target: Target, settings: Settings) -> Survey:
    """For an H200, whose times are those of records and of the model."""
    return Survey(Funnel(target, make_scorer("roofline"), settings))


def subject(found: StoreLookup, searched: Space | None = None) -> RooflineSubject:
    """Adding two vectors; what is stored for it is given."""
    return RooflineSubject(problem(), {"n": 4096}, searched or space(warps=(4, 8)), found, True)


def record(*times: tuple[Config, float]) -> TuneRecord:
    """The first of these won."""
    timings = tuple(Measurement(config, us, us, us, ()) for config, us in times)
    made = provenance(problem(), space())
    return TuneRecord(key_of(problem(), DEVICE), times[0][0], timings, made)


def test_a_stored_config_with_both_times(survey: Survey) -> None:
    """Default and winner stand at the store's times; the arrow is vertical, the speed-up theirs."""
    made = survey.entry(subject(StoreLookup("hit", record((BEST, 10.0), (DEFAULT, 15.0)))))
    assert made.before is not None
    assert (made.before.config, made.after.config) == (DEFAULT, BEST)
    assert (made.before.us, made.after.us) == (15.0, 10.0)
    assert (made.tuned_by, made.measured, made.moved) == ("store", True, True)
    assert made.speedup == 1.5
    assert made.before.work == made.after.work
    # An addition of two numbers each, and of the flaw, which is no constant to the front end.
    assert made.after.work.bytes == 3 * 4 * 4096
    assert made.after.flops_per_s == pytest.approx(made.after.work.flops / 10e-6)
    assert made.made["triton"] == provenance(problem(), space()).triton
    assert made.notes == ()


def test_a_shipped_config(survey: Survey) -> None:
    """A default without a time is predicted, scaled, and says so."""
    found = StoreLookup("hit", record((BEST, 10.0)), layer="shipped")
    made = survey.entry(subject(found))
    assert made.before is not None
    assert (made.tuned_by, made.after.how, made.before.how) == ("shipped", "measured", "predicted")
    assert made.after.source == "shipped"
    assert made.before.source.startswith("roofline x ")
    assert not made.measured


def test_nothing_stored(survey: Survey) -> None:
    """The model's first pick stands in the tuned one's place; both times are predicted."""
    made = survey.entry(subject(StoreLookup("miss")))
    assert made.before is not None
    assert (made.tuned_by, made.before.how, made.after.how) == ("model", "predicted", "predicted")
    assert made.after.us == made.after.predicted_us
    assert made.before.us >= made.after.us
    assert made.made == {}
    (said,) = made.notes
    assert said == "no tuned config is stored: after is the model's first pick"


def test_a_stale_config_is_not_used(survey: Survey) -> None:
    """What was tuned with another source is not taken, nor its times; the note says why."""
    stale = StoreLookup("stale", record((BEST, 10.0)), "source differs: recorded a, now b")
    made = survey.entry(subject(stale))
    assert made.tuned_by == "model"
    assert made.after.how == "predicted"
    assert "stale: source differs" in made.notes[0]


def test_a_record_s_times_say_nothing_of_the_index_values(survey: Survey) -> None:
    """Where index tensors steer, the times are those of a record that had its own."""
    arguments = {
        "x_ptr": torch.empty(4096, device="meta"),
        "starts_ptr": torch.empty(9, device="meta", dtype=torch.int32),
        "y_ptr": torch.empty(8, device="meta"),
    }
    launch = Problem(jagged, arguments, (8,), index_values={"starts_ptr": torch.arange(9) * 512})
    blocks = Space({"BLOCK": (64, 128), "num_warps": (4,)})
    times = tuple(Measurement(config, 9.0, 9.0, 9.0, ()) for config in blocks.configs())
    made = provenance(launch, blocks)
    stored = TuneRecord(key_of(launch, DEVICE), times[0].config, times, made)

    found = StoreLookup("hit", stored)
    entry = survey.entry(RooflineSubject(launch, {}, blocks, found, True))
    assert entry.notes[0] == (
        "times are the record's, whose index tensors may have held other values"
    )
    assert entry.notes[-1].endswith("follow values given with the problem")


def test_a_default_that_cannot_run(survey: Survey) -> None:
    """There is no point before, and the reason is told."""
    huge = Config({"BLOCK": 256, "FLAW": 0}, num_warps=64)
    searched = Space.from_configs([huge, BEST], huge)
    made = survey.entry(subject(StoreLookup("hit", record((BEST, 10.0))), searched))
    assert (made.before, made.speedup, made.moved) == (None, None, False)
    assert made.after.us == 10.0
    assert "cannot run: threads" in made.notes[0]
