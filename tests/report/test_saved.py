"""Saved reports read back, and measured times for a page."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_documents import report

from asmtune.base.errors import InputError
from asmtune.cli.prune_report import findings
from asmtune.core.config import Config
from asmtune.core.records.verdicts import PruneReport, Selection
from asmtune.report.documents import read_reports, report_csv, report_json
from asmtune.report.page import page_model, report_html
from asmtune.report.tables import prune_table


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
