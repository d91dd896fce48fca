"""`asmtune runs`: lists the tuning runs of which there is a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import write_result
from asmtune.report.runs import runs_json, runs_table
from asmtune.store.trace.reader import read_summary
from asmtune.store.trace.run import Summary, run_files


def runs(
    kernel: Annotated[str | None, typer.Option(help="Only runs of this kernel.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List tuning runs, the latest last; `asmtune explain RUN` shows one."""
    folder = Settings.from_environment().runs_dir
    summaries = [run for run in _readable(run_files(folder)) if kernel in (None, run.header.kernel)]
    write_result(runs_json(summaries) if json_ else runs_table(summaries))
    if not summaries:
        typer.echo(f"no run of {kernel or 'any kernel'} in {folder}", err=True)


def _readable(files: Sequence[Path]) -> Iterator[Summary]:
    """Yields runs in short; a damaged one is reported on stderr, and stops no other."""
    for path in files:
        try:
            yield read_summary(path)
        except InputError as error:
            typer.echo(f"asmtune: {error}", err=True)
