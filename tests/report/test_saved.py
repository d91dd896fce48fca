"""Saved reports read back, and measured times for a page."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_documents import report

from asmtune.base.errors import InputError
from asmtune.cli.prune_report import findings
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.records.verdicts import PruneReport, Selection
from asmtune.report.documents import read_reports, report_csv, report_json
from asmtune.report.explorer.page import page_model, report_html
from asmtune.report.explorer.timings import LaunchKey, read_timings, with_timings
from asmtune.report.tables import prune_table
from asmtune.store import interchange
from tests.trace_runs import DEFAULT, FAST, SLOW, write_run

LAUNCH = LaunchKey("scale", {"n": 4096}, {"x_ptr": "fp16"}, "H200")


def saved(folder: Path, text: str) -> Path:
    """A file of a report."""
    path = folder / "report.json"
    path.write_text(text)
    return path


def test_round_trip(tmp_path: Path) -> None:
    """What was saved is read back equal, and gives the same CSV and JSON."""
    kept = Selection("auto", 1, 0.9, 0.1, "weights on 9 tasks")
    reports = [replace(report(), selection=kept), report("B200")]
    again = read_reports(saved(tmp_path, report_json(reports)))
    assert report_json(again) == report_json(reports)
    assert report_csv(again) == report_csv(reports)
    assert [one.verdicts[0].config for one in again] == [Config({"BLOCK": 64}, maxnreg=32)] * 2


def changed(**values: Any) -> str:
    """A document with other fields."""
    return json.dumps({**json.loads(report_json([report()])), **values})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (changed(version=2), "version 2, and this asmtune reads 1 to 1: upgrade asmtune"),
        (changed(version="1"), "version '1'"),
        (changed(format="asmtune-verdict"), "no report"),
        (changed(reports=[]), "holds no report"),
        (changed(reports=[{}]), r"reports\[0\]: field 'kernel' is missing"),
        (changed(reports=[3]), "write the report again"),
        (report_json([report()])[:-40], "not whole JSON"),
        ("", "not whole JSON"),
        (changed().replace('"dropped_at": "rules"', '"dropped_at": "stairs"'), "'stairs'"),
        (changed().replace('"score": 2.5', '"score": "high"'), "high"),
        (
            changed().replace('"scorer": "weights"', '"scorer": null'),
            r"reports\[0\]\.scorer: expected text, got None",
        ),
    ],
)
def test_what_cannot_be_read(text: str, says: str, tmp_path: Path) -> None:
    """A damaged, foreign or newer file is refused in one line that names it."""
    with pytest.raises(InputError, match=says) as caught:
        read_reports(saved(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "report.json"))
    assert "\n" not in str(caught.value)


def test_a_feature_that_is_not_known(tmp_path: Path) -> None:
    """A report that was saved without a feature is shown without it."""
    document = json.loads(report_json([report()]))
    for verdict in document["reports"][0]["verdicts"]:
        (verdict["features"] or {}).pop("spill_words", None)
    reports = read_reports(saved(tmp_path, json.dumps(document)))
    (model,) = page_model(reports)["reports"]
    assert "spill_words" not in model["columns"]
    shown(reports)


def shown(reports: list[PruneReport]) -> None:
    """Show reports in every form."""
    report_html(reports)
    report_json(reports)
    report_csv(reports)
    Console(file=io.StringIO(), width=120).print(prune_table(reports))
    for one in reports:
        list(findings(one))


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2.5, 1e308, 10**400, 2**70, "", "x", "\x1b[31m", "=1+1", "<script>"),
    *([], {}, [[]], {"a": 1}),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """List every container of a document with each of its names or places."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [at for key in keys for at in places(value[key])]


def mutate(document: Any, chance: random.Random) -> None:
    """Delete, replace, swap or add one value of a document."""
    at, key = chance.choice(places(document))
    how = chance.choice(("delete", "replace", "replace", "swap", "add"))
    if how == "delete":
        del at[key]
    elif how == "replace":
        at[key] = chance.choice(VALUES)
    elif how == "swap":
        last = next(reversed(at)) if isinstance(at, dict) else -1
        at[key], at[last] = at[last], at[key]
    elif isinstance(at, dict):
        at["new"] = chance.choice(VALUES)
    else:
        at.append(chance.choice(VALUES))


@pytest.mark.slow
def test_mutated_reports_are_refused_in_a_line_or_shown(
    gemm: tuple[PruneReport, ...], tmp_path: Path
) -> None:
    """Whatever is changed in a real saved report, it is one line that names the file, or a page."""
    text = report_json([replace(gemm[0], verdicts=gemm[0].verdicts[:4])])
    lines: list[str] = []
    for seed in range(240):
        chance, document = random.Random(seed), json.loads(text)
        for _ in range(chance.choice((1, 1, 2, 4))):
            mutate(document, chance)
        path = saved(tmp_path, json.dumps(document))
        try:
            reports = read_reports(path)
        except InputError as error:
            lines.append(str(error))
            continue
        shown(reports)
    assert [line for line in lines if "\n" in line or not line.startswith(str(path))] == []
    assert 40 < len(lines) < 200


