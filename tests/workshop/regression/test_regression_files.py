"""Files of runs: whole, checked field by field, and never half-written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.workshop.regression.run import (
    UntimedSubject,
    read_run,
    run_from_json,
    run_to_json,
    write_run,
)
from tests.workshop.regression.bench_runs import run_of, simulated, subject, timed

RUN = replace(
    simulated(0, one=10.0, two=20.0), missed=(UntimedSubject(subject("three"), "failed", "no"),)
)

times = st.floats(1e-3, 1e7).map(lambda us: float(f"{us:.6g}"))
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=4), words, words)
def test_a_run_comes_back(samples: list[list[float]], label: str, name: str) -> None:
    """What is written is what is read, whatever the names and times, to six digits."""
    run = run_of(timed(name, samples), label=label)
    assert run_from_json(json.loads(json.dumps(run_to_json(run))), "x") == run


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_file_comes_back(name: str, tmp_path: Path) -> None:
    """A file has a line a row and is read as it was written, compressed or not."""
    path = tmp_path / name
    write_run(path, RUN)
    found = read_run(path)
    assert [row.subject for row in found.rows] == [row.subject for row in RUN.rows]
    assert found.missed == RUN.missed
    assert found.rows[0].median_us == pytest.approx(RUN.rows[0].median_us, rel=1e-5)
    assert [child.name for child in tmp_path.iterdir()] == [name]
    if name == "run.json":
        assert sum('"samples"' in line for line in path.read_text().splitlines()) == 2


def changed(**fields: Any) -> str:
    """The text of a run with other fields."""
    return json.dumps({**run_to_json(RUN), **fields})


def of_samples(samples: Any) -> str:
    """The text of a run whose first row has these samples."""
    document = run_to_json(RUN)
    document["rows"][0]["samples"] = samples
    return json.dumps(document)


BAD = {
    "empty": ("", "the file is empty"),
    "deep": ("[" * 100_000, "not JSON"),
    "a list": ("[]", "asmtune-bench"),
    "newer": (changed(version=2), "newer asmtune"),
    "no rows": (changed(rows=[]), "no timing"),
    "no samples": (of_samples([[1.0], []]), "rows[0], samples: a process without"),
    "zero": (of_samples([[1.0, 0.0]]), "rows[0], samples: expected times above 0"),
    "endless": (of_samples([[1e308]]), "from 1e-06 to 1e+12 us"),
    "missed otherwise": (
        changed(missed=[{**run_to_json(RUN)["missed"][0], "why": "odd"}]),
        "missed[0], why",
    ),
    "text": (of_samples([["1"]]), "run.rows[0].samples[0][0]"),
    "twice": (changed(rows=run_to_json(RUN)["rows"][:1] * 2), "is there 2 times"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_bad_runs(text: str, says: str, tmp_path: Path) -> None:
    """Each is refused in one line that names the file, the field and what to do."""
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_run(path, "--baseline")
    message = str(caught.value)
    assert message.startswith(f"--baseline {path}")
    assert says in message
    assert "\n" not in message
