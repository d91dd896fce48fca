"""`asmtune.bench` and `check`: commands as functions.

Each returns the record that the command of its name prints or writes. Triton and PyTorch are
imported inside the functions, so that `asmtune check` runs without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.kernel_arguments import KernelArguments
from asmtune.core.inputs.shapes import ShapeSource, check_inputs
from asmtune.runtime.offline.kernel_sources import KernelSource, kernel_module, listed

if TYPE_CHECKING:
    from asmtune.workshop.regression.compare import Check
    from asmtune.workshop.regression.run import BenchRun

BENCH_PROCESSES: Final = 8
"""If all 8 of one run are slower than the other's 8, chance explains it once in 12,870. So up to
128 rows can be distinguished at a level of 1% for all of them together."""

MOST_PROCESSES: Final = 200
MOST_THRESHOLD: Final = 10.0
MOST_LEVEL: Final = 0.5


def bench(
    kernels: KernelSource | KernelArguments | Sequence[KernelSource | KernelArguments] = (),
    *,
    shapes: Sequence[ShapeSource] = (),
    dtype: str | None = None,
    processes: int = BENCH_PROCESSES,
    label: str = "",
    progress: Callable[[str], object] = str,
    settings: Settings | None = None,
) -> BenchRun:
    """Time kernels on their stored configs on this machine's GPU, as `asmtune bench` does.

    It tunes nothing: a shape without a stored config is not timed, and is in the run's `missed`.

    Args:
        kernels: kernel modules, by name, file or as loaded, and functions as `KernelArguments`;
            empty for all modules that come with asmtune.
        shapes: mappings such as `{"M": 4096}`, texts such as "M=4096", or paths of files of
            shapes. Without any, all that is stored for the modules' own shapes is timed.
        dtype: one of the modules'; by default their first, or all of them without shapes.
        processes: number of timing processes, run one after another.
        label: a name for the run, such as a commit.
        progress: gets lines about the run; by default nothing is done with them.
        settings: limits and folders; by default from the environment.

    Returns:
        Every sample with the environment; `asmtune.workshop.regression.run.write_run` writes it
        as a file for `check`.

    Raises:
        InputError: a kernel, shape or dtype is unknown, or no config is stored for any of it.
        MeasureError: there is no GPU, or no kernel could be timed.
    """
    if not 1 <= processes <= MOST_PROCESSES:
        raise InputError(f"processes={processes}: give a number from 1 to {MOST_PROCESSES}")
    sources = listed(kernels)
    check_inputs(listed(shapes), dtype)
    for kernel in sources:
        if not isinstance(kernel, KernelArguments):
            kernel_module(kernel)
    from asmtune.measure.timing.nvml import device_name
    from asmtune.workshop.regression.plan import BenchRequest, plan_lines
    from asmtune.workshop.regression.processes import time_plan

    request = BenchRequest(sources, listed(shapes), dtype, device_name())
    plan = request.plan(settings or Settings.from_environment())
    for line in plan_lines(plan):
        progress(line)
    if not plan.rows:
        raise InputError(
            f"bench: no config is stored for any of it on {plan.device}; "
            "asmtune tune KERNEL finds and stores one, `asmtune cache ls` lists them"
        )
    return time_plan(plan, processes, progress).run(label, plan.missed)


def check(
    run: BenchRun | str | Path,
    baseline: BenchRun | str | Path,
    *,
    threshold: float = 0.03,
    level: float = 0.01,
    any_board: bool = False,
) -> Check:
    """Compare a bench run with a baseline, as `asmtune check` does; needs no GPU.

    Args:
        run: what is judged: a run, or a file that `asmtune bench` has written.
        baseline: what it is compared with: a run, or a file.
        threshold: relative slowdown that counts, such as 0.03.
        level: probability with which a check of unchanged kernels may call any of them slower.
        any_board: whether two boards of one GPU model may be compared.

    Returns:
        A finding for each kernel, shape and dtype. `outcome` says "fine", "slower" or
        "incomparable".

    Raises:
        InputError: a file cannot be read, or an option is out of range.
    """
    from asmtune.workshop.regression.compare import Terms, compare
    from asmtune.workshop.regression.run import read_run

    limit = _share("threshold", threshold, MOST_THRESHOLD)
    terms = Terms(limit, _share("level", level, MOST_LEVEL), any_board)
    base = read_run(Path(baseline), "baseline") if isinstance(baseline, str | Path) else baseline
    now = read_run(Path(run)) if isinstance(run, str | Path) else run
    return compare(base, now, terms)


def _share(option: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InputError(f"{option}={value!r}: expected a share above 0 and up to {most:g}")
    return value
