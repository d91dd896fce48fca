"""The model's pick for a key, equal on every machine; nothing is timed.

It follows from the kernel, the key, the space and the device's name. These do not count:

- timings and predictions of the user's, and seeds. The roofline ranks: a fitted forest depends on
  the versions of the libraries that fit it;
- contents and addresses of tensors: meta tensors replace them;
- the number of processors, and the limit of a compile's time.

A key with a bucket or a function of arguments has no pick: its launches differ in their sizes, and
the one that comes first would decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any, Final

from asmtune.base.errors import CompileError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device, shipped_target
from asmtune.core.ir_overrides import unedited
from asmtune.core.problem import Problem, UnknownGrid
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.picking import pick_report
from asmtune.predict.score.scorers import make_scorer
from asmtune.tuning.request import TuningRequest

COMPILE_TIMEOUT_S: Final = 3600.0
"""Limit of one compile: one that a faster machine ends must not be given up on a slower one. The
longest known keeps LLVM busy for 9 minutes."""

TIE_DIGITS: Final = 9
"""Decimals of a score that count: the last bits differ between processors' libraries."""

_BY_THE_MACHINE: Final = frozenset({"timeout", "memory", "lost"})


def deterministic_pick(request: TuningRequest, settings: Settings) -> Config | str:
    """Return the model's pick, among equal scores the first in the space's order.

    Returns:
        Why the model has none, where it has none on any machine.

    Raises:
        CompileError: this machine could not compile a config that another one may compile.
    """
    device, shape = request.key.device, request.problem.shape
    if isinstance(request.problem.grid, UnknownGrid):
        return "PyTorch's compiler does not tell the grid; launch the key once before it is traced"
    parts = [part for part in request.key.shape if "(" in part]
    if parts:
        return f"{parts[0]} of the key covers several values; tune the key"
    # A descriptor of the user's counts only where none ships: other machines lack it.
    target = shipped_target(device) or match_device(device)
    if target is None or target.backend != "cuda":
        return f"no machine code of {device} can be read"
    patient = replace(settings, compile_timeout_s=COMPILE_TIMEOUT_S)
    funnel = _funnel(request.key.kernel, target, patient)
    space = unedited(request.space)
    try:
        report = pick_report(funnel, canonical_problem(request.problem), space)
    except CompileError as error:
        _check_machine(funnel, request.key)
        return str(error)
    _check_machine(funnel, request.key, report.verdicts)
    kept = [verdict for verdict in report.verdicts if verdict.kept]
    best = max(map(_score, kept))
    points = space.points(**shape)
    places = {v.config: points.find(v.config) for v in kept if _score(v) == best}
    return min(places, key=lambda config: (places[config] is None, places[config]))


@cache
def _funnel(_kernel: str, target: Target, settings: Settings) -> Funnel:
    """Return the funnel of a kernel on a target, which shares compiles between keys.

    Another kernel, launched in another thread, has its own: `_check_machine` takes all failures
    of a funnel for those of one pick.
    """
    return Funnel(target, make_scorer("roofline"), settings)


def canonical_problem(problem: Problem) -> Problem:
    """Replace what differs between launches of one key: the contents and addresses of tensors."""
    arguments = {name: _meta(value) for name, value in problem.arguments.items()}
    return replace(problem, arguments=arguments, index_values={})


def _meta(value: Any) -> Any:
    """Return a meta tensor in the place of a tensor, also inside tuples and descriptors."""
    import torch

    if isinstance(value, torch.Tensor):
        form = value.size(), value.stride()
        return torch.empty_strided(*form, dtype=value.dtype, device="meta")
    if type(value) in (tuple, list):
        return type(value)(map(_meta, value))
    base = getattr(value, "base", None)
    if isinstance(base, torch.Tensor) and is_dataclass(value) and not isinstance(value, type):
        changes: Mapping[str, Any] = {"base": _meta(base)}
        return replace(value, **changes)
    return value


def _score(verdict: Verdict) -> float:
    return -math.inf if verdict.score is None else round(verdict.score, TIE_DIGITS)


def _check_machine(funnel: Funnel, key: TuneKey, verdicts: Iterable[Verdict] = ()) -> None:
    """Check that no compile failed by this machine's doing; a next call tries such ones again.

    Raises:
        CompileError: one did.
    """
    failures = [
        outcomes.pop(name)
        for outcomes in (funnel.known, funnel.sketches)
        for name, outcome in list(outcomes.items())
        if isinstance(outcome, Failure) and outcome.kind in _BY_THE_MACHINE
    ]
    # The front end's are with no outcome.
    failures += [v.failure for v in verdicts if v.failure and v.failure.kind in _BY_THE_MACHINE]
    if failures:
        raise CompileError(
            f"kernel {key.kernel}: {len(failures)} configs could not be compiled on this machine, "
            f"the first with {failures[0]}, so that the deterministic pick could differ from "
            "another machine's; free memory, or tune the key with `asmtune tune` and share the "
            "store"
        )