def test_measured_times_in_every_form(tmp_path: Path) -> None:
    """Measured times stand in the table, JSON, CSV and page, and are read back with the report."""
    timings = read_timings(str(exported(tmp_path)), tmp_path)
    (timed,) = with_timings([report()], timings)
    assert timed.notes[-1] == "measured: export.json, 2 of 4 configs"
    rows = list(csv.DictReader(io.StringIO(report_csv([timed]))))
    assert [row["measured_us"] for row in rows] == ["9.0", "12.5", "", ""]
    assert [row["measured_p90_us"][:4] for row in rows] == ["9.72", "13.5", "", ""]
    (again,) = read_reports(saved(tmp_path, report_json([timed])))
    assert report_json([again]) == report_json([timed])
    columns = page_model([again])["reports"][0]["columns"]
    assert columns["measured_us"] == [9, 12.5, None, None]
    assert columns["measured_p99_us"] == pytest.approx([9.882, 13.725, None, None])
    assert columns["measured_rsd"] == [5.59, 5.59, None, None]
    table = io.StringIO()
    Console(file=table, width=240).print(prune_table([again]))
    assert re.search(r" 9\.0 \W+9\.7 \W+9\.9 \W+5\.6% ", table.getvalue())
    assert "measured_us" not in report_csv([report()])


def exported(folder: Path, device: str = "NVIDIA H200") -> Path:
    """A file of `asmtune export` with two timings of the report's kernel."""
    key = TuneKey("module.scale", {"n": 4096}, {"x_ptr": "fp16"}, device)
    measurements = tuple(
        Measurement(config, us, us, us, (us, us, 1.1 * us))
        for config, us in ((Config({"BLOCK": 128}), 12.5), (Config({"BLOCK": 64}, maxnreg=32), 9.0))
    )
    made = Provenance(
        "s" * 64, "p" * 64, "3.6.0", "2.13.0", "0.1.0", "580.0", "2026-01-01T00:00:00Z"
    )
    path = folder / "export.json"
    interchange.write(
        path, [TuneRecord(key, measurements[1].config, measurements, made)], samples=True
    )
    return path


def test_timings_of_an_export(tmp_path: Path) -> None:
    """Records of the kernel, shape and device give their medians by config."""
    timings = read_timings(str(exported(tmp_path)), tmp_path)
    assert {config: us for config, (us, _) in timings.of(LAUNCH).items()} == {
        str(Config({"BLOCK": 128})): 12.5,
        str(Config({"BLOCK": 64}, maxnreg=32)): 9.0,
    }
    for other in (
        replace(LAUNCH, kernel="other"),
        replace(LAUNCH, shape={"n": 8192}),
        replace(LAUNCH, dtypes={"x_ptr": "bf16"}),
        replace(LAUNCH, target="A100"),
    ):
        assert timings.of(other) == {}
        with pytest.raises(InputError, match=r"scale n=4096 fp16 on NVIDIA H200; the report is of"):
            timings.check([other])
    timings.check([LAUNCH])


def test_timings_of_a_recording(tmp_path: Path) -> None:
    """A file of recorded timings gives microseconds; a config that failed has none."""
    rows = [
        {"config": {"BLOCK": 64, "num_warps": 4, "num_stages": 3}, "ms": 0.02},
        {"config": {"BLOCK": 128, "num_warps": 4, "num_stages": 3}, "error": "out of memory"},
    ]
    task = {"kernel": "scale", "shape": {"n": 4096}, "dtype": "fp16", "rows": rows}
    path = tmp_path / "oracle.json"
    path.write_text(json.dumps({"meta": {"device": "NVIDIA H200"}, "tasks": [task]}))
    timings = read_timings(str(path), tmp_path)
    assert timings.of(LAUNCH) == {str(Config({"BLOCK": 64})): (pytest.approx(20.0), None)}


def test_timings_of_a_run(tmp_path: Path) -> None:
    """A run of `asmtune tune` gives the medians of its last rounds."""
    run = write_run(tmp_path)
    launch = LaunchKey("doubled", {"n": 4096}, {"x_ptr": "fp16"}, "H200")
    for name in (run.run, str(run.path)):
        timings = read_timings(name, tmp_path)
        times = timings.of(launch)
        assert [times[str(c)][0] for c in (FAST, DEFAULT, SLOW)] == [10.0, 20.0, 40.0]
        assert len(times) == 3
        assert run.run in timings.source


def test_timings_that_are_not_there(tmp_path: Path) -> None:
    """What is no run and no file of timings is refused, with what would be one."""
    (tmp_path / "other.json").write_text("{}")
    for name, says in (("gone", "no such run or file; `asmtune runs`"), ("other", "--timings .*")):
        with pytest.raises(InputError, match=says):
            read_timings(str(tmp_path / f"{name}.json"), tmp_path)
