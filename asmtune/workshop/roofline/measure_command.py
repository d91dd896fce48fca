"""`asmtune targets measure`: times what a datasheet hides of the GPU here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from asmtune.base.atomic_write import make_private
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.cli.output import check_destinations, print_line, write_result
from asmtune.core.hardware.descriptor import descriptor_of
from asmtune.core.hardware.model import Target
from asmtune.report.tables import mapping_table

if TYPE_CHECKING:
    from asmtune.workshop.roofline.rates import MeasuredRate

_UNSAFE: Final = re.compile(r"[^\w.-]+")


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
    from asmtune.cli.targets import target_here, today, use_gpu
    from asmtune.measure.timing.nvml import device_name, driver_version
    from asmtune.workshop.roofline.rates import measured_target

    use_gpu()
    if output is None:
        folder = Settings.from_environment().targets_dir
        make_private(folder)
    base = target_here()
    if output is None:
        output = folder / f"{_UNSAFE.sub('-', base.name.lower())}.json"
    check_destinations([("--output", output)])
    rates, failures = _rates(base)
    made_with = versions()
    words = [f"{name} {made_with[name]}" for name in ("torch", "triton")]
    when = ", ".join([*words, f"driver {driver_version()}", today()])
    measured = measured_target(base, device_name(), rates, when)
    text = json.dumps(descriptor_of(measured), indent=1) + "\n"
    output.write_text(text, encoding="utf-8")
    rows = [
        {"figure": name, "measured": f"{figure.value:.4g}", "before": _before(base, name)}
        for name, figure in measured.figures.items()
        if figure != base.figures.get(name)
    ]
    write_result(mapping_table(f"{measured.name}, measured", rows))
    for name, reason in failures.items():
        print_line(f"{name}: not measured: {reason}", err=True)
    print_line(f"written to {output}", err=True)


def _rates(base: Target) -> tuple[list[MeasuredRate], dict[str, str]]:
    """Measure the GPU here; return its rates, and why some could not be measured."""
    from asmtune.measure.timing.clock import GpuClock
    from asmtune.measure.timing.policy import TimingPolicy
    from asmtune.workshop.roofline.rates import RateMeter

    policy = TimingPolicy()
    policy = replace(policy, flush_bytes=max(policy.flush_bytes, 2 * base.l2_bytes))
    meter = RateMeter(base, GpuClock(policy), GpuClock(replace(policy, flush_bytes=0)))
    return list(meter.rates()), meter.failures


def _before(target: Target, name: str) -> str:
    """Format the figure that a measured one stands for: its own, or the vendor's peak."""
    figure = target.figures.get(name) or target.figures.get(name.removeprefix("measured_"))
    return "" if figure is None else f"{figure.value:.4g} ({figure.kind})"
