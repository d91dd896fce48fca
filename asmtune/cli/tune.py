"""`asmtune tune`: finds the fastest config on this machine's GPU, for one shape or for many."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group

from asmtune.base.errors import InputError
from asmtune.cli.kernel_arguments import (
    Arguments,
    Axes,
    Dtype,
    Grid,
    KernelArguments,
    Only,
    SpaceOption,
)
from asmtune.cli.output import Output, TextForm, TextFormat, print_line, write_result
from asmtune.core.inputs.shapes import check_inputs, shapes_of
from asmtune.core.kernel_module import KernelModule, Shape, load_kernel_module

if TYPE_CHECKING:
    from asmtune.runtime.offline.tuning_queue import TuningGpu
    from asmtune.tuning.options import TuneOptions
    from asmtune.tuning.request import TuningResult


def _options(choices: dict[str, Any], seconds: float | None, compiles: int | None) -> TuneOptions:
    """Convert the options to those of the library; a check may be limits of errors.

    Raises:
        InputError: an effort or a check is unknown.
    """
    from asmtune.measure.accuracy import Bound
    from asmtune.tuning.options import TuneOptions

    if "=" in choices["check"]:
        choices["check"] = Bound.parse(choices["check"])
    options = TuneOptions.of(choices)  # type: ignore[arg-type]
    asked: dict[str, Any] = {"seconds": seconds, "compiles": compiles}
    limits = {name: value for name, value in asked.items() if value is not None}
    effort = replace(options.effort, limits=replace(options.effort.limits, **limits))
    return replace(options, effort=effort)


FAILED: Final = 1
INTERRUPTED: Final = 130

Shapes = Annotated[list[str], typer.Option(help="Sizes: M=4096,N=4096,K=4096; several are tuned.")]
ShapesFile = Annotated[
    Path | None,
    typer.Option(help="A file of shapes: lines such as M=4096,N=4096."),
]
EffortName = Annotated[str, typer.Option(help="How hard: quick, balanced, thorough or exhaustive.")]
Seconds = Annotated[float | None, typer.Option(help="Time limit per shape, in seconds.")]
Compiles = Annotated[int | None, typer.Option(min=1, help="Maximum compiles per shape.")]
Isolate = Annotated[bool, typer.Option(help="Time in a process of its own, which may die.")]
Check = Annotated[
    str,
    typer.Option(
        help="How outputs may differ from the default's: close, bits (not at all), or within "
        'limits of errors: "p99=3e-2,max_rel=0.1".'
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
Force = Annotated[bool, typer.Option("--force", help="Tune although the store knows the shape.")]


def tune(
    kernel: Annotated[
        str | None, typer.Argument(help="A kernel's name or a kernel module's file.")
    ] = None,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    shapes: ShapesFile = None,
    dtype: Dtype = None,
    effort: EffortName = "balanced",
    seconds: Seconds = None,
    compiles: Compiles = None,
    isolate: Isolate = True,
    check: Check = "close",
    seed: Seed = 0,
    force: Force = False,
    form: TextFormat = TextForm.TEXT,
    output: Output = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="A file of `asmtune run --record`: tune the keys in it."),
    ] = None,
    axis: Axes = [],  # noqa: B006
    arg: Arguments = [],  # noqa: B006
    grid: Grid = None,
    only: Only = None,
    space: SpaceOption = None,
) -> None:
    """Find the fastest config of a kernel on this machine's GPU, and keep it in the store.

    Without a shape all of the module's SHAPES are tuned. What the store knows is not tuned
    again, so that a command that was interrupted or killed goes on with the next shape when it
    is given again. Exits with 1 where a shape could not be tuned. With --from the keys that a
    program met are tuned without the program; KERNEL then chooses those of one kernel.

    FILE.py:FUNCTION tunes the launches of a host function, as a program that imports the file
    makes them, or a kernel's own launch; --arg, --axis, --grid, --kernel and --space are for these.
    """
    named = (tuple(axis), tuple(arg), grid, only, space)
    asked = KernelArguments(kernel or "", next(iter(shape), None), dtype, *named)
    if ":" not in asked.kernel and any(named):
        words = "--axis, --arg, --grid, --kernel and --space"
        raise InputError(f"{words} are for a function, named as file.py:function")
    if from_ is not None:
        given: dict[str, Any] = {"--shape": shape, "--shapes": shapes, "--dtype": dtype}
        _check_alone(given)
    sizes: list[str | Path] = [*shape, *([] if shapes is None else [shapes])]
    check_inputs(sizes, dtype)
    if seconds is not None and not 0 < seconds < math.inf:
        raise InputError(f"--seconds: {seconds:g} is no number above 0")
    choices: dict[str, Any] = {"effort": effort, "isolate": isolate, "seed": seed, "force": force}
    choices["check"] = check
    options = _options(choices, seconds, compiles)
    if from_ is not None:
        plan = _recorded_plan(from_, kernel, options)
    elif ":" in asked.kernel:
        plan = _host_plan(asked, options)
    else:
        module = _module(kernel)
        plan = _plan(module, str(kernel), shapes_of(module, sizes), dtype, options)
    results, interrupted = _results(plan)
    _write(results, output, form)
    for changed in plan.changed:
        text = f"kernel {changed} has changed since its keys were recorded: tuned as it is now"
        print_line(f"asmtune: {text}", err=True)
    _exit(results, plan.count, interrupted=interrupted)


@dataclass(frozen=True)
class _Plan:
    """The keys to tune.

    Attributes:
        options: how they are tuned.
        count: number of keys.
        results: tunes them on a GPU, one after another.
        changed: names of kernels that have changed since their keys were recorded, as `results`
            meets them.
    """

    options: TuneOptions
    count: int
    results: Callable[[TuningGpu], Iterator[TuningResult]]
    changed: Collection[str] = ()


def _recorded_plan(path: Path, kernel: str | None, options: TuneOptions) -> _Plan:
    from asmtune.runtime.offline.recorded_keys import RecordedKeys

    keys = RecordedKeys.of(path, kernel)
    return _Plan(options, len(keys.keys), keys.results, keys.changed)


def _host_plan(asked: KernelArguments, options: TuneOptions) -> _Plan:
    from asmtune.runtime.offline.tuning_queue import HostLaunches, target_here

    launches = asked.load(target_here())
    for note in dict.fromkeys(note for one in launches for note in one.notes):
        print_line(f"asmtune: {note}", err=True)
    queue = HostLaunches(launches, bool(asked.axes or asked.space))
    return _Plan(options, len(launches), queue.results)


def _plan(
    module: KernelModule,
    reference: str,
    shapes: Sequence[Shape],
    dtype: str | None,
    options: TuneOptions,
) -> _Plan:
    from asmtune.runtime.offline.tuning_queue import TuningQueue

    queue = TuningQueue.of(module, reference, dtype)
    choices = {} if queue.tuner is None else queue.tuner.options.choices
    if callable(restore := choices.get("restore_value")):
        options = replace(options, checks=replace(options.checks, restore=restore))
    problems = queue.check(shapes)
    return _Plan(options, len(problems), partial(queue.results, problems))


def _results(plan: _Plan) -> tuple[list[TuningResult], bool]:
    """Tune until Ctrl-C; return the results, and whether it was interrupted."""
    from asmtune.report.tuning import TuningProgress
    from asmtune.runtime.offline.tuning_queue import open_machine

    results: list[TuningResult] = []
    with TuningProgress(plan.count) as progress:
        machine = open_machine(plan.options, progress)
        try:
            for result in plan.results(machine):
                results.append(result)
                progress.finished(result)
        except KeyboardInterrupt:
            return results, True
    return results, False


def _exit(results: Sequence[TuningResult], count: int, *, interrupted: bool) -> None:
    """End with the code of an interrupted run, or of one in which a shape failed."""
    if interrupted:
        left = f"{len(results)} of {count} shapes are done"
        again = "they are stored: the same command, given again, tunes the others"
        print_line(f"asmtune: interrupted: {left}; {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    if any(result.outcome == "failed" for result in results):
        raise typer.Exit(FAILED)


def _check_alone(given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value:
            raise InputError(
                f"{option} and --from: recorded keys have their own shapes and dtypes, and are "
                f"looked up by their program as `asmtune run` tunes them; leave {option} out"
            )


def _module(kernel: str | None) -> KernelModule:
    if kernel is None:
        raise InputError(
            "Missing argument 'KERNEL': give a kernel, such as `asmtune tune tiled_matmul`, or "
            "the keys of a program: `asmtune tune --from keys.json`"
        )
    return load_kernel_module(kernel)


def _write(results: Sequence[TuningResult], output: Path | None, form: TextForm) -> None:
    from asmtune.report.tuning import results_json, results_table

    if form is TextForm.JSON:
        write_result(results_json(results), output)
    elif results:
        kernels: dict[str, list[TuningResult]] = {}
        for result in results:
            kernels.setdefault(result.request.problem.name, []).append(result)
        write_result(Group(*(results_table(own) for own in kernels.values())), output)
