"""`asmtune roofline`: kernels on a target's roofline, before tuning and after."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from asmtune.base.errors import InputError
from asmtune.cli.kernel_arguments import (
    Arguments,
    Axes,
    Dtype,
    Grid,
    KernelArguments,
    Only,
    SpaceOption,
    with_functions,
)
from asmtune.cli.output import check_destinations, print_line, write_result
from asmtune.cli.prune_report import ScorerName
from asmtune.cli.tune import Shapes, ShapesFile
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import check_inputs
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.progress import ProgressBar
from asmtune.workshop.roofline.api import roofline as run_roofline

if TYPE_CHECKING:
    from asmtune.runtime.offline.kernel_sources import LoadedKernel
    from asmtune.workshop.roofline.chart import Chart

FAILED: Final = 1


class ChartFormat(StrEnum):
    """Forms of the result."""

    text = "text"
    json = "json"
    svg = "svg"
    png = "png"


Kernels = Annotated[
    list[str], typer.Argument(metavar="KERNEL...", help="Names, module files, or file.py:function.")
]
Target = Annotated[str, typer.Option(help="A device's name or a JSON file.")]
Outputs = Annotated[
    list[Path],
    typer.Option(
        "--output", "-o", help="A file to write: .svg, .png, .json or .txt; several may be."
    ),
]
FormatOption = Annotated[
    ChartFormat | None, typer.Option("--format", help="Instead of what the file's name ends in.")
]


def roofline(
    kernels: Kernels,
    target: Target = "H200",
    shape: Shapes = [],  # noqa: B006 - typer copies it
    shapes: ShapesFile = None,
    dtype: Dtype = None,
    scorer: ScorerName = "roofline",
    output: Outputs = [],  # noqa: B006
    format_: FormatOption = None,
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    only: Only = None,
    space: SpaceOption = None,
) -> None:
    """Put kernels under a target's roofs, before tuning and after; needs no GPU.

    Before is the space's default config; after is the tuned one that a launch would take from
    the store or from what is shipped, or else the model's first pick. Times are those of the
    record, or predicted; each says which. Without a shape each
    kernel's first is taken; a shape goes to the kernels that have its dimensions. --axis, --arg,
    --grid, --kernel and --space are for functions. Exits with 1 where a kernel has no point.
    """
    forms = _forms(output, format_)
    from asmtune.workshop.roofline.figure import check_figures

    if {ChartFormat.svg, ChartFormat.png} & {form for form, _ in forms}:
        check_figures()
    machine = load_target(target)
    sized: list[str | Path] = [*shape, *([] if shapes is None else [shapes])]
    check_inputs(sized, dtype)
    make_scorer(scorer)
    named = KernelArguments("", None, None, tuple(axis), tuple(arg), grid, only, space)
    sources: list[str | LoadedKernel] = []
    for one in with_functions(kernels, named, is_shaped=bool(sized or dtype)):
        sources += [one] if isinstance(one, str) else one.load(machine)
    with ProgressBar() as progress:
        chart = run_roofline(
            sources,
            target=target,
            shapes=sized,
            dtype=dtype,
            scorer=scorer,
            progress=progress,
        )
    for form, path in forms:
        write_result(_rendered(chart, form), path)
    for name, why in chart.failures:
        print_line(f"asmtune: {name}: {' '.join(why.split())}", err=True)
    if chart.failures:
        raise typer.Exit(FAILED)


def _rendered(chart: Chart, form: ChartFormat) -> object:
    from asmtune.workshop.roofline.document import chart_json, chart_table
    from asmtune.workshop.roofline.figure import draw

    if form is ChartFormat.text:
        return chart_table(chart)
    return chart_json(chart) if form is ChartFormat.json else draw(chart, form.value)


def _forms(
    output: Sequence[Path], form: ChartFormat | None
) -> list[tuple[ChartFormat, Path | None]]:
    """Pair each form of the result with its file; None is stdout.

    Raises:
        InputError: a file's name tells no form, a picture has no file to go to, or a file
            cannot be written.
    """
    if not output:
        if form is ChartFormat.png:
            raise InputError("--format png: a terminal cannot show it; give a file with --output")
        return [(form or ChartFormat.text, None)]
    forms = [form or _by_suffix(path) for path in output]
    check_destinations([("--output", path) for path in output])
    return list(zip(forms, output, strict=True))


def _by_suffix(path: Path) -> ChartFormat:
    suffix = path.suffix.lower().removeprefix(".")
    forms = {**{form.value: form for form in ChartFormat}, "txt": ChartFormat.text}
    if suffix not in forms:
        raise InputError(
            f"--output {path}: {path.suffix or 'no suffix'!r} tells no form: "
            "name it .svg, .png, .json or .txt, or give --format"
        )
    return forms[suffix]
