"""Every block of every page runs, or is checked where it cannot run here.

A page's blocks run in order in a folder of the page's own, as a reader would give them. What
needs a GPU runs where there is one; elsewhere it is compiled, or read by the command line's
own parser.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
import triton

from tests.pinned import same_triton
from website.blocks import ROOT, blocks, inline_code, pages
from website.checks import check_command
from website.runner import mismatch, run

PAGES = pages()
ON_GPU = tuple(page for page in PAGES if "<!-- needs: gpu -->" in page.read_text())
# These hold no blocks to run, but commands in their sentences.
ALSO = tuple(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "cache/README.md"))
CALLED = ("asmtune ", "python -m ", "make ", "pip ")
# Placeholders and lists of names, as sentences have them.
LOOSE = re.compile(r"[|…]|\.\.\.|^asmtune$")


def name(page: Path) -> str:
    """A page as the repository knows it."""
    return str(page.relative_to(ROOT))


def run_and_compare(page: Path, *, gpu: bool) -> None:
    """Run a page; fail with everything that it shows in another form than it was printed."""
    wrong = [text for ran in run(page, gpu=gpu) if (text := mismatch(ran)) is not None]
    if not same_triton():
        pytest.skip(f"ran; outputs are those of another Triton than {triton.__version__}")
    assert wrong == [], "\n\n".join(wrong)


@pytest.mark.slow(seconds=11)
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_run(page: Path) -> None:
    """A page's blocks end as they should, and print what the page shows."""
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
    run_and_compare(page, gpu=False)


@pytest.mark.gpu
@pytest.mark.parametrize("page", ON_GPU, ids=name)
def test_blocks_run_on_a_gpu(page: Path) -> None:
    """The same with what needs a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU on this machine")
    run_and_compare(page, gpu=True)


@pytest.mark.parametrize("page", [*PAGES, *ALSO], ids=name)
def test_commands_in_sentences_are_read(page: Path) -> None:
    """A command in a sentence is one that its parser takes, and a module that is there."""
    wrong = []
    for line, text in inline_code(page):
        if not text.startswith(CALLED) or LOOSE.search(text):
            continue
        try:
            check_command(shlex.split(text))
        except ValueError as error:
            if "Missing parameter" in str(error):
                continue  # a sentence names the command alone
            wrong.append(f"{name(page)}, line {line}: {error}")
    assert wrong == []


def test_the_tutorial_shows_what_its_commands_print() -> None:
    """Every command of the tutorial, with a GPU or without, has its output below it."""
    shown = [block for block in blocks(ROOT / "docs" / "tutorial.md") if block.title is None]
    silent = [block.where for block in shown if block.language == "sh" and block.output is None]
    assert silent == []
    assert any(block.needs_gpu for block in shown)


def test_front_pages_are_short() -> None:
    """What a stranger reads first stays within its lines."""
    most = {"README.md": 130, "AGENTS.md": 60, "llms.txt": 30, "docs/index.md": 80}
    lines = {page: (ROOT / page).read_text().count("\n") for page in most}
    assert {page: count for page, count in lines.items() if count > most[page]} == {}
