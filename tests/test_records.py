"""Records: what they derive from their fields, and their JSON."""

from __future__ import annotations

import pickle

import pytest

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.records.verdicts import Features, PruneReport, Reason, Verdict

FAST, SLOW = Config({"B": 64}), Config({"B": 32}, num_warps=8)
PROVENANCE = Provenance("5" * 64, "a" * 64, "3.6.0", "2.13.0", "0.1.0", "570.1", "2025-03-01")


def report(*verdicts: Verdict) -> PruneReport:
    """A report of these verdicts."""
    return PruneReport(
        "mm", {"M": 16}, {"a": "fp16"}, "H200", "weights", verdicts, {"score": 0.1}, {"triton": "3"}
    )


def test_features_are_a_read_only_mapping() -> None:
    """Features compare and iterate as a mapping, keep a copy, and travel between processes."""
    values = {"registers": 32.0, "spills": 0.0}
    features = Features(values)
    values["registers"] = 0.0
    assert features == {"registers": 32.0, "spills": 0.0}
    assert list(features) == ["registers", "spills"]
    assert len(features) == 2
    assert pickle.loads(pickle.dumps(features)) == features
    with pytest.raises(TypeError):
        features["registers"] = 1.0  # type: ignore[index]


def test_median_of_a_record_is_its_winners() -> None:
    """A record's time is the winner's, not the first or the least; None where not timed."""
    times = (Measurement(SLOW, 5.0, 5.0, 5.0, ()), Measurement(FAST, 9.0, 9.0, 9.0, ()))
    key = TuneKey("mm", {}, {}, "NVIDIA H200")
    assert TuneRecord(key, FAST, times, PROVENANCE).median_us == 9.0
    assert TuneRecord(key, FAST, times[:1], PROVENANCE).median_us is None


def test_report_tells_kept_and_dropped() -> None:
    """Kept verdicts keep their order; the dropped are counted by stage and first reason."""
    rank, limit, threads = (Reason(n, "3 of 2") for n in ("rank", "shared_memory", "threads"))
    made = report(
        Verdict(FAST, True, rank=1),
        Verdict(SLOW, True, rank=2),
        Verdict(FAST, False, "score", reasons=(rank, limit)),
        Verdict(FAST, False, "rules", reasons=(limit,)),
        Verdict(FAST, False, "compile"),
        Verdict(FAST, False, "rules", reasons=(threads,)),
        Verdict(FAST, False, "rules", reasons=(threads, limit)),
    )
    assert [verdict.rank for verdict in made.kept] == [1, 2]
    assert list(made.dropped().items()) == [
        (("rules", "threads"), 2),
        (("rules", "shared_memory"), 1),
        (("compile", "compile"), 1),
        (("score", "rank"), 1),
    ]
    assert str(rank) == "rank: 3 of 2"


def test_an_axis_called_as_a_column_keeps_its_values() -> None:
    """Axes named rank, kept or target have columns beside the verdict's, as does an IR file."""
    config = Config({"rank": 7, "kept": "yes", "target": 3}, ir_override="/a/edited.ptx")
    features = Features({"num_warps": 9.0, "spills": 1.0})
    row = Verdict(config, True, rank=1, features=features, reasons=(Reason("tie", "near"),)).row()
    assert (row["config.rank"], row["config.kept"], row["config.target"]) == (7, "yes", 3)
    assert (row["rank"], row["kept"], row["num_warps"], row["spills"]) == (1, True, 4, 1.0)
    assert (row["ir_override"], row["reasons"]) == ("edited.ptx", "tie: near")
