"""`asmtune model`: judge the scorers, and give the learned one data; what they read of a config."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, NoGpuError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.cli.output import (
    Output,
    RowForm,
    RowFormat,
    TextForm,
    TextFormat,
    check_destinations,
    print_line,
    write_result,
    write_rows,
)
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.kernel_module import load_kernel_module
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer, scorer_names
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import replay as run_replay
from asmtune.workshop.replay.oracle import load_oracle
from asmtune.workshop.replay.results import ReplayReport, replay_table
from asmtune.workshop.replay.train_command import rows, train

app: Final = typer.Typer(
    help="Judge and train the scorers; list the features and rules that they use.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(rows)
app.command()(train)


@app.command()
def replay(
    recorded: Annotated[list[Path], typer.Argument(help="Files of recorded timings.")],
    kernels: Annotated[Path, typer.Option(help="Folder of the kernels' modules.")],
    scorer: Annotated[list[str], typer.Option(help="A scorer; may be given again.")] = [],  # noqa: B006
    target: Annotated[str | None, typer.Option(help="Default: the device in the file.")] = None,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Run the funnel over recorded timings, without a GPU, and print each scorer's regret.

    A scorer that can rank before compiling is judged there too, and with 10% and 25% of the
    configs compiled, which it chose itself. For a kernel that `learned` has seen it needs LightGBM.
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
    is_json = form is TextForm.JSON
    write_result(
        json.dumps(report.to_json(), indent=1) if is_json else replay_table(report), output
    )


@app.command()
def collect(
    kernels: Annotated[list[str], typer.Argument(help="Kernels, by name or file.")],
    output: Annotated[Path, typer.Option(help="The file to write: .json or .json.gz.")],
    seconds: Annotated[float, typer.Option(help="Start no task after this many.")] = 1e9,
) -> None:
    """Time every config of the kernels' spaces on this machine's GPU, on all their shapes."""
    check_destinations([("--output", output)])
    if not seconds > 0:
        raise InputError(f"--seconds: {seconds:g} is no number above 0")
    import torch

    # Loads Triton, which no other command needs before it has read its input.
    from asmtune.workshop.replay.collect import Collector

    if not torch.cuda.is_available():
        raise NoGpuError("collect needs a CUDA GPU; this machine has none")
    device = torch.cuda.get_device_name()
    target = match_device(device)
    if target is None:
        raise InputError(f"no target describes the device {device!r}; add a JSON file for it")
    modules = [load_kernel_module(kernel) for kernel in kernels]
    funnel = Funnel(target, make_scorer("chance"), Settings.from_environment())
    date = datetime.now(UTC).date().isoformat()
    timing = "CUDA events, L2 flushed, interleaved; ms"
    meta = {"device": device, **versions(), "timing": timing, "date": date}
    tasks: list[dict[str, Any]] = []
    for task in Collector(funnel, seconds=seconds).tasks(modules):
        if any("ms" in row for row in task["rows"]):
            tasks.append(task)
            _write_timings(output, {"meta": meta, "tasks": tasks})
        print_line(_task_line(task), err=True)


def _task_line(task: dict[str, Any]) -> str:
    times = sorted(row["ms"] * 1000 for row in task["rows"] if "ms" in row)
    failed = len(task["rows"]) - len(times)
    shape = " ".join(f"{name}={value}" for name, value in task["shape"].items())
    spread = f"{times[0]:.1f} to {times[-1]:.1f} us" if times else "none timed"
    return f"{task['kernel']} {shape} {task['dtype']}: {len(times)} timed, {failed} not, {spread}"


def _write_timings(path: Path, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


@app.command()
def features(form: RowFormat = RowForm.TEXT, output: Output = None) -> None:
    """List the features that are read off a compiled config."""
    from asmtune.predict.features.catalog import FEATURES

    rows = [
        {"feature": f.name, "unit": f.unit, "group": f.group, "meaning": f.meaning}
        for f in FEATURES.values()
    ]
    write_rows("Features", rows, form, output, spare=("group", "unit"))


@app.command()
def rules(form: RowFormat = RowForm.TEXT, output: Output = None) -> None:
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
    write_rows("Rules", rows, form, output)
