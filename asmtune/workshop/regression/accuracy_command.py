"""`asmtune accuracy`: errors of a kernel against a reference, and a guard of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations, print_line, write_note, write_result
from asmtune.cli.prune_report import Dtype
from asmtune.core.inputs.shapes import check_inputs, parse_assignments, unique
from asmtune.workshop.regression.api import MOST_LEVEL, NoGpuError
from asmtune.workshop.regression.api import accuracy as run_accuracy
from asmtune.workshop.regression.bench_command import NO_GPU
from asmtune.workshop.regression.check_command import (
    INCOMPARABLE,
    Figure,
    Format,
    Level,
    check_format,
    end,
    keep,
    rendered,
    share_of,
)

if TYPE_CHECKING:
    from asmtune.workshop.regression.accuracy_guard import ErrorFinding, Guard
    from asmtune.workshop.regression.accuracy_run import AccuracyRun
    from asmtune.workshop.regression.compare import Check

Kernel = Annotated[str, typer.Argument(help="A kernel's name or file, or file.py:function.")]
Against = Annotated[
    str, typer.Option(help="fp64, fp32, a variant's name, or file.py:function with these inputs.")
]
Shape = Annotated[str | None, typer.Option(help="Sizes, such as M=4096,N=4096.")]
Variants = Annotated[
    list[str],
    typer.Option(help="NAME=KEYWORDS, NAME=function(KEYWORDS), or a function's name; repeatable."),
]
Inputs = Annotated[
    str,
    typer.Option(help="random, heavy-tailed, outlier-channels, or a .pt, .npy, .safetensors file."),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the inputs; default 0; random with --history.")
]
Html = Annotated[Path | None, typer.Option(help="A page with figure and table to write.")]
Draw = Annotated[Path | None, typer.Option(help="Histogram and tail: .svg, .png or .pdf.")]
Limits = Annotated[Path | None, typer.Option("--check", help="Judge by a file of limits.")]
Write = Annotated[
    bool,
    typer.Option("--write-adaptive-thresholds", help="Tighten the limits by the history."),
]
History = Annotated[Path | None, typer.Option(help="A file of runs, to which this one is added.")]
Label = Annotated[str, typer.Option(help="What the run is called, such as a commit.")]


def accuracy(
    kernel: Kernel,
    against: Against = "fp64",
    shape: Shape = None,
    dtype: Dtype = None,
    variant: Variants = [],  # noqa: B006 - typer copies it
    inputs: Inputs = "random",
    seed: Seed = None,
    format_: Format = "text",
    figure: Draw = None,
    html: Html = None,
    check: Limits = None,
    write_adaptive_thresholds: Write = False,
    history: History = None,
    level: Level = "1%",
    trend: Figure = None,
    label: Label = "",
) -> None:
    """Measure a kernel's errors against a reference, variants side by side.

    With --check it judges them by limits: exits with 0 where all hold, with 1 where one is
    broken, with 3 where there is none to judge by, or one of a variant that is missing. Exits with
    4 where there is no GPU, and Triton's interpreter is not asked for.
    """
    check_format(format_)
    chance = share_of("--level", level, MOST_LEVEL)
    guarding = write_adaptive_thresholds or history or trend or format_ == "markdown"
    if check is None and guarding:
        raise InputError(
            "--history, --trend, --write-adaptive-thresholds and --format markdown need "
            "--check FILE"
        )
    if history is None and (write_adaptive_thresholds or trend):
        raise InputError("--write-adaptive-thresholds and --trend need --history FILE")
    check_inputs([] if shape is None else [shape], dtype)
    variants = unique("--variant", map(_variant, variant))
    files = GuardFiles(check, history, write_adaptive_thresholds, trend)
    files.check({"--figure": figure, "--html": html})
    guard = files.guard(chance)
    if seed is None:
        # Equal inputs would scatter less than those of a run to come.
        seed = 0 if history is None else random.SystemRandom().getrandbits(31)
    try:
        run = run_accuracy(
            kernel,
            against=against,
            shape=None if shape is None else parse_assignments(shape, "--shape"),
            dtype=dtype,
            variants=variants,
            inputs=inputs,
            seed=seed,
            label=label,
        )
    except NoGpuError as error:
        print_line(f"asmtune: {error}", err=True)
        raise typer.Exit(NO_GPU) from error
    _report(run, format_ if check is None else None, figure, html)
    if check is None:
        return
    result = guard.judge(run)
    files.write(run, guard, result)
    write_result(rendered(result, format_))
    if result.outcome != "incomparable" or not write_adaptive_thresholds:
        end(result)
    if "gone" in result.counts:
        raise typer.Exit(INCOMPARABLE)


def _variant(text: str) -> tuple[str, str]:
    """Split NAME=SPEC; a function is its own name, with its keywords if it has any."""
    name, equals, spec = (part.strip() for part in text.partition("="))
    if "(" in name:  # of function(KEYWORDS)
        return text.strip(), text.strip()
    if not name or (equals and not spec):
        raise InputError(f"--variant {text!r} is neither NAME=SPEC nor a function's name")
    return name, spec or name


def _report(run: AccuracyRun, form: str | None, figure: Path | None, html: Path | None) -> None:
    """Write figure, page and table; the table is a note beside a check's result."""
    from asmtune.workshop.regression.accuracy_page import (
        accuracy_figure,
        accuracy_json,
        accuracy_page,
        accuracy_table,
    )
    from asmtune.workshop.regression.run import write_bytes

    if figure is not None:
        write_bytes(figure, accuracy_figure(run, figure.suffix.lower().lstrip(".")))
    if html is not None:
        write_bytes(html, accuracy_page(run).encode())
    if form is None:
        write_note(accuracy_table(run))
    else:
        write_result(accuracy_json(run) if form == "json" else accuracy_table(run))


