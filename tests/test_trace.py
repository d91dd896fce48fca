"""Traces of runs: written without failing a run, readable after a kill, refused when damaged."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.store.trace import run as places
from asmtune.store.trace.reader import decoded, encoded, read_summary, read_trace
from asmtune.store.trace.run import (
    Ending,
    InitialRanking,
    Timing,
    TracedRun,
    find_run,
    names_run,
    run_files,
)
from asmtune.store.trace.writer import MOST_RANKED, TraceWriter
from tests.trace_runs import (
    BROKEN,
    DEFAULT,
    ENDING,
    FAST,
    HEADER,
    SLOW,
    TOO_MANY,
    WRONG,
    header_of,
    write_run,
)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The file of a whole run."""
    path = write_run(tmp_path / "runs").path
    assert path is not None
    return path


def test_all_that_was_written_is_read(whole: Path) -> None:
    """Every event comes back with its configs, numbers, failures and reasons."""
    run = read_trace(whole)
    assert run.header == replace(HEADER, effort={"name": "balanced", "seconds": None})
    assert run.run == whole.stem
    assert run.stages == (("sketch", 0.5),)
    assert run.ranking is not None
    assert [p.config for p in run.ranking.configs] == [FAST, DEFAULT, SLOW, WRONG, BROKEN]
    assert [p.rank for p in run.ranking.configs] == [1, 2, 3, 4, 5]
    assert (run.ranking.count, run.ranking.left_out) == (6, 1)
    (fallen,) = run.ranking.dropped
    assert (fallen.stage, fallen.reason, fallen.count) == ("rules", "threads", 1)
    assert "2048 threads" in fallen.example
    assert run.compiled()[DEFAULT].spills == 2
    assert run.compiled()[BROKEN].reason == "registers at ptxas: needs 300,"
    assert run.outcomes()[FAST] == Timing(10.0, 9.5, 10.5, 12, 10.0, 10.0, 10.0, 0.0)
    assert run.outcomes()[SLOW] == Timing(40.0, 38.0, 42.0, 12, 40.0, 40.0, 40.0, 0.0)
    failure = run.outcomes()[WRONG]
    assert isinstance(failure, Failure)
    assert failure.kind == "wrong_output"
    assert [trial.best_us for trial in run.trials] == [21.0, 10.5]
    assert run.trials[1].expected_gain == 0.004
    assert run.notes == ("clocks were not locked",)
    assert run.ending == ENDING
    assert run.ending.speedup == 2.0


def test_a_summary_is_of_the_ends(whole: Path) -> None:
    """A run in short has its first and its last line, and needs none between."""
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text(lines[0] + "damaged\n" + lines[-1])
    summary = read_summary(whole)
    assert (summary.run, summary.ending) == (whole.stem, ENDING)
    whole.write_text("".join(lines[:-1]))
    assert read_summary(whole).ending is None
    whole.write_text("".join(lines)[:-2])
    assert read_summary(whole).ending is None


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts
configs = st.builds(
    Config,
    st.dictionaries(st.sampled_from(["BLOCK", "GROUP", "MODE"]), scalars, max_size=3),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 7),
    st.sampled_from([1, 2]),
    st.none() | st.integers(1, 255),
)
times = st.floats(1e-3, 1e9)
timings = st.builds(
    lambda c, m, low, high, n: (c, Measurement(c, m, low, high, (m,) * n)),
    *(configs, times, times, times, st.integers(0, 30)),
)
failures = st.tuples(configs, st.builds(Failure, texts, texts, texts))


