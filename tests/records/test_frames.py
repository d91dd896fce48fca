"""Records as pandas frames: rows, dtypes, units, and a clear word where there is no pandas."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace

import pytest
from sample_records import record_of

from asmtune.base.errors import AsmtuneError
from asmtune.core.config import Config
from asmtune.core.records.verdicts import Features, PruneReport
from asmtune.predict.features.catalog import FEATURES
from asmtune.report.documents import report_csv

pd = pytest.importorskip("pandas", reason="no pandas: pip install '.[notebooks]'")

UNIT_WORDS = {"B": "bytes", "cycle": "cycles", "FLOP": "flops", "4 B": "words"}


def test_a_report_has_a_row_a_config(pruned: PruneReport) -> None:
    """The frame has the CSV's columns and values, one row a verdict, and says what it is of."""
    frame = pruned.to_pandas()
    rows = list(csv.DictReader(io.StringIO(report_csv([pruned]))))
    assert ["target", *frame.columns] == list(rows[0])
    assert len(frame) == len(pruned.verdicts) == 6
    assert frame["kept"].tolist() == [row["kept"] == "True" for row in rows]
    assert frame["BLOCK"].tolist() == [int(row["BLOCK"]) for row in rows]
    timed = frame["predicted_us"].dropna()
    assert timed.tolist() == [float(row["predicted_us"]) for row in rows if row["predicted_us"]]
    assert frame.attrs["target"] == "H200"
    assert frame.attrs["shape"] == {"n": 4096}


def test_dtypes_do_not_depend_on_what_is_missing(pruned: PruneReport) -> None:
    """Ranks are whole numbers with gaps, times and features floats, axes whole numbers."""
    frame = pruned.to_pandas()
    assert frame["rank"].isna().sum() == sum(v.rank is None for v in pruned.verdicts) > 0
    wanted = {"kept": "bool", "rank": "Int64", "BLOCK": "Int64", "num_warps": "Int64"}
    wanted |= {"maxnreg": "Int64", "predicted_us": "float64", "score": "float64"}
    wanted |= {"dropped_at": "string", "reasons": "string", "unique_bytes": "float64"}
    assert {name: str(frame[name].dtype) for name in wanted} == wanted
    nothing = replace(pruned, verdicts=()).to_pandas()
    assert len(nothing) == 0
    shared = [name for name in wanted if name in nothing.columns]
    assert {name: str(nothing[name].dtype) for name in shared} == {n: wanted[n] for n in shared}


def test_units_are_in_the_columns_names(pruned: PruneReport) -> None:
    """Every column of a quantity says its unit: microseconds, bytes, cycles, FLOPs, words."""
    for feature in FEATURES.values():
        if feature.unit != "1":
            assert UNIT_WORDS[feature.unit] in feature.name
            assert feature.name in pruned.to_pandas().columns
    record = record_of(3).to_pandas()
    assert {"median_us", "p20_us", "p80_us"} <= set(record.columns)


def test_an_axis_called_as_a_column_keeps_its_values(pruned: PruneReport) -> None:
    """Axes named rank, kept or target stand beside the verdict's columns, in CSV and frame."""
    config = Config({"rank": 7, "kept": "yes", "target": 3})
    verdict = replace(pruned.verdicts[0], config=config)
    report = replace(pruned, verdicts=(verdict,))
    (row,) = csv.DictReader(io.StringIO(report_csv([report])))
    assert (row["config.rank"], row["config.kept"], row["config.target"]) == ("7", "yes", "3")
    assert (row["rank"], row["kept"], row["target"]) == (str(verdict.rank or ""), "True", "H200")
    assert report.to_pandas()["config.rank"].tolist() == [7]


def test_a_record_has_what_was_tried() -> None:
    """Timings come first, the fastest on top; failures follow without a time."""
    frame = record_of(3).to_pandas()
    assert frame["median_us"].tolist()[:3] == [998.0, 999.0, 1000.0]
    assert frame["median_us"].isna().tolist() == [False] * 3 + [True] * 2
    assert frame["winner"].tolist() == [False, False, True, False, False]
    assert frame["failure"].dropna().tolist() == ["registers"] * 2
    assert str(frame["samples"].dtype) == "Int64"
    assert frame.attrs["key"]["device"] == "NVIDIA H200"


def test_an_edited_config_tells_its_file() -> None:
    """Two configs that differ in their hand-edited file alone do not look alike."""
    record = record_of(1)
    edited = replace(record.measurements[0], config=record.winner.with_override("/a/edited.ptx"))
    frame = replace(record, measurements=(*record.measurements, edited)).to_pandas()
    assert frame["ir_override"].dropna().tolist() == ["edited.ptx"]


def test_features_are_a_series() -> None:
    """A series of floats by name, equal to the features."""
    made = Features({"a": 1.0, "b": 2.5}).to_pandas()
    expected = pd.Series({"a": 1.0, "b": 2.5}, name="value")
    pd.testing.assert_series_equal(made, expected)


def test_without_pandas(monkeypatch: pytest.MonkeyPatch, pruned: PruneReport) -> None:
    """Where there is no pandas the message names the extra, and a notebook shows plain text."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    for record in (pruned, record_of(1), Features({"a": 1.0})):
        with pytest.raises(AsmtuneError, match=r"pip install '\.\[notebooks\]' in a clone"):
            record.to_pandas()
        assert record._repr_html_() is None
