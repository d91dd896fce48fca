"""The explorer's code in a browser: opens it, matches lines, compares, says what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from explorer_pages import Made, Opened, Opener, needs_browser, of_module

from asmtune.base.settings import Settings
from asmtune.report.code import CodeReader
from asmtune.report.explorer.page import report_html

pytestmark = needs_browser

HOSTILE = """
import torch, triton, triton.language as tl
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr, TAG: tl.constexpr):
    # </script><script>document.title = "stolen"</script> <b>bold</b> &amp; @report@ @script@
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def space():
    tags = ("</script><b>", "<img src=x onerror=alert(1)>", '"q"')
    return Space({"BLOCK": (128,), "TAG": tags})

SHAPES = ({"n": 4096},)
DTYPES = ("fp16",)

def problem(shape, dtype, device):
    x = torch.empty(shape["n"], dtype=torch.float16, device=device)
    grid = lambda values: (triton.cdiv(shape["n"], values["BLOCK"]),)
    return Problem(kernel, {"x_ptr": x, "n": shape["n"]}, grid, shape, "<b>twice</b></title>")
"""

STORE = "    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)\n"
LOOP = """\
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    if TAG == "loops":
        while tl.max(x, 0) > 1:
            x = x * 0.5
    tl.store(x_ptr + at, x, mask=at < n)
"""
TAGS = """("</script><b>", "<img src=x onerror=alert(1)>", '"q"')"""
SOME_LOOP = HOSTILE.replace(STORE, LOOP).replace(TAGS, '("loops", "ends")')


def lines(here: Opened, name: str, kind: str = "") -> list[str]:
    """The texts in sight of a pane, of a class where one is named."""
    return here.page.locator(f".pane-{name} .line{kind} .text").all_inner_texts()


def code_of(opened: Opener, path: Path, view: str) -> Opened:
    """A page with a config's code open."""
    here = opened(path, view)
    here.page.wait_for_selector(".pane-ptx .line")
    return here


