"""Colours of the explorer's page: what stands on what can be read, in both themes."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.contrast import contrast

STATIC = files("asmtune.report.explorer.static")
GROUPS = ("tensor", "copy", "shared", "global", "barrier", "branch", "spill", "other")
LINES = ("surface", "hot", "marked", "hovered", "gone", "come")
WORDS = ("gone-word", "come-word")


@pytest.mark.parametrize("sheet", ["style.css", "dark.css"])
def test_code_can_be_read_on_every_ground(sheet: str) -> None:
    """Instructions of every class on every kind of line, and words that differ, have 4.5 to 1."""
    text = (STATIC / sheet).read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))
    pairs = [(ink, ground) for ink in (*GROUPS, "text") for ground in LINES]
    pairs += [(word_ink(), ground) for ground in WORDS]
    found = {pair: round(contrast(*map(colours.__getitem__, pair)), 2) for pair in pairs}
    assert {pair: value for pair, value in found.items() if value < 4.5} == {}


def word_ink() -> str:
    """The colour of a word that differs between two configs, whatever its class."""
    rule = re.search(r"^mark \{ color: var\(--([\w-]+)\)", (STATIC / "code.css").read_text(), re.M)
    assert rule is not None, "it has its class's colour, which is too faint on these grounds"
    return rule[1]
