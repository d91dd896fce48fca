"""Reports as JSON and CSV: complete, and readable by programs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, PruneReport, Reason, Selection, Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.report.documents import FORMAT, VERSION, report_csv, report_json


def features(**values: float) -> Features:
    """All features at zero but those given."""
    return Features({**dict.fromkeys(FEATURES, 0.0), **values})


def report(target: str = "H200") -> PruneReport:
    """A report of four configs, one at each place of the funnel."""
    verdicts = (
        Verdict(
            Config({"BLOCK": 64}, maxnreg=32),
            kept=True,
            rank=1,
            score=2.5,
            reasons=(Reason("spills", "2 words, a thread"),),
            features=features(regs_per_thread=32, spill_words=2, occupancy=0.5),
            artifact="ab" * 32,
        ),
        Verdict(
            Config({"BLOCK": 128}),
            kept=False,
            dropped_at="score",
            rank=2,
            score=-1.0,
            reasons=(Reason("rank", "rank 2 by weights, 1 are kept"),),
            features=features(regs_per_thread=40),
        ),
        Verdict(
            Config({"BLOCK": 100}),
            kept=False,
            dropped_at="compile",
            reasons=(Reason("kernel", 'line 2, "at"'),),
            failure=Failure("lower", "kernel", "first\nsecond"),
        ),
        Verdict(
            Config({"BLOCK": 64}, num_warps=64),
            kept=False,
            dropped_at="rules",
            reasons=(Reason("threads", "64 warps are 2048 threads"),),
        ),
    )
    return PruneReport(
        kernel="scale",
        shape={"n": 4096},
        dtypes={"x_ptr": "fp16"},
        target=target,
        scorer="weights",
        verdicts=verdicts,
        seconds={"compile": 1.5},
        versions={"triton": "3.6.0"},
        notes=("a note",),
        selection=Selection("1", 1, 0.9, 0.25, "weights on 2 tasks"),
    )


def test_json() -> None:
    """Every verdict stands in the JSON with its numbers, and what fell is tallied."""
    document = json.loads(report_json([report(), report("A100")]))
    assert (document["format"], document["version"]) == (FORMAT, VERSION)
    first, second = document["reports"]
    assert (first["target"], second["target"]) == ("H200", "A100")
    assert first["shape"] == {"n": 4096}
    assert first["dropped"] == [
        {"stage": "rules", "reason": "threads", "configs": 1},
        {"stage": "compile", "reason": "kernel", "configs": 1},
        {"stage": "score", "reason": "rank", "configs": 1},
    ]
    assert first["counts"] == {
        "candidates": 4, "ruled_out": 1, "failed_to_compile": 1, "sketched_only": 0, "compiled": 2,
    }  # fmt: skip
    kept = first["verdicts"][0]
    assert kept["config"] == {"BLOCK": 64, "num_warps": 4, "num_stages": 3, "maxnreg": 32}
    assert (kept["kept"], kept["rank"], kept["score"]) == (True, 1, 2.5)
    assert kept["features"]["spill_words"] == 2
    assert first["verdicts"][2]["failure"]["detail"] == "first\nsecond"
    assert first["notes"] == ["a note"]
    assert first["selection"] == {
        "keep": "1", "ranks": 1, "expected_share": 0.9, "chance_dropped": 0.25,
        "source": "weights on 2 tasks", "other_device": None, "low_share": None,
    }  # fmt: skip


def test_csv() -> None:
    """One row a target and config, with a column for each axis and feature."""
    rows = list(csv.DictReader(io.StringIO(report_csv([report(), report("A100")]))))
    assert [row["target"] for row in rows] == ["H200"] * 4 + ["A100"] * 4
    assert set(FEATURES) <= set(rows[0])
    assert [row["BLOCK"] for row in rows[:4]] == ["64", "128", "100", "64"]
    assert list(rows[0])[:4] == ["target", "BLOCK", "num_warps", "num_stages"]
    assert [row["kept"] for row in rows[:4]] == ["True", "False", "False", "False"]
    assert [row["dropped_at"] for row in rows[:4]] == ["", "score", "compile", "rules"]
    assert [row["rank"] for row in rows[:4]] == ["1", "2", "", ""]
    assert rows[0]["score"] == "2.5"
    assert float(rows[0]["spill_words"]) == 2
    assert rows[2]["spill_words"] == ""
    assert rows[0]["reasons"] == "spills: 2 words, a thread"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        (" =1", "' =1"),
        ("\uff1d1", "'\uff1d1"),
        ("-1.5", "-1.5"),
        ("-1e-7", "-1e-7"),
        ("\x1b[31m\u202e", "\\x1b[31m\\u202e"),
    ],
)
def test_csv_has_no_formula(value: str, cell: str) -> None:
    """A text that a spreadsheet would run begins with an apostrophe; numbers stay numbers."""
    config = Config({value: value, "other": -1.5}, num_warps=4)
    odd = Verdict(config, kept=False, dropped_at="rules", reasons=(Reason(value, "x"),))
    rows = list(csv.reader(io.StringIO(report_csv([replace(report(value), verdicts=(odd,))]))))
    named = dict(zip(*rows, strict=True))
    assert named[cell] == cell
    assert named["target"] == cell
    assert named["other"] == "-1.5"
    assert cell in named["reasons"]
