"""`asmtune.accuracy`, `bench`, `check`, `prune_report` and `roofline`: commands as functions.

Each returns the record that the command of its name prints or writes. Triton, scikit-learn and
PyTorch are imported inside the functions, so that `asmtune check` runs without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from asmtune.base.errors import CompileError, InputError, MeasureError
from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import ShapeSource, check_inputs
from asmtune.core.kernel_module import Shape
from asmtune.core.problem import Problem
from asmtune.studies.stored import KernelSource, LoadedKernel, kernel_module, load_kernel

if TYPE_CHECKING:
    from asmtune.core.config import Config
    from asmtune.core.records.verdicts import PruneReport
    from asmtune.predict.prune.front import ProgressListener
    from asmtune.predict.score.keep import Keep
    from asmtune.predict.score.scorer import Scorer
    from asmtune.studies.accuracy.run import AccuracyRun
    from asmtune.studies.regression.compare import Check, CheckFinding
    from asmtune.studies.regression.processes import BenchProgress
    from asmtune.studies.regression.run import BenchRun
    from asmtune.studies.roofline.points import Chart

BENCH_PROCESSES: Final = 8
"""If all 8 of one run are slower than the other's 8, chance explains it once in 12,870. So up to
128 rows can be told apart at a level of 1% for all of them together."""

MOST_PROCESSES: Final = 200
MOST_THRESHOLD: Final = 10.0
MOST_LEVEL: Final = 0.5


class NoGpuError(MeasureError):
    """There is no CUDA GPU to time on."""


def bench(
    kernels: KernelSource | Sequence[KernelSource] = (),
    *,
    shapes: Sequence[ShapeSource] = (),
    dtype: str | None = None,
    processes: int = BENCH_PROCESSES,
    label: str = "",
    energy: bool = False,
    progress: BenchProgress | None = None,
    settings: Settings | None = None,
) -> BenchRun:
    """Time kernels on their stored configs on this machine's GPU, as `asmtune bench` does.

    It tunes nothing: a shape without a stored config is not timed, and stands in the run's
    `missed`.

    Args:
        kernels: kernel modules, by name, file or as loaded; empty for all that come with asmtune.
        shapes: mappings such as `{"M": 4096}`, texts such as "M=4096", or paths of files of
            shapes. Without any, all that is stored for the modules' own shapes is timed.
        dtype: one of the modules'; by default their first, or all of them without shapes.
        processes: so many time all rows, one process after another.
        label: a name for the run, such as a commit.
        energy: whether to read the board's meter as well, 0.3 s a row and process.
        progress: listens to the run.
        settings: limits and folders; by default from the environment.

    Returns:
        Every sample with the environment; `asmtune.studies.regression.run.write_run` writes it
        as a file for `check`.

    Raises:
        InputError: a kernel, shape or dtype is unknown, or no config is stored for any of it.
        MeasureError: there is no GPU, or no kernel could be timed.
    """
    if not 1 <= processes <= MOST_PROCESSES:
        raise InputError(f"processes={processes}: give a number from 1 to {MOST_PROCESSES}")
    sources = _listed(kernels)
    check_inputs(_listed(shapes), dtype)
    from asmtune.studies.regression.processes import BenchProgress, BenchRequest, time_plan

    request = BenchRequest(sources, _listed(shapes), None, dtype, _bench_device(sources))
    listener = progress or BenchProgress()
    plan = request.plan(settings or Settings.from_environment())
    listener.planned(plan)
    if not plan.rows:
        raise InputError(
            f"bench: no config is stored for any of it on {plan.device}; "
            "asmtune tune KERNEL finds and stores one, `asmtune cache ls` lists them"
        )
    return time_plan(plan, processes, listener, energy=energy).run(label, plan.missed)


def check(
    run: BenchRun | str | Path,
    baseline: BenchRun | str | Path,
    *,
    threshold: float | Literal["history"] = 0.03,
    level: float = 0.01,
    any_board: bool = False,
    history: str | Path | None = None,
    record: bool = False,
) -> Check[CheckFinding]:
    """Compare a bench run with a baseline, as `asmtune check` does; needs no GPU.

    Args:
        run: what is judged: a run, or a file that `asmtune bench` has written.
        baseline: what it is compared with, likewise.
        threshold: relative slowdown that counts, such as 0.03; or "history" for the mean plus
            three standard deviations of the runs in `history`.
        level: probability with which a check of unchanged kernels may call any of them slower.
        any_board: whether two boards of one GPU model may be compared.
        history: a file of earlier runs.
        record: whether to add this run to the history, which keeps 100.

    Returns:
        A finding for each kernel, shape and dtype. `outcome` says "fine", "slower" or
        "incomparable".

    Raises:
        InputError: a file cannot be read or written, or an option is out of range.
    """
    from asmtune.studies.regression import history as histories
    from asmtune.studies.regression.compare import Terms, compare
    from asmtune.studies.regression.run import read_run

    is_historic = threshold == "history"
    if history is None and (record or is_historic):
        raise InputError(f"{'record' if record else 'threshold'}: needs history=, a file")
    limit = None if threshold == "history" else _share("threshold", threshold, MOST_THRESHOLD)
    terms = Terms(limit, _share("level", level, MOST_LEVEL), any_board)
    base = read_run(Path(baseline), "baseline") if isinstance(baseline, str | Path) else baseline
    now = read_run(Path(run)) if isinstance(run, str | Path) else run
    known = () if history is None else histories.read_history(Path(history))
    result = compare(base, now, terms, known)
    if record and history is not None:
        histories.record(Path(history), histories.entry_of(now), result.outcome)
    return result


def accuracy(
    kernel: str | Path,
    *,
    against: str = "fp64",
    shape: Shape | None = None,
    dtype: str | None = None,
    variants: Mapping[str, Any] | None = None,
    inputs: str | Path = "random",
    seed: int = 0,
    label: str = "",
) -> AccuracyRun:
    """Measure a kernel's errors against a reference, as `asmtune accuracy` does.

    Configs are chosen without timing: the stored one, else the model's pick.

    Args:
        kernel: a kernel module, by name or file, or a function as `file.py:function`.
        against: "fp64" or "fp32", the module's `baseline` on widened inputs; a variant's name; or
            `file.py:function`, called with the same inputs.
        shape: sizes by name; by default the module's first.
        dtype: one of the module's; by default its first.
        variants: by name, keywords as a mapping, a function, or a text as of `--variant`.
        inputs: "random", "heavy-tailed", "outlier-channels", or a file of tensors.
        seed: of the inputs.
        label: a name for the run, such as a commit.

    Returns:
        A row for each variant and output.

    Raises:
        InputError: an argument is unknown, a file cannot be read, or a function raises.
        NoGpuError: a kernel is asked for without a GPU and without TRITON_INTERPRET=1.
    """
    check_inputs(() if shape is None else (shape,), dtype)
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed {seed}: give a number from 0 to 2**63 - 1")
    from asmtune.compile.interpreter import is_interpreting
    from asmtune.studies.accuracy.run import AccuracyRequest
    from asmtune.studies.accuracy.subject import load_subject

    subject = load_subject(str(kernel), shape, dtype)
    request = AccuracyRequest.of(subject, variants or {}, against, str(inputs))
    import torch

    if torch.cuda.is_available():
        return request.run("cuda", seed, label)
    if subject.is_kernel and not is_interpreting():
        raise NoGpuError(
            "accuracy needs a CUDA GPU, and PyTorch finds none: TRITON_INTERPRET=1 runs kernels "
            "on the CPU under Triton's interpreter"
        )
    return request.run("cpu", seed, label)


@dataclass(frozen=True)
class PruneChoices:
    """A scorer, how many configs it keeps, and how many are compiled; None for all."""

    scorer: Scorer
    keep: Keep
    compile: Keep | None

    @classmethod
    def of(
        cls,
        scorer: str,
        keep: Keep | str | int | None,
        compile: Keep | str | int | None,  # noqa: A002
    ) -> PruneChoices:
        """Check the options of `prune_report` of these names, and fill in their defaults.

        Raises:
            InputError: one is unknown, malformed, or does not fit the scorer.
        """
        from asmtune.predict.prune.ranking import check_compile, default_budget
        from asmtune.predict.score.keep import Keep
        from asmtune.predict.score.scorers import make_scorer

        ranker = make_scorer(scorer)
        kept = Keep.default(scorer) if keep is None else Keep.of(keep)
        kept.check(scorer)
        budget = default_budget(ranker)
        if compile is not None:
            budget = None if compile == "all" else Keep.of(compile, "compile")
        if budget is not None:
            check_compile(budget, ranker)
        return cls(ranker, kept, budget)


def prune_report(
    kernel: KernelSource | Problem,
    space: Any = None,
    *,
    target: str | Target = "H200",
    shape: Shape | None = None,
    dtype: str | None = None,
    axes: Mapping[str, Iterable[Any]] | None = None,
    keep: Keep | str | int | None = None,
    compile: Keep | str | int | None = None,  # noqa: A002 - the option's name
    scorer: str = "roofline",
    caps: bool = True,
    tiles: bool = False,
    stored: Config | None = None,
    progress: ProgressListener | None = None,
    settings: Settings | None = None,
) -> PruneReport:
    """Compile and rank a kernel's configs for a target, as `asmtune prune-report` does.

    It needs no GPU.

    Args:
        kernel: a kernel module, by name, file or as loaded; or a `Problem`, whose tensors may be
            meta tensors.
        space: a `Space`, configs, or axes by name; by default the module's own.
        target: a device's name, a JSON descriptor, or a `Target`.
        shape: sizes by name; by default the module's first.
        dtype: one of the module's; by default its first.
        axes: values that replace axes of the space.
        keep: how many to keep: "auto", a number, or a share such as "5%". By default "auto" if
            the scorer's error is known, else 20.
        compile: how many to compile, chosen by a prediction before it: "all", "auto", a number
            or a share. By default "auto" if the scorer's error before compiling is known, else
            "all".
        scorer: what ranks: "learned", "roofline", "weights" or "chance".
        caps: whether to add configs with `maxnreg` where one more program fits.
        tiles: whether to search the held tiles of a recurrence as well.
        stored: a record's config, to compile, keep and mark whatever its rank.
        progress: listens to the stages.
        settings: limits and folders; by default from the environment.

    Returns:
        A verdict for each config, those to keep first.

    Raises:
        InputError: kernel, space, shape, target or an option is unknown, or they do not fit.
        CompileError: no config can run on the target; gives the commonest reason.
        StoreError: the artifacts' folder cannot be written.
    """
    machine, settings = _target(target), settings or Settings.from_environment()
    choices = PruneChoices.of(scorer, keep, compile)
    check_inputs((), dtype)
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.prune.front import ProgressListener
    from asmtune.predict.score.scorers import user_scorer

    loaded = load_kernel(kernel, space, shape=shape, dtype=dtype, axes=axes)
    funnel = Funnel(
        machine,
        user_scorer(scorer, settings, machine),
        settings,
        choices.keep,
        progress or ProgressListener(),
        caps=caps,
        tiles=tiles,
        compile=choices.compile,
        stored=stored,
    )
    return funnel.prune(loaded.problem, loaded.space)


def roofline(
    kernels: KernelSource | LoadedKernel | Sequence[KernelSource | LoadedKernel],
    *,
    target: str | Target = "H200",
    shapes: Sequence[ShapeSource] = (),
    dtype: str | None = None,
    scorer: str = "roofline",
    measure: bool = False,
    progress: ProgressListener | None = None,
    settings: Settings | None = None,
) -> Chart:
    """Put kernels under a target's roofs, before tuning and after, as `asmtune roofline` does.

    It needs no GPU unless it measures. Before tuning is the space's default config. After tuning
    is the stored config that a launch would take, or else the model's first pick.

    Args:
        kernels: kernel modules, by name, file or as loaded; or `LoadedKernel`, a problem with
            its space, whose pick is the model's.
        target: a device's name, a JSON descriptor, or a `Target`.
        shapes: mappings such as `{"M": 4096}`, texts such as "M=4096", or paths of files of
            shapes; each goes to the kernels that have its dimensions. By default each kernel's
            first.
        dtype: one of the kernels'; by default their first.
        scorer: what picks a config if none is stored.
        measure: whether to time both configs now, on this machine's GPU.
        progress: listens to the stages.
        settings: limits and folders; by default from the environment.

    Returns:
        The launches with their points; those that have none stand in `failures`.

    Raises:
        InputError: a kernel, shape, dtype or target is unknown; or `measure` is given, and this
            machine has no GPU or another one.
        CompileError: no launch has a point; gives the first reason.
    """
    from asmtune.predict.score.scorers import make_scorer

    machine, settings = _target(target), settings or Settings.from_environment()
    chooser = make_scorer(scorer)
    check_inputs(_listed(shapes), dtype)
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.prune.front import ProgressListener
    from asmtune.studies.roofline.subjects import RooflineRequest
    from asmtune.studies.roofline.survey import PairClock, Survey, check_gpu

    if measure:
        check_gpu(machine)
    request = RooflineRequest(_listed(kernels), _listed(shapes), dtype)
    subjects = request.subjects(machine, settings)
    funnel = Funnel(machine, chooser, settings, progress=progress or ProgressListener())
    chart = Survey(funnel, PairClock() if measure else None).chart(subjects)
    if not chart.entries:
        raise CompileError("; ".join(f"{name}: {why}" for name, why in chart.failures[:1]))
    return chart


def _listed(values: Any) -> list[Any]:
    """Return a list, also of a single text, path, mapping or kernel module."""
    is_many = isinstance(values, Sequence) and not isinstance(values, str)
    return list(values) if is_many else [values]


def _target(target: str | Target) -> Target:
    return load_target(target) if isinstance(target, str) else target


def _share(option: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InputError(f"{option}={value!r}: expected a share above 0 and up to {most:g}")
    return value


def _bench_device(kernels: Sequence[KernelSource]) -> str:
    """Name this machine's GPU, after making sure that the kernels exist.

    Raises:
        InputError: a kernel is unknown.
        NoGpuError: there is no GPU.
    """
    import torch

    for kernel in kernels:
        kernel_module(kernel)
    if not torch.cuda.is_available():
        raise NoGpuError("bench needs a CUDA GPU; PyTorch finds none on this machine")
    from asmtune.measure.timing.nvml import device_name

    return device_name()
