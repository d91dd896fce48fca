"""`asmtune replay`: what each scorer would have kept of the best speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from asmtune.cli.output import write_result
from asmtune.funnel import Funnel
from asmtune.oracle import load_oracle
from asmtune.replay import replay as run_replay
from asmtune.report.progress import ProgressBar
from asmtune.report.tables import replay_table
from asmtune.score import make_scorer, scorer_names
from asmtune.settings import Settings
from asmtune.target import load_target, match_device


def replay(
    oracle: Annotated[Path, typer.Argument(help="A file of recorded timings.")],
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
    recorded = load_oracle(oracle)
    machine = match_device(recorded.device) if target is None else load_target(target)
    if machine is None:
        machine = load_target(recorded.device)
    with ProgressBar() as progress:
        funnel = Funnel(machine, scorers[0], Settings.from_environment(), progress=progress)
        report = run_replay(recorded, kernels, funnel, scorers)
    write_result(json.dumps(report.to_json(), indent=1) if json_ else replay_table(report))