@given(st.lists(timings | failures, max_size=5), st.none() | times, st.floats(0, 1))
def test_any_outcome_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    outcomes: list[tuple[Config, Measurement | Failure]],
    best_us: float | None,
    gain: float,
) -> None:
    """Whatever configs, timings and failures a trial has, they are read as they were written."""
    writer = TraceWriter(tmp_path_factory.mktemp("any"), HEADER)
    writer.trial(3, 0.25, outcomes, best_us=best_us, expected_gain=gain)
    writer.close()
    assert writer.path is not None
    (trial,) = read_trace(writer.path).trials
    assert (trial.number, trial.seconds) == (3, 0.25)
    assert trial.expected_gain == pytest.approx(gain, rel=1e-5)
    assert trial.best_us == (None if best_us is None else pytest.approx(best_us, rel=1e-5))
    for (config, outcome), row in zip(outcomes, trial.rows, strict=True):
        assert row.config == config
        if isinstance(outcome, Failure):
            assert isinstance(row.outcome, Failure)
            assert (row.outcome.stage, row.outcome.kind) == (outcome.stage, outcome.kind)
        else:
            assert isinstance(row.outcome, Timing)
            assert row.outcome.median_us == pytest.approx(outcome.median_us, rel=1e-5)
            assert row.outcome.samples == len(outcome.samples_us)


def events(run: TracedRun) -> int:
    """Count the lines after the first that a run was read from."""
    parts = (run.stages, run.batches, run.trials, run.notes)
    single = (run.ranking, run.ending, run.finals or None)
    return sum(map(len, parts)) + sum(part is not None for part in single)


def test_every_prefix_is_readable(whole: Path) -> None:
    """Wherever a kill cuts the file, all whole lines are read; without the first there is none."""
    data = whole.read_bytes()
    first = data.index(b"\n")
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]
    near = {end + step for end in ends for step in (-1, 0, 1)}
    for cut in sorted({*range(0, len(data), 5), *near}):
        whole.write_bytes(data[:cut])
        if cut < first:
            with pytest.raises(InputError, match="ended before it began"):
                read_trace(whole)
            continue
        # A line that lacks its newline alone is whole.
        lines = data[: cut + 1].count(b"\n")
        assert events(read_trace(whole)) == lines - 1


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}

CHILD = """
import sys
from pathlib import Path
from tests.trace_runs import HEADER, batch
from asmtune.store.trace.writer import TraceWriter

writer = TraceWriter(Path(sys.argv[1]), HEADER)
for number in range(10**9):
    writer.batch(number, 0.5, batch())
    print(number, flush=True)
"""


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    """What was written before a SIGKILL is read after it."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "runs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(20)]
        child.send_signal(signal.SIGKILL)
        seen += [int(line) for line in child.stdout]
    (path,) = run_files(tmp_path / "runs")
    run = read_trace(path)
    assert [batch.number for batch in run.batches][: len(seen)] == seen
    assert run.ending is None


FULL = """
import resource, sys, warnings
from pathlib import Path
from tests.trace_runs import HEADER, batch
from asmtune.store.trace.writer import TraceWriter

warnings.simplefilter("always")
writer = TraceWriter(Path(sys.argv[1]), HEADER)
size = writer.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1500, resource.RLIM_INFINITY))
for number in range(20):
    writer.batch(number, 0.5, batch())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.note("too late")
