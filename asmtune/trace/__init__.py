"""Traces: what a tuning run did, as lines of JSON that survive a kill."""

from asmtune.trace.folder import find_run, names_run, run_files, runs_of
from asmtune.trace.forms import encoded
from asmtune.trace.reader import read_summary, read_trace
from asmtune.trace.rows import (
    Batch,
    Compiled,
    Cost,
    Dropped,
    Foreseen,
    Prediction,
    Timed,
    Timing,
    Trial,
)
from asmtune.trace.run import Ending, Header, Run, Summary
from asmtune.trace.writer import TraceWarning, TraceWriter

__all__ = [
    "Batch",
    "Compiled",
    "Cost",
    "Dropped",
    "Ending",
    "Foreseen",
    "Header",
    "Prediction",
    "Run",
    "Summary",
    "Timed",
    "Timing",
    "TraceWarning",
    "TraceWriter",
    "Trial",
    "encoded",
    "find_run",
    "names_run",
    "read_summary",
    "read_trace",
    "run_files",
    "runs_of",
]
