"""The explorer's document without a browser: what the page holds, and what it is made of."""

from __future__ import annotations

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
from explorer_pages import Made
from hypothesis import given
from hypothesis import strategies as st
from test_documents import report

from asmtune.predict.prune.flow import A_GUESS
from asmtune.report.explorer import code, page
from asmtune.report.explorer.code import carried_code, packed, pieces, unpacked
from asmtune.report.explorer.page import page_model, report_html
from asmtune.report.tables import headline

NODE = shutil.which("node")
STATIC = Path(page.__file__).parent / "static"
MODULES = {name: (STATIC / f"{name}.js").read_text() for name in page.MODULES}


def held(text: str) -> dict[str, Any]:
    """Read the reports that a page holds."""
    match = re.search(r'<script type="application/json" id="report">([^<]*)</script>', text)
    assert match is not None
    found: dict[str, Any] = unpacked(match[1])
    return found


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
    (model,) = held(report_html([report()]))["reports"]
    columns = model["columns"]
    assert {len(column) for column in columns.values()} == {4}
    assert columns["BLOCK"] == [64, 128, 100, 64]
    assert columns["maxnreg"] == [32, None, None, None]
    assert columns["kept"] == [1, 0, 0, 0]
    assert columns["rank"] == [1, 2, None, None]
    assert columns["regs_per_thread"] == [32, 40, None, None]
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
    (model,) = held(text)["reports"]
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
    (model,) = held(report_html([replace(made, verdicts=(first, *made.verdicts[1:]))]))["reports"]
    columns = model["columns"]
    assert [columns[f"{name}_us"] for name in terms] == [
        [us, *[None] * 3] for us in (2.25, 0.5, 0.25)
    ]
    assert "DRAM_us" not in columns


def test_an_axis_with_the_name_of_a_verdict() -> None:
    """An axis that is called as a column is stands beside it, not in its place."""
    from asmtune.core.config import Config

    made = report()
    verdicts = [replace(v, config=Config({"rank": 7, "BLOCK": 1})) for v in made.verdicts]
    (model,) = held(report_html([replace(made, verdicts=tuple(verdicts))]))["reports"]
    assert model["columns"]["axis rank"] == [7] * 4
    assert model["columns"]["rank"] == [1, 2, None, None]


