"""`asmtune targets`: lists devices, shows one with its sources, measures the one that is here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from asmtune.base.atomic_write import make_private
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
from asmtune.core.hardware.descriptor import descriptor_of
from asmtune.core.hardware.driver import read_attributes
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import known_targets, load_target, match_device

if TYPE_CHECKING:
    from asmtune.measure.rates import MeasuredRate

app: Final = typer.Typer(
    help="List, show and measure devices.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_UNSAFE: Final = re.compile(r"[^\w.-]+")


@app.callback(invoke_without_command=True)
def targets(context: typer.Context, form: RowFormat = RowForm.TEXT, output: Output = None) -> None:
    """List the devices that asmtune knows: the user's own, and those that ship."""
    if context.invoked_subcommand is not None:
        return
    rows = [
        {
            "target": target.name,
            "arch": target.arch,
            "SMs": target.sms,
            "shared KiB a program": target.shared_bytes_per_block // 1024,
            "DRAM TB/s": round(target.dram_bytes_per_s / 1e12, 2),
            "fp16 TFLOP/s": round(target.flops_per_s("fp16") / 1e12),
        }
        for target in known_targets()
    ]
    write_rows("Targets; a JSON file of the same form is taken by its path", rows, form, output)


@app.command("show")
def show(
    target: Annotated[
        str | None, typer.Argument(help="A name or a descriptor's path; else the GPU here.")
    ] = None,
    driver: Annotated[
        bool, typer.Option("--driver", help="What the driver reports about the GPU here, as JSON.")
    ] = False,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Show a target's figures with their sources, or what the driver reports about the GPU here.

    In json it is a descriptor, as --target takes it.
    """
    if driver:
        if target is not None:
            raise InputError(f"--driver is of the GPU here, and {target!r} is named; leave one out")
        _use_gpu()
        attributes = read_attributes(_current()).to_json()
        document = {**attributes, "versions": versions(), "date": _today()}
        write_result(json.dumps(document, indent=1), output)
        return
    shown = load_target(target) if target is not None else _here()
    if form is TextForm.JSON:
        write_result(json.dumps(descriptor_of(shown), indent=1), output)
        return
    rows = [
        {
            "figure": name,
            "value": f"{figure.value:,.6g}",
            "kind": figure.kind,
            "source": figure.source,
        }
        for name, figure in shown.figures.items()
    ]
    write_rows(f"{shown.name} ({shown.arch})", rows, RowForm.TEXT, output)


@app.command("measure")
def measure(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; else in your folder of targets."),
    ] = None,
) -> None:
    """Time what a datasheet hides on the GPU here, and write its descriptor.

    Launches and commands use it from then on where it is in the folder of targets, which
    ASMTUNE_TARGETS names. It takes some 20 seconds.
    """
    from asmtune.measure.rates import measured_target
    from asmtune.measure.timing.nvml import device_name, driver_version

    _use_gpu()
    if output is None:
        folder = Settings.from_environment().targets_dir
        make_private(folder)
    base = _here()
    if output is None:
        output = folder / f"{_UNSAFE.sub('-', base.name.lower())}.json"
    check_destinations([("--output", output)])
    rates, failures = _rates(base)
    made_with = versions()
    words = [f"{name} {made_with[name]}" for name in ("torch", "triton")]
    when = ", ".join([*words, f"driver {driver_version()}", _today()])
    measured = measured_target(base, device_name(), rates, when)
    text = json.dumps(descriptor_of(measured), indent=1) + "\n"
    output.write_text(text, encoding="utf-8")
    rows = [
        {"figure": name, "measured": f"{figure.value:.4g}", "before": _before(base, name)}
        for name, figure in measured.figures.items()
        if figure != base.figures.get(name)
    ]
    write_rows(f"{measured.name}, measured", rows, RowForm.TEXT)
    for name, reason in failures.items():
        print_line(f"{name}: not measured: {reason}", err=True)
    print_line(f"written to {output}", err=True)


def _rates(base: Target) -> tuple[list[MeasuredRate], dict[str, str]]:
    """Measure the GPU here; return its rates, and why some could not be measured."""
    from asmtune.measure.rates import RateMeter
    from asmtune.measure.timing.clock import GpuClock
    from asmtune.measure.timing.policy import TimingPolicy

    policy = TimingPolicy()
    policy = replace(policy, flush_bytes=max(policy.flush_bytes, 2 * base.l2_bytes))
    meter = RateMeter(base, GpuClock(policy), GpuClock(replace(policy, flush_bytes=0)))
    return list(meter.rates()), meter.failures


def _before(target: Target, name: str) -> str:
    """Format the figure that a measured one replaces: the target's own, or the vendor's peak."""
    figure = target.figures.get(name) or target.figures.get(name.removeprefix("measured_"))
    return "" if figure is None else f"{figure.value:.4g} ({figure.kind})"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _use_gpu() -> None:
    """Initialise CUDA, so that the driver may be asked.

    Raises:
        NoGpuError: there is no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise NoGpuError("this needs a CUDA GPU; PyTorch finds none on this machine")
    torch.cuda.init()  # type: ignore[no-untyped-call]


def _current() -> int:
    import torch

    return int(torch.cuda.current_device())


def _here() -> Target:
    """Return the target of the GPU here.

    Raises:
        NoGpuError: there is no GPU.
        InputError: no descriptor describes it, and its driver does not tell enough.
    """
    from asmtune.measure.timing.nvml import device_name

    _use_gpu()
    name = device_name()
    target = match_device(name)
    if target is None:
        raise InputError(f"{name}: no descriptor describes it, and its driver tells too little")
    return target
