"""Progress of a tuning command: what is compiled, timed, and best so far."""

from __future__ import annotations

import io
import re
import warnings
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.report.tuning import TuningProgress
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.search.state import SearchState
from tests.trace_runs import DEFAULT, FAST, HEADER, measured


def state(compiled: int, times: list[float], failures: int = 0) -> SearchState:
    """A search that has come so far in a space of ten."""
    verdicts = [Verdict(FAST.with_cap(number + 1), True) for number in range(10)]
    made = SearchState(verdicts, verdicts[0].config)
    made.add_verdicts(verdicts[:compiled])
    timed = [measured(v.config, us) for v, us in zip(verdicts, times, strict=False)]
    failure = Failure("check", "wrong_output", "x differs")
    made.add_outcomes([*timed, *((v.config, failure) for v in verdicts[compiled:][:failures])])
    return made


def result() -> TuningResult:
    """A job that is done."""
    problem: Any = SimpleNamespace(name="doubled", shape={"n": 4096})
    key = TuneKey("k", {"n": 4096}, {"x": "fp16"}, "NVIDIA H200")
    request = TuningRequest(problem, key, Space.from_configs([DEFAULT]))
    provenance: Any = None
    record = TuneRecord(key, DEFAULT, (), provenance)
    return TuningResult(request, "tuned", record, seconds=3.0, compiled=4, timed=3)


def told(terminal: bool) -> str:
    """All that is written of one run, without the terminal's codes."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, force_interactive=terminal, width=200)
    with TuningProgress(2, console) as progress:
        progress.begin(HEADER)
        progress.stage("foresee")
        progress.refresh()
        progress.stage("search")
        progress.progress(state(5, [20.0, 12.5], 1))
        progress.refresh()
        warnings.warn("a disk is full", UserWarning, stacklevel=1)
        progress.finished(result())
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())


def test_a_terminal_shows_how_far_it_is() -> None:
    """Compiled, timed, failed and the best so far are in one line of the terminal."""
    text = told(terminal=True)
    assert "doubled n=4096 fp16" in text
    assert "foresee" in text
    assert "search, 5 compiled, 2 timed (1 failed), best 12.5 us" in text
    assert "asmtune: a disk is full" in text


def test_without_a_terminal() -> None:
    """Otherwise there is a line for each problem that is done and for each warning, no more.

    What shows warnings is as before afterwards.
    """
    before = warnings.showwarning
    lines = told(terminal=False).splitlines()
    assert lines == [
        "asmtune: a disk is full",
        "doubled n=4096: - us; 4 compiled, 3 timed in 3.0 s",
    ]
    assert warnings.showwarning is before
