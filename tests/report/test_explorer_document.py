"""The explorer's document without a browser: what the page holds, and what it is made of."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_documents import features, report

from asmtune.predict.prune.flow import A_GUESS
from asmtune.report import page
from asmtune.report.page import packed, page_model, report_html
from asmtune.report.tables import COLUMNS, TIME, headline
from tests.command_lines import page_report, unpacked

NODE = shutil.which("node")
STATIC = Path(page.__file__).parent / "static"
MODULES = {name: (STATIC / f"{name}.js").read_text() for name in page.MODULES}


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


@pytest.mark.slow
@given(values)
def test_packing(value: Any) -> None:
    """What is packed comes out equal, in letters that HTML leaves alone."""
    text = packed(value)
    assert unpacked(text) == value
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)


def test_columns() -> None:
    """Every verdict has its place in every column, and what is not known is null."""
    made = report()
    first = replace(made.verdicts[0], features=features(regs_per_thread=32, shared_bytes=1536))
    made = replace(made, verdicts=(first, *made.verdicts[1:]))
    (model,) = page_report(report_html([made]))["reports"]
    columns = model["columns"]
    assert {len(column) for column in columns.values()} == {4}
    assert columns["BLOCK"] == [64, 128, 100, 64]
    assert columns["maxnreg"] == [32, None, None, None]
    assert columns["kept"] == [1, 0, 0, 0]
    assert columns["rank"] == [1, 2, None, None]
    assert columns["fate"] == ["kept", "score: rank", "compile: kernel", "rules: threads"]
    assert columns["regs_per_thread"] == [32, 40, None, None]
    assert columns["shared_kib"] == [1.5, 0, None, None]
    assert columns["num_warps"] == [4, 4, 4, 64]
    assert model["failures"] == {"2": "first\nsecond"}
    assert sum(row["configs"] for row in model["funnel"]) + model["kept"] == 4
    came = "4 candidates: 1 ruled out, 1 failed to compile, 0 sketched only, 2 compiled"
    assert model["notes"][0] == f"H200: {came}"
    first = 'triton.Config({"BLOCK": 64}, num_warps=4, num_stages=3, maxnreg=32)'
    assert model["configs"][0] == first


def test_the_answer_comes_first() -> None:
    """The page begins with the line that the terminal begins with; a guess comes below it."""
    guess = f"{A_GUESS} of the grid"
    text = report_html([replace(report(), notes=(guess, "a remark"))])
    (model,) = page_report(text)["reports"]
    assert model["headline"] == headline(report())
    assert model["guesses"] == [guess]
    assert model["notes"][-1] == "a remark"
    places = [text.index(f'id="{name}"') for name in ("answer", "guesses", "funnel-body", "notes")]
    assert places == sorted(places)
    assert '<details class="about"><summary>How sure' in text


def test_terms_are_columns_and_sum_to_the_prediction() -> None:
    """Each term of the predicted time is a column; what is not known is null."""
    made = report()
    terms = {"shared": 2.25, "L2": 0.5, "launch": 0.25}
    first = replace(made.verdicts[0], predicted_us=3.0, bottleneck="shared", terms_us=terms)
    (model,) = page_report(report_html([replace(made, verdicts=(first, *made.verdicts[1:]))]))[
        "reports"
    ]
    columns = model["columns"]
    assert [columns[f"{name}_us"] for name in terms] == [
        [us, *[None] * 3] for us in (2.25, 0.5, 0.25)
    ]
    assert "DRAM_us" not in columns


def test_the_page_is_whole() -> None:
    """Nothing in it points outside, and its policy has the digest of its one script.

    A name that looks like a slot of the template stays a name.
    """
    text = report_html([replace(report(), kernel="@script@")])
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert "<h1>@script@</h1>" in markup
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:,)""", markup)
    assert not re.findall(r"\son\w+=", markup)
    assert not re.search(r"url\(|@import", text)
    assert "default-src 'none'" in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in text


def test_modules_are_joined() -> None:
    """Every module of the folder is in the page, after those that it imports; names are unique.

    Text reaches the page as text, and nothing is evaluated.
    """
    assert {path.stem for path in STATIC.glob("*.js")} == set(page.MODULES)
    tops = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|fetch\("
    for place, (name, text) in enumerate(MODULES.items()):
        imported = re.findall(r'^import \{[^}]*\} from "\./(\w+)\.js";$', text, re.MULTILINE)
        assert set(imported) <= set(page.MODULES[:place]), name
        assert text.count("import ") == len(imported), name
        assert re.findall(banned, text) == [], name
    names = Counter(name for text in MODULES.values() for name in tops.findall(text))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.skipif(NODE is None, reason="no node")
@pytest.mark.parametrize("is_narrow", [False, True])
def test_the_winner_is_the_first_row(is_narrow: bool) -> None:
    """Rows come by rank; on a phone the columns are time and axes."""
    made = report()
    rows, columns = ran_in_node(replace(made, verdicts=made.verdicts[::-1]), is_narrow)
    assert rows[:2] == [3, 2]
    if is_narrow:
        assert columns[0] == "predicted_us"
        assert sorted(columns[1:4]) == ["BLOCK", "maxnreg", "num_warps"]
    else:
        assert columns[:2] == ["rank", "fate"]


def ran_in_node(made: Any, is_narrow: bool) -> tuple[list[int], list[str]]:
    """The order of a report's rows and its usual columns, by the page's own script."""
    parts = [
        page._EXPORT.sub("", page._IMPORT.sub("", MODULES[name]))
        for name in ("dom", "data", "rows", "state")
    ]
    model = page_model([made])
    script = "\n".join(
        [
            f"globalThis.matchMedia = () => ({{matches: {str(is_narrow).lower()}}});",
            *parts,
            f"const model = {json.dumps(model)};",
            "const made = new Report(model.reports[0], model, 0);",
            "console.log(JSON.stringify([shownRows(made, initialState()), made.usual()]));",
        ]
    )
    assert NODE is not None
    ran = subprocess.run([NODE, "-"], input=script, capture_output=True, text=True, check=True)
    rows, columns = json.loads(ran.stdout)
    return rows, columns


def test_vendored_files_are_those_published() -> None:
    """Every vendored file of the site is in its manifest, with the published SHA-256."""
    folder = Path(__file__).parents[2] / "docs" / "assets" / "vendor"
    manifest = json.loads((folder / "versions.json").read_text())
    files = {name: sha for library in manifest.values() for name, sha in library["files"].items()}
    assert set(files) == {path.name for path in folder.iterdir()} - {"versions.json"}
    for name, sha in files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha, name


def test_headings_are_the_terminal_s() -> None:
    """The page describes each column of the terminal's table under the same heading."""
    described = page_model([report()])["columns"]
    shown = {name: heading for name, (heading, _, _) in described.items()}
    for column in (*COLUMNS, TIME):
        name = "shared_kib" if column.place == "shared_bytes" else column.place
        assert shown[name] == column.heading
