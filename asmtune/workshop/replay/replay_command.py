"""`asmtune replay`: what each scorer would have kept of the best speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import write_result
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.oracle import load_oracle
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer, scorer_names
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import replay as run_replay
from asmtune.workshop.replay.results import ReplayReport, replay_table


def replay(
    recorded: Annotated[list[Path], typer.Argument(help="Files of recorded timings.")],
    kernels: Annotated[Path, typer.Option(help="Folder of the kernels' modules.")],
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
    oracles = [load_oracle(path) for path in recorded]
    devices = list(dict.fromkeys(oracle.device for oracle in oracles))
    if len(devices) > 1:
        raise InputError(f"the timings are of several devices ({', '.join(devices)}): give one's")
    machine = match_device(devices[0]) if target is None else load_target(target)
    machine = machine or load_target(devices[0])
    with ProgressBar() as progress:
        funnel = Funnel(machine, scorers[0], settings, progress=progress)
        reports = [run_replay(oracle, kernels, funnel, scorers) for oracle in oracles]
    report = ReplayReport.merged(reports)
    write_result(json.dumps(report.to_json(), indent=1) if json_ else replay_table(report))