def test_a_click_opens_the_code(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """Source, PTX and SASS of the config clicked on stand side by side, at their hot loops."""
    here = opened(gemm_page)
    here.page.click("#row-1 .fate")
    here.page.wait_for_selector(".pane-sass .line")
    second = next(v for v in gemm.reports[0].verdicts if v.rank == 2)
    assert here.page.inner_text("#code-title") == str(second.config)
    assert any("wgmma.mma_async" in line for line in lines(here, "ptx", ".hot.group-tensor"))
    assert any("tl.dot" in line for line in lines(here, "source", ".hot"))
    here.page.click(".pane-sass .chip.group-tensor")  # it may lie below what is shown first
    assert any("HGMMA" in line for line in lines(here, "sass", ".hot.group-tensor"))
    here.page.go_back()
    here.page.wait_for_selector("#table-view:not([hidden])")


def test_counts_are_the_library_s(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """Instructions of each class, in the text and by execution, are those of the code view."""
    here = code_of(opened, gemm_page, "#view=code&id=0.0")
    verdict, reader = gemm.reports[0].verdicts[0], CodeReader(gemm.problem, gemm.maker.targets[0])
    view = reader.assembly(verdict.config, artifact(gemm, verdict.artifact))
    for group in {count.group for count in view.classes}:
        counted = [count for count in view.classes if count.group is group]
        chip = here.page.locator(f".pane-ptx .chip.group-{group}")
        told = [
            int(n.replace(",", ""))
            for n in re.findall(r"([\d,]+) (?:in|exec)", chip.get_attribute("title") or "")
        ]
        assert told[0] == sum(count.instructions for count in counted)
        assert told[1] == pytest.approx(sum(count.executed for count in counted), abs=1)


def test_lines_match(gemm_page: Path, opened: Opener) -> None:
    """A source line marks its PTX and SASS, an instruction marks its source and its likes."""
    here = code_of(opened, gemm_page, "#view=code&id=0.0")
    here.page.locator(".pane-source .line", has_text="tl.dot").click()
    here.page.wait_for_selector(".pane-ptx .line.marked")
    assert any("wgmma.mma_async" in line for line in lines(here, "ptx", ".marked"))
    assert any("HGMMA" in line for line in lines(here, "sass", ".marked"))
    here.page.click(".pane-ptx .chip.group-copy")
    assert "cp.async" in lines(here, "ptx", ".current")[0]
    here.until(lambda: any("tl.load" in line for line in lines(here, "source", ".marked")))
    assert not any("tl.dot" in line for line in lines(here, "source", ".marked"))
    assert here.page.locator(".pane-ptx .line.current").count() == 1
    again = code_of(opened, gemm_page, here.page.evaluate("location.hash"))
    assert lines(again, "ptx", ".current") == lines(here, "ptx", ".current")
    assert lines(again, "source", ".marked") == lines(here, "source", ".marked")


def test_code_by_keys(gemm_page: Path, opened: Opener) -> None:
    """Arrows move in a pane, Enter marks, h goes to the hot loop, brackets to other configs."""
    here = code_of(opened, gemm_page, "#view=code&id=0.0")
    page = here.page
    page.focus(".pane-ptx .code")
    page.keyboard.press("Home")
    assert page.get_attribute(".pane-ptx .code", "aria-activedescendant") == "ptx-0"
    page.keyboard.press("h")
    assert len(lines(here, "ptx", ".current.hot")) == 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator(".pane-ptx .marked").count() >= 1
    title = page.inner_text("#code-title")
    page.keyboard.press("]")
    here.until(lambda: page.inner_text("#code-title") != title)
    page.keyboard.press("[")
    here.until(lambda: page.inner_text("#code-title") == title)


def test_what_has_no_code(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """The page says of a config that is not kept whose code it carries."""
    row = next(i for i, v in enumerate(gemm.reports[0].verdicts) if not v.kept)
    here = opened(gemm_page, f"#view=code&id=0.{row}")
    here.until(lambda: "the code of the kept configs" in here.page.inner_text(".pane-sass"))


def test_comparing(gemm: Made, gemm_page: Path, opened: Opener) -> None:
    """Two configs that were chosen stand side by side, with the numbers and lines that differ."""
    here = opened(gemm_page)
    here.page.check("#row-0 input")
    here.page.check("#row-1 input")
    here.page.click("#compare")
    here.page.wait_for_selector("#diff .pair")
    first, second = sorted(gemm.reports[0].verdicts, key=lambda v: v.rank or 0)[:2]
    titles = [here.page.inner_text(f"#side-{side}") for side in (0, 1)]
    assert titles == [str(first.config), str(second.config)]
    cells = here.page.locator("#differences tr").all()
    told = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()[:2] for row in cells
    }
    assert told["rank"] == ["1", "2"]
    for axis, value in first.config.to_dict().items():
        other = second.config.to_dict()[axis]
        assert told.get(axis) == (None if value == other else [str(value), str(other)])
    assert here.page.locator("#diff .pair.same").count() > 0
    assert here.page.locator("#diff .pair:not(.same)").count() > 0
    there = opened(gemm_page, here.page.evaluate("location.hash"))
    there.page.wait_for_selector("#diff .pair")
    assert there.page.inner_text("#diff-count") == here.page.inner_text("#diff-count")


def test_register_numbers(gemm_page: Path, opened: Opener) -> None:
    """Unless they are asked for, other numbers of registers are no difference."""
    counts = []
    for strict in ("", "&strict=1"):
        here = opened(gemm_page, "#view=compare&picked=0.0,0.2&scope=all" + strict)
        here.page.wait_for_selector("#diff .pair")
        counts.append(int(here.page.inner_text("#diff-count").split()[0].replace(",", "")))
    assert counts[0] < counts[1]


def test_targets_beside_each_other(targets_page: Path, opened: Opener) -> None:
    """Configs of two targets can be compared, each named by its target."""
    here = opened(targets_page, "#view=compare&picked=0.0,1.0")
    here.page.wait_for_selector("#diff .pair")
    assert here.page.inner_text("#side-0").startswith("H200: ")
    assert here.page.inner_text("#side-1").startswith("A100: ")


def test_names_that_need_escaping(settings: Settings, tmp_path: Path, opened: Opener) -> None:
    """Names and source that look like markup are shown as they are, and run nothing."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    path = tmp_path / "hostile.html"
    path.write_text(of_module(tmp_path / "hostile.py", settings).page(), encoding="utf-8")
    here = opened(path)
    assert here.page.title() == "<b>twice</b></title> on H200: asmtune prune report"
    assert here.page.inner_text("h1") == "<b>twice</b></title>"
    assert set(here.column("TAG")) == {"</script><b>", "<img src=x onerror=alert(1)>", '"q"'}
    assert here.page.locator("main img, main b:not(.chip b)").count() == 0
    here.page.click("#row-0 .fate")
    here.page.wait_for_selector(".pane-source .line")
    assert any(
        '"stolen"</script> <b>bold</b> &amp; @report@' in line for line in lines(here, "source")
    )
    assert here.violations() == []


def test_a_page_without_code(gemm: Made, tmp_path: Path, opened: Opener) -> None:
    """Where a page carries no code, its panes say so."""
    path = tmp_path / "plain.html"
    path.write_text(report_html(gemm.reports), encoding="utf-8")
    here = opened(path, "#view=code&id=0.0")
    here.until(lambda: "without code" in here.page.inner_text(".pane-ptx"))


def artifact(gemm: Made, digest: str | None) -> Any:
    """A compiled artifact of the session's folder."""
    from asmtune.compile.artifacts import ArtifactCache

    assert digest is not None
    return ArtifactCache.of(gemm.maker.settings).get(digest)
