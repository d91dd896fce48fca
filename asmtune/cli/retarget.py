"""`asmtune retarget`: what a stored config is worth on another device, without a GPU."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from asmtune.base.settings import Settings
from asmtune.cli.cache import Where, find_record
from asmtune.cli.listing import Json
from asmtune.cli.output import write_result
from asmtune.cli.prune_report import CompileOption, Dtype, Shape
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import check_inputs, parse_assignments
from asmtune.report.progress import ProgressBar
from asmtune.report.retarget import retargeted_json, retargeted_text
from asmtune.store.codec import key_digest
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import find_run, names_run
from asmtune.studies.retarget import RecordedLaunch
from asmtune.studies.retarget import retarget as run_retarget


def retarget(
    record: Annotated[
        str,
        typer.Argument(
            metavar="KEYPREFIX|RUN",
            help="Digits of a key, as `asmtune cache ls` shows them; or a run, by id or .jsonl.",
        ),
    ],
    target: Annotated[str, typer.Option(help="The other device: its name or a JSON file.")],
    kernel: Annotated[
        str | None,
        typer.Option(help="The kernel's module, by name or file; else as the record names it."),
    ] = None,
    shape: Shape = None,
    dtype: Dtype = None,
    compile: CompileOption = None,  # noqa: A002
    where: Where = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if the stored config no longer fits or pays.")
    ] = False,
    json_: Json = False,
) -> None:
    """Say what a stored config is worth on another device, and which config to use there.

    Needs no GPU. It says what of the config no longer fits (limit against actual) or no longer
    pays, and ranks the kernel's space for the target by predicted times. Where the target runs the
    same machine code as the device of the record, the record's timings correct these.

    Shape and dtype are those of the record's key, where the kernel's own shapes can give them.
    """
    machine, settings = load_target(target), Settings.from_environment()
    check_inputs((), dtype)
    sizes: Mapping[str, Any] | None = None if shape is None else parse_assignments(shape, "--shape")
    if names_run(record) and set(record.lower()) - set(string.hexdigits):
        header = read_trace(find_run(settings.runs_dir, record)).header
        record, kernel = key_digest(header.key), kernel or header.reference
        sizes = header.sizes if sizes is None else sizes
    layer, found = find_record(record, where)
    launch = RecordedLaunch.of(found, kernel, sizes, dtype)
    with ProgressBar() as progress:
        result = run_retarget(launch, machine, settings, compile=compile, progress=progress)
    if json_:
        write_result(json.dumps(retargeted_json(result, layer), indent=1))
    else:
        write_result(retargeted_text(result, layer))
    if check and result.fate != "pays":
        raise typer.Exit(1)
