"""`asmtune features`, `rules`, `kernels`, `runs`: lists of what asmtune knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import print_line, write_result
from asmtune.report.runs import runs_json, runs_table
from asmtune.report.tables import mapping_table
from asmtune.store.trace.reader import read_summary
from asmtune.store.trace.run import Summary, run_files

Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def features(json_: Json = False) -> None:
    """List the features that are read off a compiled config."""
    from asmtune.predict.features.registry import FEATURES

    rows = [
        {"feature": f.name, "unit": f.unit, "group": f.group, "meaning": f.meaning}
        for f in FEATURES.values()
    ]
    _show("Features", rows, json_, spare=("group", "unit"))


def rules(json_: Json = False) -> None:
    """List the rules, and which of them drop a config."""
    from asmtune.predict.score.rules import RULES

    rows = [
        {
            "rule": rule.name,
            "needs": rule.moment,
            "drops": "yes" if rule.hard else "no",
            "meaning": rule.meaning,
        }
        for rule in RULES
    ]
    _show("Rules", rows, json_)


def kernels(json_: Json = False) -> None:
    """List the kernels that come with asmtune."""
    from asmtune.core.kernel_module import kernel_names, load_kernel_module

    rows = []
    for module in map(load_kernel_module, kernel_names()):
        shape = ",".join(f"{name}={value}" for name, value in module.shapes[0].items())
        dtypes = " ".join(module.dtypes)
        rows.append({"kernel": module.name, "dtypes": dtypes, "shape": shape})
    _show("Kernels; a file of the same form is taken by its path", rows, json_)


def runs(
    kernel: Annotated[str | None, typer.Option(help="Only runs of this kernel.")] = None,
    json_: Json = False,
) -> None:
    """List tuning runs, the latest last; `asmtune explain RUN` shows one."""
    folder = Settings.from_environment().runs_dir
    summaries = [run for run in _readable(run_files(folder)) if kernel in (None, run.header.kernel)]
    write_result(runs_json(summaries) if json_ else runs_table(summaries))
    if not summaries:
        print_line(f"no run of {kernel or 'any kernel'} in {folder}", err=True)


def _readable(files: Sequence[Path]) -> Iterator[Summary]:
    """Yield runs in short; a damaged one is reported on stderr, and stops no other."""
    for path in files:
        try:
            yield read_summary(path)
        except InputError as error:
            print_line(f"asmtune: {error}", err=True)


def _show(
    title: str, rows: Sequence[Mapping[str, Any]], as_json: bool, spare: Sequence[str] = ()
) -> None:
    write_result(json.dumps(rows, indent=1) if as_json else mapping_table(title, rows, spare))