def test_the_page_is_whole() -> None:
    """Nothing in it points outside: no address is loaded, no handler stands in the markup."""
    text = report_html([report()])
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:,)""", markup)
    assert not re.findall(r"\son\w+=", markup)
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import", page._style())


def test_the_policy_fits_the_script() -> None:
    """The digest in the policy is that of the script, byte for byte."""
    import base64
    import hashlib

    text = report_html([report()])
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in text


def test_slots_are_filled_once() -> None:
    """A name that looks like a slot of the template stays a name."""
    text = report_html([replace(report(), kernel="@script@")])
    assert "<h1>@script@</h1>" in text


def test_modules_are_all_there() -> None:
    """Every module of the folder is in the page, after those that it imports."""
    assert {path.stem for path in STATIC.glob("*.js")} == set(page.MODULES)
    for place, (name, text) in enumerate(MODULES.items()):
        imported = re.findall(r'^import \{[^}]*\} from "\./(\w+)\.js";$', text, re.MULTILINE)
        assert set(imported) <= set(page.MODULES[:place]), name
        assert text.count("import ") == len(imported), name


def test_modules_share_no_names() -> None:
    """No name stands at the top of two modules, since they end up in one function."""
    tops = re.compile(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
    names = Counter(name for text in MODULES.values() for name in tops.findall(text))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", page.MODULES)
def test_modules_write_no_markup(name: str) -> None:
    """Text reaches the page as text, and nothing is evaluated."""
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|fetch\("
    assert re.findall(banned, MODULES[name]) == []
    assert len(MODULES[name].splitlines()) <= 260


@pytest.mark.skipif(NODE is None, reason="no node")
@pytest.mark.parametrize("is_narrow", [False, True])
def test_the_winner_is_the_first_row(is_narrow: bool) -> None:
    """Rows come by measured time, else by rank; on a phone the columns are time and axes."""
    made = report()
    timed = [
        replace(verdict, measured_us=us)
        for verdict, us in zip(made.verdicts, (9.0, 4.0, None, None), strict=True)
    ]
    reports = [
        replace(made, verdicts=tuple(timed[::-1])),
        replace(made, verdicts=made.verdicts[::-1]),
    ]
    found = [ran_in_node(one, is_narrow) for one in reports]
    assert [rows[:2] for rows, _ in found] == [[2, 3], [3, 2]]
    columns = [columns[:4] for _, columns in found]
    axes = ["BLOCK", "num_warps", "maxnreg"]
    if is_narrow:
        assert [shown[0] for shown in columns] == ["measured_us", "predicted_us"]
        assert [sorted(shown[1:]) for shown in columns] == [sorted(axes)] * 2
    else:
        assert columns[0][:2] == ["rank", "fate"]


def ran_in_node(made: Any, is_narrow: bool) -> tuple[list[int], list[str]]:
    """The order of a report's rows and its usual columns, by the page's own script."""
    parts = [
        page._EXPORT.sub("", page._IMPORT.sub("", MODULES[name]))
        for name in ("dom", "data", "rows", "state")
    ]
    model = page_model([made], code.no_code([made]))
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


@pytest.mark.skipif(NODE is None, reason="no node")
def test_the_script_is_javascript(tmp_path: Path) -> None:
    """Its syntax is right as the page has it."""
    (tmp_path / "page.js").write_text(page.page_script())
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "--check", str(tmp_path / "page.js")], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_licenses_stand_with_the_libraries() -> None:
    """Each library that comes with the page has its license and its version."""
    from asmtune.report.explorer.page import VENDORED

    for library in VENDORED:
        assert (STATIC / "vendor" / f"{library.split('.')[0]}.LICENSE").is_file()
    versions = json.loads((STATIC / "vendor" / "versions.json").read_text())
    assert set(versions) == {"uPlot", "diff"}
    assert (
        f"v{versions['uPlot']['version']}" in (STATIC / "vendor" / "uPlot.iife.min.js").read_text()
    )


SITE = Path(__file__).parents[2] / "docs" / "assets"


@pytest.mark.parametrize("folder", [STATIC / "vendor", SITE / "vendor"], ids=["explorer", "site"])
def test_vendored_files_are_those_published(folder: Path) -> None:
    """Every vendored file is in the manifest, with the SHA-256 that the published package has."""
    manifest = json.loads((folder / "versions.json").read_text())
    files = {name: sha for library in manifest.values() for name, sha in library["files"].items()}
    assert set(files) == {path.name for path in folder.iterdir()} - {"versions.json"}
    for name, sha in files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha, name


@pytest.mark.slow
def test_which_code_is_carried(gemm: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept ones have their code, the best of them where there are too many."""
    one = gemm.first()
    verdicts = one.reports[0].verdicts
    kept = [row for row, v in sorted(enumerate(verdicts), key=lambda p: p[1].rank or 0) if v.kept]
    carried = carried_code(one.reports, one.problem, one.maker)
    assert [row for row, index in enumerate(carried.index[0]) if index >= 0] == sorted(kept)
    assert all({"ptx", "sass"} <= set(unpacked(text)) for text in carried.packed)
    monkeypatch.setattr(code, "MOST_CONFIGS", 1)
    (only,) = carried_code(one.reports, one.problem, one.maker).index
    assert [row for row, index in enumerate(only) if index >= 0] == kept[:1]


def test_sources(tmp_path: Path) -> None:
    """Of a file the functions that lines are in, whole, and nothing else."""
    text = "import x\n\n\n@x.jit\ndef first(a):\n    return a\n\n\ndef second():\n    pass\n"
    (tmp_path / "mine.py").write_text(text)
    (piece,) = pieces(str(tmp_path / "mine.py"), 3, [6])
    assert piece == {
        "file": 3,
        "title": "mine.py: first",
        "first": 4,
        "text": "@x.jit\ndef first(a):\n    return a",
    }
    assert pieces(str(tmp_path / "gone.py"), 0, [1]) == []
    (tmp_path / "bad.py").write_text("def (:\n")
    assert pieces(str(tmp_path / "bad.py"), 0, [1]) == []


def test_labels_of_one_target_on_two_shapes() -> None:
    """Where a target stands twice, its shape tells which is which."""
    reports = [report(), replace(report(), shape={"n": 8192})]
    model = page_model(reports, code.no_code(reports))
    assert [one["label"] for one in model["reports"]] == ["H200 4096", "H200 8192"]
