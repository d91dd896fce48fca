"""`asmtune check`: exit codes, forms, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from asmtune.workshop.regression.run import BenchRun, write_run
from tests.command_lines import Commands
from tests.workshop.regression.bench_runs import scaled, simulated
from website.checks import parse_asmtune

WORKFLOW = Path(__file__).parents[3] / "examples" / "regression.yml"
STEADY = {"one": 10.0, "two": 400.0}
BASE = ("--baseline", "{}/base.json")


@pytest.fixture
def runs(commands: Commands) -> Commands:
    """A baseline, a run like it, and one whose first kernel is 5% slower."""
    base, run = simulated(0, **STEADY), simulated(1, **STEADY)
    write(commands, "base", base)
    write(commands, "run", run)
    write(commands, "slow", scaled(run, 1.05, lambda s: s.kernel == "one"))
    return commands


def write(commands: Commands, name: str, run: BenchRun) -> None:
    """A run in the folder of the commands."""
    write_run(commands.folder / f"{name}.json", run)


def test_no_slowdown(runs: Commands) -> None:
    """Unchanged kernels exit with 0 and are listed; other thresholds and levels judge otherwise."""
    ran = runs.run("check", "{}/run.json", *BASE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "No slowdown: 2 unchanged (threshold 3%, level 1%)"
    assert runs.run("check", "{}/slow.json", *BASE, "--threshold", "10%").code == 0
    assert runs.run("check", "{}/slow.json", *BASE, "--threshold", "0.02").code == 1
    ran = runs.run("check", "{}/slow.json", *BASE, "--level", "0.001%")
    assert ran.code == 3
    assert "8 and 8 processes show nothing at this level: asmtune bench --processes 11" in ran.out


def test_a_slowdown(runs: Commands) -> None:
    """A planted 5% exits with 1; its row comes first, with both times and the change."""
    ran = runs.run("check", "{}/slow.json", *BASE)
    assert ran.code == 1
    assert ran.out.splitlines()[-1].startswith("Slowdown: 1 slower, 1 unchanged")
    rows = [[cell.strip() for cell in line.split("│")] for line in ran.out.splitlines()]
    (row,) = [row for row in rows if row[0] == "one"]
    assert row[:4] == ["one", "n=4096", "fp16", "slower"]
    assert 1.03 < float(row[5]) / float(row[4]) < 1.07
    assert re.fullmatch(r"\+[4-6]\.\d%", row[6])
    assert rows.index(row) < next(place for place, row in enumerate(rows) if row[0] == "two")


def test_forms(runs: Commands) -> None:
    """JSON has all of it, Markdown the slow row in the open and the others folded away."""
    ran = runs.run("check", "{}/slow.json", *BASE, "--format", "json")
    document = json.loads(ran.out)
    assert (document["format"], document["version"]) == ("asmtune-check", 1)
    assert (document["outcome"], document["counts"]) == ("slower", {"slower": 1, "unchanged": 1})
    assert [f["verdict"] for f in document["findings"]] == ["slower", "unchanged"]
    assert document["findings"][0]["ratio"] == pytest.approx(1.05, abs=0.02)
    path = runs.folder / "check.md"
    ran = runs.run("check", "{}/slow.json", *BASE, "--format", "markdown", "--output", str(path))
    assert (ran.code, ran.out) == (1, "")
    text = path.read_text()
    assert text.startswith("### Slowdown: 1 slower, 1 unchanged\n\n| kernel |")
    assert text.index("| one | n=4096 | fp16 | slower |") < text.index("<details>")
    assert text.index("<details>") < text.index("| two | n=4096 | fp16 | unchanged |")


def test_the_example_workflow() -> None:
    """Every asmtune command of the example workflow is one that its parser takes."""
    document: Any = yaml.safe_load(WORKFLOW.read_text())
    assert set(document["jobs"]) == {"pull-request", "main-branch"}
    steps = [step for job in document["jobs"].values() for step in job["steps"]]
    lines = "\n".join(step.get("run", "") for step in steps).splitlines()
    filled = [re.sub(r"\$\{\{.*?\}\}", "x", line) for line in lines]
    found = [shlex.split(line)[1:] for line in filled if line.startswith("asmtune ")]
    assert {words[0] for words in found} == {"bench", "import", "check"}
    for words in found:
        parse_asmtune(words)
