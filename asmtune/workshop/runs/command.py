"""`asmtune runs`: lists tuning runs, and shows one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import Output, TextForm, TextFormat, print_line, write_result
from asmtune.store.trace.reader import read_summary, read_trace
from asmtune.store.trace.run import TracedRun, find_run, run_files
from asmtune.workshop.runs.report import run_json, run_report, runs_json, runs_table

app: Final = typer.Typer(
    help="List tuning runs, and show one.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Kernel = Annotated[str | None, typer.Option(help="Only runs of this kernel.")]


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    kernel: Kernel = None,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """List tuning runs, the latest last; `asmtune runs show RUN` shows one."""
    if context.invoked_subcommand is not None:
        return
    folder = Settings.from_environment().runs_dir
    summaries = [run for run in _readable(run_files(folder)) if kernel in (None, run.header.kernel)]
    shown = runs_json if form is TextForm.JSON else runs_table
    write_result(shown(summaries), output)
    if not summaries:
        print_line(f"no run of {kernel or 'any kernel'} in {folder}", err=True)


@app.command("show")
def show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, or its .jsonl file.")],
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Show a run of `asmtune tune` or of the decorator.

    Seconds by stage, configs dropped by each stage, what was timed, and why it ended.
    """
    traced = read_trace(find_run(Settings.from_environment().runs_dir, run))
    write_result(run_json(traced) if form is TextForm.JSON else run_report(traced), output)


def _readable(files: Sequence[Path]) -> Iterator[TracedRun]:
    """Yield runs in short; a damaged one is reported on stderr, and stops no other."""
    for path in files:
        try:
            yield read_summary(path)
        except InputError as error:
            print_line(f"asmtune: {error}", err=True)
