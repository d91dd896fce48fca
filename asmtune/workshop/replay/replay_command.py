"""`asmtune replay`: what each scorer would have kept of the best speed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import write_result
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer, scorer_names
from asmtune.report.progress import ProgressBar
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import find_run, names_run
from asmtune.workshop.replay.flow import replay as run_replay
from asmtune.workshop.replay.results import ReplayReport
from asmtune.workshop.replay.tables import replay_table
from asmtune.workshop.replay.traces import NOTE, Recording, recordings


def replay(
    recorded: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|RUN...",
            help="Files of recorded timings, or runs, by id or .jsonl.",
        ),
    ],
    kernels: Annotated[
        Path | None, typer.Option(help="Folder of the kernels' modules; a run knows its own.")
    ] = None,
    scorer: Annotated[list[str], typer.Option(help="A scorer; may be given again.")] = [],  # noqa: B006
    target: Annotated[str | None, typer.Option(help="Default: the device in the file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Run the funnel over recorded timings, without a GPU, and print each scorer's regret.

    A scorer that can rank before compiling is judged there too, and with 10% and 25% of the
    configs compiled, which it chose itself.
    """
    scorers = [make_scorer(name) for name in dict.fromkeys(scorer or scorer_names())]
    settings = Settings.from_environment()
    files = _recordings(recorded, kernels, settings)
    devices = list(dict.fromkeys(one.oracle.device for one in files))
    if len(devices) > 1:
        raise InputError(f"the timings are of several devices ({', '.join(devices)}): give one's")
    machine = match_device(devices[0]) if target is None else load_target(target)
    machine = machine or load_target(devices[0])
    with ProgressBar() as progress:
        funnel = Funnel(machine, scorers[0], settings, progress=progress)
        reports = [run_replay(one.oracle, one.kernels, funnel, scorers) for one in files]
    report = ReplayReport.merged(reports)
    if json_:
        write_result(json.dumps(report.to_json(), indent=1))
        return
    notes = [Text(NOTE, "yellow")] if any(map(names_run, recorded)) else []
    write_result(Group(replay_table(report), *notes))


def _recordings(
    arguments: Sequence[str], kernels: Path | None, settings: Settings
) -> list[Recording]:
    files = [Path(argument) for argument in arguments if not names_run(argument)]
    runs = [find_run(settings.runs_dir, argument) for argument in arguments if names_run(argument)]
    if kernels is None and files:
        raise InputError(f"{files[0]}: give the folder of its kernels' modules by --kernels")
    loaded = [Recording(load_oracle(path), kernels) for path in files if kernels is not None]
    traced = [read_trace(path) for path in dict.fromkeys(runs)]
    return loaded + (recordings(traced, kernels) if traced else [])