print("went on")
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """A disk that takes no more gives one warning; the run goes on, and what is there is read."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "runs")]
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert ran.stdout == "went on\n"
    assert ran.stderr.count("TraceWarning") == 1
    assert "File too large; the run goes on without it" in ran.stderr
    (path,) = run_files(tmp_path / "runs")
    assert not path.read_bytes().endswith(b"\n")
    run = read_trace(path)
    assert [batch.number for batch in run.batches] == [0, 1]
    assert run.notes == ()


def test_the_oldest_go(tmp_path: Path) -> None:
    """Beyond a number and beyond a size the oldest runs are deleted, and nothing else."""
    other = tmp_path / "notes.jsonl"
    other.write_text("mine")
    for number in range(6):
        write_run(tmp_path, header_of(number))
    names = [path.stem for path in run_files(tmp_path)]
    places.prune(tmp_path, most=4)
    assert [path.stem for path in run_files(tmp_path)] == names[2:]
    size = run_files(tmp_path)[0].stat().st_size
    places.prune(tmp_path, most=4, most_bytes=int(2.5 * size))
    assert [path.stem for path in run_files(tmp_path)] == names[4:]
    places.prune(tmp_path, most_bytes=0)
    assert [path.stem for path in run_files(tmp_path)] == names[5:]
    assert other.read_text() == "mine"


def test_runs_are_found_by_their_beginning(tmp_path: Path) -> None:
    """Ids sort by date, differ by key and name the kernel; a path or a unique beginning finds one.

    A kernel, as name, file or function, is never taken for a run, nor a run for a kernel.
    """
    runs = [write_run(tmp_path, header_of(number)).run for number in (1, 2, 12, 12)]
    assert runs == sorted(runs)
    assert runs[3] == f"{runs[2]}-2"
    assert read_trace(tmp_path / f"{runs[3]}.jsonl").run == runs[3]
    other = replace(HEADER, key=replace(HEADER.key, shape={"n": 1}))
    assert places.run_id(other) != places.run_id(HEADER)
    odd = replace(HEADER, kernel="pack.age.<lambda>/../x")
    assert places.run_id(odd).split("-")[2] == "_x"
    texts = {runs[0]: 0, "20250304-050602": 1, runs[2]: 2, f"{runs[0]}.jsonl": 0}
    for text, number in texts.items():
        assert find_run(tmp_path, text) == tmp_path / f"{runs[number]}.jsonl"
        assert names_run(text)
    assert find_run(tmp_path, "/else/where.jsonl") == Path("/else/where.jsonl")
    for folder, text, says in (
        (tmp_path, "2025", r"'2025': 4 begin so, the last .*give more of it"),
        (tmp_path, "1999", r"no run '1999'.*asmtune runs"),
        (tmp_path / "absent", "2025", "no run"),
    ):
        with pytest.raises(InputError, match=says):
            find_run(folder, text)
    assert not any(map(names_run, ["matmul", "2025.py", "2025.json", "pack.age", ""]))


def test_a_space_of_ten_thousand(tmp_path: Path) -> None:
    """Of 10,368 configs the best and the default are kept, and how many were left out is told."""
    every = [Config({"BLOCK_M": number, "BLOCK_N": 64, "BLOCK_K": 64}) for number in range(10368)]
    verdicts = [Verdict(c, True, score=float(n), predicted_us=3.5) for n, c in enumerate(every)]
    ranking = ranked(tmp_path, verdicts, every[0])
    assert (ranking.count, len(ranking.configs)) == (10368, MOST_RANKED + 1)
    assert ranking.left_out == 10368 - MOST_RANKED - 1
    assert ranking.configs[0].config == every[-1]
    assert (ranking.configs[-1].config, ranking.configs[-1].rank) == (every[0], 10368)


def ranked(folder: Path, verdicts: list[Verdict], default: Config | None = None) -> InitialRanking:
    """Write a ranking, and read it."""
    writer = TraceWriter(folder, HEADER)
    writer.ranking(verdicts, default=default)
    writer.close()
    assert writer.path is not None
    assert writer.path.stat().st_size < 60_000
    ranking = read_trace(writer.path).ranking
    assert ranking is not None
    return ranking


def test_ranks_go_before_scores(tmp_path: Path) -> None:
    """Ranks decide what comes first; without rank or score predicted times do."""
    verdicts = [
        Verdict(SLOW, True, rank=3, score=9.0),
        Verdict(FAST, True, rank=1, score=1.0),
        Verdict(DEFAULT, False, "sketch", rank=2, score=5.0),
        Verdict(TOO_MANY, False, "rules"),
    ]
    ranking = ranked(tmp_path, verdicts)
    assert [(p.config, p.rank) for p in ranking.configs] == [(FAST, 1), (DEFAULT, 2), (SLOW, 3)]
    assert {(d.stage, d.count) for d in ranking.dropped} == {("sketch", 1), ("rules", 1)}
    verdicts = [Verdict(SLOW, True, predicted_us=9.0), Verdict(FAST, True, predicted_us=1.0)]
    ranking = ranked(tmp_path, [*verdicts, Verdict(DEFAULT, True)])
    assert [(p.config, p.rank) for p in ranking.configs] == [(FAST, 1), (SLOW, 2)]
    assert ranking.left_out == 1


def _set(line: int, value: Any, *path: Any) -> Callable[[list[Any]], None]:
    def change(lines: list[Any]) -> None:
        place = lines[line]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


START, STAGE, FORESEEN, FIRST, BATCH, TRIAL, FINAL, NOTE, END = range(9)

MALFORMED = [
    (_set(START, "stage", "event"), "line 1: expected the start of a trace"),
    (_set(START, 99, "version"), "line 1: written by a newer asmtune (form 99, this one"),
    (_set(START, None, "kernel"), "line 1, start.kernel: expected text, got None"),
    (_set(START, [1], "default", "BLOCK"), "default.BLOCK: expected a finite number, a string"),
    (_set(STAGE, "long", "seconds"), "line 2, stage.seconds: expected a finite number, got 'long'"),
    (_set(STAGE, 10**400, "t"), "line 2, stage.t: expected a finite number"),
    (_set(STAGE, "stages", "event"), "line 2: unknown event 'stages'"),
    (_set(FORESEEN, 6.5, "count"), "line 3, ranking.count: expected a whole number, got 6.5"),
    (_set(TRIAL, 3, "rows", 1), "line 6, trial.rows[1]: expected an object, got 3"),
    (_set(TRIAL, -1.0, "rows", 0, "median_us"), "rows[0].median_us: expected a time above 0"),
    (_set(TRIAL, None, "rows", 2, "failure", "kind"), "rows[2].failure.kind: expected text"),
]
NO_JSON = {
    "{": "line 2: not JSON",
    '{"event": 3}': 'line 2: expected an object with an "event"',
    '{"event": "stage", "name": "x", "seconds": NaN, "t": 1}': "NaN is no number of JSON",
    "[" * 100_000: "line 2: not JSON: nested too deep",
    "\udcff": "line 2: not JSON",
}


def test_a_malformed_line_is_named(whole: Path) -> None:
    """One line names the place of a wrong or missing field, or of a line that is no event."""
    data = whole.read_bytes()
    first = data.splitlines(keepends=True)[0]
    texts = {}
    for change, says in MALFORMED:
        lines = [json.loads(line) for line in data.splitlines()]
        change(lines)
        texts["".join(json.dumps(line) + "\n" for line in lines).encode()] = says
    for text, says in NO_JSON.items():
        texts[first + text.encode(errors="surrogateescape") + b"\n"] = says
    for content, says in texts.items():
        whole.write_bytes(content)
        with pytest.raises(InputError, match=re.escape(says)) as caught:
            read_trace(whole)
        assert str(caught.value).startswith(f"trace {whole}, line ")
        assert "\n" not in str(caught.value)


def test_flipped_bytes(whole: Path) -> None:
    """A damaged file is read or refused in one line, never anything else."""
    generator, data = random.Random(3), whole.read_bytes()
    messages = []
    for _ in range(300):
        damaged = bytearray(data)
        damaged[generator.randrange(len(data))] = generator.randrange(10, 140)
        whole.write_bytes(bytes(damaged))
        try:
            read_trace(whole)
        except InputError as error:
            messages.append(str(error))
    assert 100 < len(messages) < 300
    assert not any("\n" in message for message in messages)


def test_what_json_lacks(tmp_path: Path) -> None:
    """Numbers that are not finite, and values of other kinds, are written as JSON has them."""
    assert encoded({"a": math.inf, "b": math.nan, "c": (1, 2), "d": DEFAULT}) == {
        "a": None,
        "b": None,
        "c": [1, 2],
        "d": {"BLOCK": 64, "num_warps": 2, "num_stages": 3},
    }
    assert encoded(1 / 3) == 0.333333
    assert encoded(Path("x")) == "x"
    empty = Ending(None, None, None, "nothing runs", {}, 0, 0)
    assert decoded(Ending, json.loads(json.dumps(encoded(empty))), "here") == empty
    assert empty.speedup is None
