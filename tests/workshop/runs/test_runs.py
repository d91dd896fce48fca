"""`asmtune runs` and `asmtune model replay`: traces from the command line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.command_lines import Commands
from tests.trace_runs import FAST, header_of, write_run


@pytest.fixture
def runs(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of two runs in a cache of their own; the second was killed."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    folder = commands.folder / "cache" / "runs"
    reference = str(commands.folder / "doubled.py")
    headers = [replace(header_of(number), reference=reference) for number in (1, 2)]
    return [write_run(folder, made, ended=made is headers[0]).run for made in headers]


def test_runs_are_listed(runs: list[str], commands: Commands) -> None:
    """Every run has a line, oldest first; a kernel's name selects its own."""
    ran = commands.run("runs")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.index(runs[0]) < ran.out.index(runs[1])
    listed = json.loads(commands.run("runs", "--format", "json").out)
    assert [run["run"] for run in listed["runs"]] == runs
    none = commands.run("runs", "--kernel", "other")
    assert "no run of other in " in none.err
    assert runs[0] not in none.out


def test_a_run_is_shown_by_an_id_its_beginning_and_a_path(
    runs: list[str], commands: Commands
) -> None:
    """However a run is named, the same is shown."""
    shown = commands.run("runs", "show", runs[0])
    assert (shown.code, shown.err) == (0, "")
    assert "10.0 us instead of 20.0 us, 2.00 times as fast" in shown.out
    assert commands.run("runs", "show", "20250304-050601").out == shown.out
    assert commands.run("runs", "show", f"{{}}/cache/runs/{runs[0]}.jsonl").out == shown.out
    document = json.loads(commands.run("runs", "show", runs[0], "--format", "json").out)
    assert (document["run"], document["ending"]["winner"]) == (runs[0], FAST.to_dict())
    assert "it did not end" in commands.run("runs", "show", runs[1]).out


def test_runs_that_cannot_be_shown(runs: list[str], commands: Commands) -> None:
    """No run, several, a damaged file, and a run in the place of a kernel are one line."""
    assert "no run '1999'" in commands.refused("runs", "show", "1999")
    assert "2 begin so" in commands.refused("runs", "show", "2025")
    assert "No such file" in commands.refused("runs", "show", "{}/absent.jsonl")
    assert f"`asmtune runs show {runs[0]}`" in commands.refused("explain", runs[0])
    (commands.folder / "x.jsonl").write_text("{}\n")
    assert 'x.jsonl, line 1: expected an object with an "event"' in commands.refused(
        "runs", "show", "{}/x.jsonl"
    )
