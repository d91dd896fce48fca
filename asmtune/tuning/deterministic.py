"""The model's pick for a key, equal on every machine; nothing is timed.

It follows from the kernel, the key, the space and the device's name. These do not count:

- timings and predictions of the user's, and seeds. The roofline ranks, which is a formula that
  does not change when trees are fitted anew;
- contents and addresses of tensors: meta tensors replace them;
- the value of an argument inside its bucket: the bucket's end replaces it, also in the grid
  where that counts blocks (`bucket_end_grid`);
- the number of processors, and the limit of a compile's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Final

from asmtune.base.errors import CompileError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device, shipped_target
from asmtune.core.ir_overrides import unedited
from asmtune.core.keys.buckets import bucket_of
from asmtune.core.problem import Grid, Problem, UnknownGrid
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.picking import pick_report
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.codec import config_text
from asmtune.tuning.request import TuningRequest

COMPILE_TIMEOUT_S: Final = 3600.0
"""Limit of one compile: one that a faster machine ends must not be given up on a slower one. The
longest known keeps LLVM busy for 9 minutes."""

TIE_DIGITS: Final = 9
"""Decimals of a score that count: the last bits differ between processors' libraries."""

_MOST_SAMPLED: Final = 512
"""Configs that show what a grid follows."""

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
    # A descriptor of the user's counts only where none ships: other machines lack it.
    target = shipped_target(device) or match_device(device)
    if target is None or target.backend != "cuda":
        return f"no machine code of {device} can be read"
    patient = replace(settings, compile_timeout_s=COMPILE_TIMEOUT_S)
    funnel = _funnel(request.key.kernel, target, patient)
    space = unedited(request.space)
    try:
        configs = [*islice(space.configs(**shape), _MOST_SAMPLED)]
        problem = canonical_problem(request.problem, request.key, configs)
        report = pick_report(funnel, problem, space)
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


def canonical_problem(problem: Problem, key: TuneKey, configs: Sequence[Config]) -> Problem:
    """Replace what differs between launches of one key: tensors' contents, values in a bucket.

    The shape stays: a config must satisfy the constraints for the launch's own sizes.
    """
    own = problem.arguments
    ends: dict[str, int] = {}
    for part, value in key.shape.items():
        name = bucket.argument if (bucket := bucket_of(part)) is not None else None
        if name is not None and name in own and type(value) is int and own[name] != value:
            ends[name] = value
    # Tensors of another size of the bucket are smaller than the kernel then reaches.
    times = math.prod(max(1, -(-end // int(own[name] or 1))) for name, end in ends.items())
    arguments = {name: _meta(value, times) for name, value in own.items()} | ends
    grid = bucket_end_grid(problem, ends, configs)
    return replace(problem, arguments=arguments, grid=grid, index_values={})


def bucket_end_grid(problem: Problem, ends: Mapping[str, int], configs: Sequence[Config]) -> Grid:
    """Return the grid of a launch whose arguments are at the ends of their buckets.

    A grid's function mostly holds the launch's own sizes and not the arguments that it is given.
    Its values at `configs` then show which factor of an axis is `cdiv(size, block)`, or the size.
    """
    # The funnel tells why the others cannot be launched.
    able = [(c, at) for c in configs if ends and not isinstance(at := problem.grid_of(c), Failure)]
    if not able:
        return problem.grid
    configs, grids = [config for config, _ in able], [sizes for _, sizes in able]
    moved = replace(problem, arguments={**problem.arguments, **ends})
    if grids != [moved.grid_of(config) for config in configs]:
        return problem.grid  # the function reads its arguments
    factors: list[_Factor] = []
    axes = [list(sizes) for sizes in zip(*grids, strict=True)]
    for name, end in ends.items():
        size = problem.arguments[name]
        factor = _factor_of(axes, configs, size, end) if min(size, end) > 0 else None
        if factor is not None:
            factors.append(factor)
            axis = axes[factor.axis]
            axis[:] = [n // factor.blocks(c) for n, c in zip(axis, configs, strict=True)]

    def grid(values: Mapping[str, Any]) -> tuple[int, ...]:
        config = Config({factor.block: values[factor.block] for factor in factors if factor.block})
        sizes = list(problem.grid_sizes(problem.grid_at(config, values), config))
        for factor in factors:
            own = sizes[factor.axis]
            sizes[factor.axis] = own // factor.blocks(config) * factor.end_blocks(config)
        return tuple(sizes)

    return grid if factors else problem.grid


@dataclass(frozen=True)
class _Factor:
    """A factor of a grid's axis: the blocks of a size, or the size where `block` is empty."""

    axis: int
    block: str
    size: int
    end: int

    def blocks(self, config: Config) -> int:
        """Return the factor at a config."""
        return -(-self.size // (config.kwargs[self.block] if self.block else 1))

    def end_blocks(self, config: Config) -> int:
        """Return the factor at a config where the size is the bucket's end."""
        return replace(self, size=self.end).blocks(config)


def _factor_of(
    axes: Sequence[Sequence[int]], configs: Sequence[Config], size: int, end: int
) -> _Factor | None:
    """Find the factor that a size is in: the whole of an axis, else one that follows a block."""
    blocks = [
        name
        for name in configs[0].kwargs
        if all(type(c.kwargs.get(name)) is int and c.kwargs[name] > 0 for c in configs)
    ]
    options = [_Factor(a, name, size, end) for a in range(3) for name in (*blocks, "")]
    whole = (f for f in options if axes[f.axis] == [f.blocks(c) for c in configs])
    follows = (f for f in options if f.block and _follows(axes[f.axis], configs, f))
    return next(whole, None) or next(follows, None)


def _follows(sizes: Sequence[int], configs: Sequence[Config], factor: _Factor) -> bool:
    """Return whether a factor divides an axis at all configs, and the rest is free of its block."""
    counts = [factor.blocks(config) for config in configs]
    if any(n % count for n, count in zip(sizes, counts, strict=True)) or len(set(counts)) == 1:
        return False
    others: dict[str, set[int]] = {}
    for n, count, config in zip(sizes, counts, configs, strict=True):
        rest = {name: v for name, v in config.kwargs.items() if name != factor.block}
        others.setdefault(config_text(Config(rest)), set()).add(n // count)
    return all(len(quotients) == 1 for quotients in others.values())


def _meta(value: Any, times: int) -> Any:
    """Return a meta tensor in the place of a tensor, also inside tuples and descriptors.

    It has `times` as many rows.
    """
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_meta and times == 1:
            return value
        size, stride = list(value.size()), value.stride()
        size[:1] = [rows * times for rows in size[:1]]
        return torch.empty_strided(size, stride, dtype=value.dtype, device="meta")
    if type(value) in (tuple, list):
        return type(value)(_meta(each, times) for each in value)
    base = getattr(value, "base", None)
    if isinstance(base, torch.Tensor) and is_dataclass(value) and not isinstance(value, type):
        changes: Mapping[str, Any] = {"base": _meta(base, 1)}
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
