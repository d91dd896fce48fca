"""`asmtune accuracy`: forms, exit codes, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_lines import Commands

SCALES = str(Path(__file__).parents[3] / "examples" / "fp8_scales.py")
RUN = ("accuracy", f"{SCALES}:per_channel", "--shape", "rows=8,cols=32,outliers=1")


def test_table_and_json(commands: Commands) -> None:
    """A row a variant, as a table and as JSON."""
    more = ("--variant", "g=per_group(group=8)", "--variant", "per_tensor")
    ran = commands.run(*RUN, *more)
    assert (ran.code, ran.err) == (0, "")
    assert [name in ran.out for name in ("per_channel", " g ", "per_tensor")] == [True] * 3
    document = json.loads(commands.run(*RUN, *more, "--format", "json", "--seed", "7").out)
    assert [row["variant"] for row in document["rows"]] == ["per_channel", "g", "per_tensor"]
    assert document["seed"] == 7


def test_a_function_with_keywords_is_its_own_name(commands: Commands) -> None:
    """The first = of --variant is a keyword's where it stands in brackets."""
    ran = commands.run(*RUN, "--variant", "per_group(group=8)", "--format", "json")
    names = [row["variant"] for row in json.loads(ran.out)["rows"]]
    assert names == ["per_channel", "per_group(group=8)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "yaml"), "one of text, json"),
        (("--variant", "=x"), "neither NAME=SPEC nor a function's name"),
        (("--against", "nothing"), "--against 'nothing'"),
    ],
)
def test_bad_options_are_refused(
    commands: Commands, options: tuple[str, ...], message: str
) -> None:
    """One line says what is wrong."""
    assert message in commands.refused(*RUN, *options)
