"""Pages as blocks: nothing that looks like code escapes, and what fails is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from website.blocks import PageError, blocks
from website.refresh import refreshed
from website.runner import mismatch, run

FENCE = "```"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Where a page is written."""
    return tmp_path / "page.md"


def block(language: str, code: str, marks: str = "") -> str:
    """A fenced block under its marks."""
    return f"{marks}\n{FENCE}{language}\n{code}\n{FENCE}\n\n"


def test_blocks_and_outputs(page: Path) -> None:
    """A text block is an output right below what runs, and a block of its own elsewhere."""
    page.write_text(
        block("sh", "echo 1")
        + block("text", "1")
        + "words\n\n"
        + block("text", "a drawing")
        + block('python title="a.py"', "x = 1")
        + block("text", "below a file")
        + block("sh", "nvidia-smi", "<!-- needs: gpu -->")
        + block("text", "H200")
    )
    found = blocks(page)
    assert [b.language for b in found] == ["sh", "text", "python", "text", "sh"]
    assert [b.output is not None for b in found] == [True, False, False, False, True]
    assert found[0].output is not None
    assert (found[0].output.text, found[0].output.varies) == ("1\n", False)
    assert found[2].title == "a.py"
    assert found[4].output is not None
    assert (found[4].needs_gpu, found[4].output.varies) == (True, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("words\n\n    indented\n", "an indented block"),
        (block("", "x"), "language '' is not one of"),
        (block("bash", "x"), "language 'bash' is not one of"),
        (block("sh", "x", "<!-- need: gpu -->"), "is no mark of"),
        (block("sh", "x", "<!-- skip -->"), "is no mark of"),
        (block("sh", "x", "<!-- first: 3 -->"), "'first' is above no output"),
    ],
)
def test_what_would_escape_is_refused(page: Path, text: str, told: str) -> None:
    """Code that is not fenced, of another language, or under a mark that is none is refused."""
    page.write_text(text)
    with pytest.raises(PageError, match=rf"^page\.md, line \d+: .*{told}"):
        blocks(page)


def test_outputs_are_compared_and_written(page: Path) -> None:
    """A page that shows another output is told, and refreshing it makes it right."""
    page.write_text(block("sh", "echo one; echo two") + block("text", "one\nthree") + "the end\n")
    ran = list(run(page, gpu=False))
    told = mismatch(ran[0])
    assert told is not None
    assert "three" in told
    page.write_text(refreshed(page.read_text(), ran, ""))
    assert page.read_text().endswith(block("text", "one\ntwo") + "the end\n")
    assert [mismatch(again) for again in run(page, gpu=False)] == [None]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (block("python", "1 / 0"), "ZeroDivisionError"),
        (block("sh", "asmtune prune-report absent"), "unknown kernel 'absent'"),
        (block("sh", "false\ntrue"), "exit code 1, not 0"),
        (block("sh", "true", "<!-- exits: 3 -->"), "exit code 0, not 3"),
        (block("sh", "asmtune tune x --sede 1", "<!-- needs: gpu -->"), "No such option"),
        (block("python", "def f(:", "<!-- needs: gpu -->"), "invalid syntax"),
        (block("python", "from asmtune import absent", "<!-- needs: gpu -->"), "asmtune.absent"),
    ],
)
def test_what_fails_is_told(page: Path, text: str, told: str) -> None:
    """A block that fails, or could not run where it is meant to, fails the page with its line."""
    page.write_text(text)
    with pytest.raises(PageError, match=r"^page\.md, line \d+") as raised:
        list(run(page, gpu=False))
    assert told in str(raised.value)
