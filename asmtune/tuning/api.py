"""`asmtune.tune`: tuning as a function, of one problem or of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, overload

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneRecord
from asmtune.core.space.space import Space
from asmtune.measure.timing.nvml import device_name
from asmtune.tuning.options import Choices, TuneOptions
from asmtune.tuning.request import TuningResult, key_of
from asmtune.tuning.tuner import Tuner


@overload
def tune(problem: Problem, space: Any, **choices: Unpack[Choices]) -> TuneRecord: ...


@overload
def tune(
    *, problems: Sequence[Problem], space: Any, **choices: Unpack[Choices]
) -> list[TuningResult]: ...


def tune(
    problem: Problem | None = None,
    space: Any = None,
    *,
    problems: Sequence[Problem] | None = None,
    **choices: Unpack[Choices],
) -> TuneRecord | list[TuningResult]:
    """Find the fastest config of a space for one problem, or for each of many.

    Records that the store has are taken from it; new ones are stored. An interrupted run
    continues where it was when it is started again.

    Args:
        problem: one launch; instead of `problems`.
        space: a `Space`, configs, or axes by name.
        problems: launches of one kernel; those of equal specialisation share their compiles,
            and good configs of one are tried early on the next.
        choices: `effort`, `isolate`, `devices` and the others: see `TuneOptions`.

    Returns:
        The record of `problem`, or a result for each of `problems`, in their order: one that
        fails stops no other.

    Raises:
        InputError: problem, space and kernel do not fit, or a choice has an invalid value.
        CompileError: no config of `problem` can run.
        MeasureError: there is no GPU, or no config that compiled can be launched.
    """
    if (problem is None) == (problems is None):
        raise InputError("tune: give either a problem or problems=, and not both")
    options = TuneOptions.of(choices)
    device = gpu_of(options)
    tuner = Tuner.open(device, options)
    searched = Space.of(space)
    if problem is None:
        requests = [tuner.request(one, key_of(one, device), searched) for one in problems or ()]
        return list(tuner.results(requests))
    result = tuner.resolve(tuner.request(problem, key_of(problem, device), searched))
    if result.record is None:
        raise MeasureError(
            f"{problem.name} is being tuned by another process; "
            "try again, or wait for it with on_busy='wait'"
        )
    return result.record


def gpu_of(options: TuneOptions) -> str:
    """Return the name of the GPU that options choose: the first of theirs, or the current one.

    Raises:
        MeasureError: there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise MeasureError(
            "tune needs a CUDA GPU; there is none on this machine; "
            "`asmtune prune-report` works without one"
        )
    return device_name(options.devices[0] if options.devices else None)
