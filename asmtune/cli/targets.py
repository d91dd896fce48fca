"""`asmtune targets`: lists devices, and shows one with its sources."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from asmtune.cli.output import (
    Output,
    RowForm,
    RowFormat,
    TextForm,
    TextFormat,
    write_result,
    write_rows,
)
from asmtune.core.hardware.descriptor import descriptor_of
from asmtune.core.hardware.shipped import known_targets, load_target

app: Final = typer.Typer(
    help="List and show devices.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
) -> None:
    """Show a target's figures with their sources; in json it is a descriptor, for --target."""
    from asmtune.runtime.offline.tuning_queue import target_here

    shown = load_target(target) if target is not None else target_here()
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
