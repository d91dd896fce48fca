"""`asmtune runs` and `asmtune model replay`: traces from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_lines import Commands
from tests.trace_runs import DEFAULT, FAST, SLOW, header_of, write_run

TIMINGS = Path(__file__).parents[1] / "replay_data" / "timings.json"


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
    assert commands.run("runs", "ls").out == ran.out
    none = commands.run("runs", "--kernel", "other")
    assert "no run of other in " in none.err
    assert runs[0] not in none.out


def test_a_damaged_run_hides_no_other(runs: list[str], commands: Commands) -> None:
    """A file that cannot be read is told on stderr, and the others are listed."""
    (commands.folder / "cache" / "runs" / f"{runs[0]}.jsonl").write_text("damaged\n")
    ran = commands.run("runs")
    assert ran.code == 0
    assert f"{runs[0]}.jsonl, line 1: not JSON" in ran.err
    assert runs[1] in ran.out


def test_no_runs(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run nothing is made, and stderr says where they would be."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "none"))
    ran = commands.run("runs")
    assert (ran.code, "no run of any kernel in " in ran.err) == (0, True)
    assert json.loads(commands.run("runs", "--format", "json").out)["runs"] == []
    assert not (commands.folder / "none").exists()


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


def test_explain_of_a_kernel_is_unchanged(commands: Commands) -> None:
    """A kernel is still explained, as text and as JSON."""
    small = ("explain", "{}/doubled.py", "--alone", "--config", "BLOCK=256,num_warps=2")
    text = commands.run(*small)
    assert text.code == 0
    assert text.out.startswith("BLOCK=256 num_warps=2")
    document = json.loads(commands.run(*small, "--format", "json").out)
    assert document["format"] == "asmtune-verdict"
    assert document["verdict"]["config"]["BLOCK"] == 256
    assert document["verdict"]["kept"] is True
    assert document["ranked"] == 1
    assert document["shape"] == {"n": 4096}


def test_what_replay_refuses(tmp_path: Path, commands: Commands) -> None:
    """A file without --kernels, and timings of several devices, are refused."""
    assert "--kernels" in commands.refused("model", "replay", str(TIMINGS))
    document = json.loads(TIMINGS.read_text())
    document["meta"]["device"] = "NVIDIA A100"
    (tmp_path / "other.json").write_text(json.dumps(document))
    kernels = ("--kernels", str(TIMINGS.parent / "kernels"))
    line = commands.refused("model", "replay", str(TIMINGS), str(tmp_path / "other.json"), *kernels)
    assert "several devices (NVIDIA H200, NVIDIA A100)" in line


def test_the_default_stays(runs: list[str], commands: Commands) -> None:
    """What is slower than the default is never shown as the winner."""
    document = json.loads(commands.run("runs", "show", runs[0], "--format", "json").out)
    times = {json.dumps(row["config"]): row["median_us"] for row in document["timed"]}
    assert times[json.dumps(FAST.to_dict())] <= times[json.dumps(DEFAULT.to_dict())]
    assert json.dumps(SLOW.to_dict()) in times