@dataclass(frozen=True)
class GuardFiles:
    """The files of a guard, as given on the command line."""

    limits: Path | None
    history: Path | None
    adapts: bool
    trend: Path | None

    def check(self, others: Mapping[str, Path | None]) -> None:
        """Make sure that all files can be written, and figures drawn, before anything runs.

        Raises:
            InputError: one cannot be, or is another's.
        """
        from asmtune.workshop.regression.check_page import check_figure

        wanted = {**others, "--trend": self.trend, "--history": self.history}
        limits = {"--check": self.limits} if self.limits else {}
        if self.adapts:
            wanted |= limits
        paths = [(name, path) for name, path in wanted.items() if path]
        check_destinations(paths, {} if self.adapts else limits)
        drawn = {"--figure": others["--figure"], "--trend": self.trend}
        drawn["--html"] = others["--html"] and Path("page.svg")
        for option, path in drawn.items():
            if path is not None:
                check_figure(path, option)

    def guard(self, level: float) -> Guard:
        """Read limits and history.

        Raises:
            InputError: a file cannot be read, or there are no limits and none are to be written.
        """
        from asmtune.workshop.regression.accuracy_guard import Guard, read_thresholds
        from asmtune.workshop.regression.history import read_history

        is_new = self.adapts and self.limits is not None and not self.limits.exists()
        limits = () if is_new or self.limits is None else read_thresholds(self.limits)
        known = () if self.history is None else read_history(self.history)
        return Guard(limits, known, self.adapts, level)

    def write(self, run: AccuracyRun, guard: Guard, result: Check[ErrorFinding]) -> None:
        """Add the run to the history, draw it, and tighten the limits if none is broken."""
        from asmtune.workshop.regression.accuracy_guard import write_thresholds
        from asmtune.workshop.regression.history import alike, comparable

        known = alike(comparable(guard.history, run.entry), run.entry)
        keep(result, [*known, run.entry], self.trend, self.history)
        if self.adapts and self.limits is not None and result.outcome != "worse":
            write_thresholds(self.limits, guard.tightened(run))
