"""Traces as JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from asmtune.report.documents import document_text
from asmtune.report.run_facts import funnel_steps, progress_of, seconds_by_stage
from asmtune.store.trace.json_codec import encoded
from asmtune.store.trace.run import Summary, TracedRun

RUN_FORMAT: Final = "asmtune-run"
RUNS_FORMAT: Final = "asmtune-runs"


def run_json(run: TracedRun) -> str:
    """All of a run: `{"format", "version", "run", "header", "funnel", "timed", ...}`."""
    compiled = run.compiled()
    timed = [
        {**encoded(timing), **_told(encoded(compiled.get(config))), "config": config.to_dict()}
        for config, timing in run.timings().items()
    ]
    failed = [{"config": c.to_dict(), **encoded(failure)} for c, failure in run.failures().items()]
    document = {
        "run": run.run,
        "header": encoded(run.header),
        "seconds": run.seconds,
        "seconds_by_stage": seconds_by_stage(run),
        "funnel": [step._asdict() for step in funnel_steps(run)],
        "progress": [far._asdict() for far in progress_of(run)],
        "timed": timed,
        "finals": [row.config.to_dict() for row in run.finals],
        "failed": failed,
        "refused": [encoded(row) for row in compiled.values() if row.dropped_at is not None],
        "foreseen": encoded(run.ranking),
        "costs": encoded(run.costs),
        "ending": None if run.ending is None else encoded(run.ending),
        "notes": list(run.notes),
    }
    return document_text(RUN_FORMAT, document)


def runs_json(runs: Sequence[Summary]) -> str:
    """Runs in short, oldest first: `{"format", "version", "runs": [...]}`."""
    rows = [
        {
            "run": one.run,
            "header": encoded(one.header),
            "seconds": one.seconds,
            "ending": None if one.ending is None else encoded(one.ending),
        }
        for one in runs
    ]
    return document_text(RUNS_FORMAT, {"runs": rows})


def _told(row: dict[str, Any] | None) -> dict[str, Any]:
    names = ("predicted_us", "regs", "spills", "shared")
    return {name: row[name] for name in names if name in row} if row else {}
