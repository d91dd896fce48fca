"""`asmtune collect`: times whole spaces on a GPU, for replay and for training."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, MeasureError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line
from asmtune.core.hardware.shipped import match_device
from asmtune.core.kernel_module import load_kernel_module
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer


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
        raise MeasureError("collect needs a CUDA GPU; there is none on this machine")
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
            _write(output, {"meta": meta, "tasks": tasks})
        print_line(_summary(task), err=True)


def _summary(task: dict[str, Any]) -> str:
    times = sorted(row["ms"] * 1000 for row in task["rows"] if "ms" in row)
    failed = len(task["rows"]) - len(times)
    shape = " ".join(f"{name}={value}" for name, value in task["shape"].items())
    spread = f"{times[0]:.1f} to {times[-1]:.1f} us" if times else "none timed"
    return f"{task['kernel']} {shape} {task['dtype']}: {len(times)} timed, {failed} not, {spread}"


def _write(path: Path, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
