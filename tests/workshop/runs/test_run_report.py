"""A tuning run as text and as JSON: what its trace holds, and nothing that it does not."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.store.trace.reader import read_summary, read_trace
from asmtune.store.trace.run import Ending, TracedRun
from asmtune.store.trace.writer import TraceWriter
from asmtune.workshop.runs.report import (
    NOT_ENDED,
    funnel_steps,
    run_json,
    run_report,
    runs_json,
    runs_table,
    seconds_by_stage,
)
from tests.trace_runs import (
    BROKEN,
    DEFAULT,
    ENDING,
    FAST,
    HEADER,
    SLOW,
    header_of,
    measured,
    write_run,
)


def shown(renderable: object) -> str:
    """The text of a report."""
    text = io.StringIO()
    Console(file=text, width=250).print(renderable)
    return text.getvalue()


def rows(renderable: object) -> list[list[str]]:
    """The cells of every line."""
    lines = shown(renderable).replace("┃", "│").splitlines()
    return [[cell.strip() for cell in line.split("│")] for line in lines]


def run_of(writer: TraceWriter) -> TracedRun:
    """Read a run that a writer wrote."""
    assert writer.path is not None
    return read_trace(writer.path)


@pytest.fixture
def run(tmp_path: Path) -> TracedRun:
    """A whole run."""
    return run_of(write_run(tmp_path))


def test_the_funnel_adds_up(run: TracedRun) -> None:
    """What the stages pass on and what falls before them add up from the space to the timings."""
    steps = [tuple(step) for step in funnel_steps(run)]
    assert steps == [
        ("space", "candidates", 6),
        ("rules", "threads", -1),
        ("compiled", "configs", 5),
        ("compile", "registers at ptxas", -1),
        ("check", "wrong_output", -1),
        ("timed", "configs", 3),
        ("finals", "configs", 2),
    ]
    assert all([*map(str, step)] in rows(run_report(run)) for step in steps)


def test_the_timed(run: TracedRun) -> None:
    """A timed config shows its axes that vary, its times, and what was told of it before."""
    lines = rows(run_report(run))
    heading = next(line for line in lines if "pred us" in line)
    first = dict(zip(heading, lines[lines.index(heading) + 2], strict=True))
    assert first == {
        "": "winner 1", "BLOCK": "256", "num_warps": "4", "us": "10.0", "spread": "10.0%",
        "p90 us": "10.0", "pred us": "9.0",
        "pred rank": "1", "regs": "40", "spills": "0", "shared KiB": "2",
    }  # fmt: skip
    marks = [line[0] for line in lines[lines.index(heading) + 2 :][:3]]
    assert marks == ["winner 1", "default 2", "3"]


def test_winner_and_default(run: TracedRun) -> None:
    """The winner is set against the default, axis by axis; a default that wins says so."""
    text = shown(run_report(run))
    told = "10.0 us instead of 20.0 us, 2.00 times as fast; BLOCK 64 -> 256, num_warps 2 -> 4"
    assert told in text
    same = replace(ENDING, winner=DEFAULT, median_us=20.0)
    assert "nothing was faster than the default, 20.0 us" in shown(
        run_report(replace(run, ending=same))
    )
    failed = replace(ENDING, winner=None, median_us=None, default_us=None)
    assert "instead of" not in shown(run_report(replace(run, ending=failed)))


def test_why_it_ended(run: TracedRun, tmp_path: Path) -> None:
    """Failures by kind, notes, the reason of the end, and for a killed run that there is none."""
    lines = rows(run_report(run))
    assert ["wrong_output", "check", "1", "x_ptr differs at 3 of 4096, by 1.5"] in lines
    text = shown(run_report(run))
    assert "s: the next batch was expected to save less than 1%." in text
    assert "clocks were not locked" in text
    killed = run_of(write_run(tmp_path / "killed", ended=False))
    assert NOT_ENDED in shown(run_report(killed))
    assert seconds_by_stage(killed) == {"sketch": 0.5}
    assert seconds_by_stage(run) == ENDING.seconds


def test_control_codes(tmp_path: Path) -> None:
    """What a file says never reaches the terminal as control codes."""
    evil = "\x1b]0;title\x07\x1b[31m"
    key = replace(HEADER.key, shape={evil: evil}, dtypes={evil: evil}, device=evil)
    header = replace(HEADER, kernel=evil, key=key, effort={evil: evil}, strategy=evil)
    writer = TraceWriter(tmp_path, header)
    config = Config({evil: evil})
    verdict = Verdict(
        config, False, "rules", score=1.0, reasons=(Reason(evil, evil),), failure=None
    )
    writer.stage(evil, 1.0)
    writer.ranking([verdict])
    writer.batch(1, 1.0, [verdict])
    outcomes = [measured(config, 1.0), (SLOW, Failure(evil, evil, evil)), measured(FAST, 2.0)]
    writer.trial(1, 1.0, outcomes, best_us=1.0)
    writer.note(evil)
    writer.end(Ending(config, 1.0, 2.0, evil, {evil: 1.0}, 1, 1))
    assert writer.path is not None
    for made in (run_report(run_of(writer)), runs_table([read_summary(writer.path)])):
        assert "\x1b" not in shown(made)
        assert "\x07" not in shown(made)


def test_run_json(run: TracedRun) -> None:
    """As JSON a run has every timing, refusal and failure with its numbers."""
    document = json.loads(run_json(run))
    assert (document["format"], document["version"]) == ("asmtune-run", 1)
    assert document["run"] == run.run
    assert document["header"]["key"]["shape"] == {"n": 4096}
    assert document["timed"][0] == {
        "config": FAST.to_dict(), "median_us": 10.0, "p20_us": 9.5, "p80_us": 10.5, "samples": 12,
        "p50_us": 10.0, "p90_us": 10.0, "p99_us": 10.0, "rsd": 0.0, "predicted_us": 9.0,
        "regs": 40, "spills": 0, "shared": 2048, "mark": "winner", "place": 1, "rank": 1,
        "spread": 0.1,
    }  # fmt: skip
    assert [row["kind"] for row in document["failed"]] == ["wrong_output"]
    assert [row["config"] for row in document["refused"]] == [BROKEN.to_dict()]
    assert document["ending"]["winner"] == FAST.to_dict()
    assert document["funnel"][0] == {"stage": "space", "what": "candidates", "configs": 6}
    assert document["notes"] == ["clocks were not locked"]


def test_the_list(tmp_path: Path) -> None:
    """A line a run with its outcome; one that did not end says so."""
    paths = [
        write_run(tmp_path, header_of(1)).path,
        write_run(tmp_path, header_of(2), ended=False).path,
    ]
    summaries = [read_summary(path) for path in paths if path is not None]
    done, killed = rows(runs_table(summaries))[-2:]
    assert done[:8] == [summaries[0].run, "n=4096", "fp16", "NVIDIA H200", "10.0", "2.00", "4", "3"]
    assert done[-1] == ENDING.reason
    assert killed[4:8] == ["-", "-", "-", "-"]
    assert killed[-1] == "not ended"
    first, second = json.loads(runs_json(summaries))["runs"]
    assert first["ending"]["median_us"] == 10.0
    assert second["ending"] is None
