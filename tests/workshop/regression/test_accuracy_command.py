"""`asmtune accuracy`: forms, exit codes, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command_lines import Commands

SCALES = str(Path(__file__).parents[3] / "examples" / "fp8_scales.py")
RUN = ("accuracy", f"{SCALES}:per_channel", "--shape", "rows=8,cols=32,outliers=1")


def test_table_and_json(commands: Commands) -> None:
    """A row a variant, as a table and as JSON; a function with keywords is its own name."""
    names = ("per_channel", "g", "per_group(group=8)")
    more = ("--variant", "g=per_group(group=8)", "--variant", names[2])
    ran = commands.run(*RUN, *more)
    assert (ran.code, ran.err) == (0, "")
    assert [name in ran.out for name in names] == [True] * 3
    document = json.loads(commands.run(*RUN, *more, "--format", "json", "--seed", "7").out)
    assert [row["variant"] for row in document["rows"]] == [*names]
    assert document["seed"] == 7
    assert "not one of 'text', 'json'" in commands.refused(*RUN, "--format", "yaml")
    assert "'=x'" in commands.refused(*RUN, "--variant", "=x")
