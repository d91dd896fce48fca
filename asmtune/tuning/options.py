"""Options of tuning: efforts, the user's choices, and what is taken from `triton.autotune`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, function_name, shortened
from asmtune.core.alternatives import Alternatives, checked_alternatives
from asmtune.measure.accuracy import Bound
from asmtune.measure.bench.base import PostHook, PreHook, TunerHooks
from asmtune.measure.checks.roles import CheckOptions, Restore
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.triton_api.jit_functions import is_kernel
from asmtune.tuning.search.base import BatchSizes, Limits

if TYPE_CHECKING:
    from asmtune.measure.bench.base import DoBench


@dataclass(frozen=True, kw_only=True)
class Effort:
    """An effort: how hard to search.

    Attributes:
        name: the preset's name, or the user's own.
        strategy: chooses what is compiled and timed next; one of `search.strategy_names()`.
        scorer: predicts before anything is timed.
        pace: configs a batch, and the expected gain below which the search ends. A space of
            no more configs than its first batch is compiled whole, without sketches.
        limits: seconds and compiles at most, and how many finalists there are.
        policy: how to time.
    """

    name: str
    strategy: str = "model"
    scorer: str = "learned"
    pace: BatchSizes = field(default_factory=BatchSizes)
    limits: Limits = field(default_factory=Limits)
    policy: TimingPolicy = field(default_factory=TimingPolicy)


EFFORTS: Final = {
    effort.name: effort
    for effort in (
        Effort(
            name="quick",
            pace=BatchSizes(first=16, batch=16, gain=0.1),
            limits=Limits(finalists=4),
            policy=TimingPolicy(fine_rounds=12),
        ),
        Effort(name="balanced", pace=BatchSizes(first=32, batch=24, gain=0.02)),
        Effort(
            name="thorough",
            pace=BatchSizes(first=48, batch=48, trial=32, gain=0.002),
            limits=Limits(finalists=16),
            policy=TimingPolicy(fine_rounds=40),
        ),
        Effort(
            name="exhaustive",
            strategy="exhaustive",
            pace=BatchSizes(first=64, batch=64, trial=64, gain=0.0),
            limits=Limits(finalists=16),
            policy=TimingPolicy(fine_rounds=40),
        ),
    )
}
"""Efforts by name."""


def effort_of(value: str | Effort) -> Effort:
    """Return an effort by its name; an effort is returned as it is.

    Raises:
        InputError: no effort has that name; lists them.
    """
    if isinstance(value, Effort):
        return value
    if value not in EFFORTS:
        hint = did_you_mean(str(value), EFFORTS)
        raise InputError(f"unknown effort {value!r}: the efforts are {', '.join(EFFORTS)}{hint}")
    return EFFORTS[value]


def _do_bench(choices: Mapping[str, Any]) -> DoBench | None:
    """Return the user's clock; None if `warmup`, `rep` or `use_cuda_graph` ask for ours."""
    given = _function(choices, "do_bench")
    figures = choices.get("warmup") is not None or choices.get("rep") is not None
    return None if figures or choices.get("use_cuda_graph") else given


def _policy(policy: TimingPolicy, choices: Mapping[str, Any]) -> TimingPolicy:
    """Change an effort's timing policy as the choices say."""
    for name in ("use_cuda_graph", "cache_results"):
        if not isinstance(choices.get(name, False), bool):
            raise InputError(f"{name}={choices[name]!r}: give True or False")
    warmup_us, rep_us = _microseconds(choices, "warmup"), _microseconds(choices, "rep")
    if warmup_us is not None:
        policy = replace(policy, warmup_us=warmup_us)
    if rep_us is not None:
        policy = replace(policy, entrant_us=rep_us)
    if choices.get("use_cuda_graph"):
        policy = replace(policy, mode="graph")
    if _do_bench(choices) is not None:
        # Without samples a tie looks like a difference: the user's clock decides.
        policy = replace(policy, near_tie=0.0)
    return policy


def _checks(choices: Mapping[str, Any]) -> CheckOptions:
    """Make the options of output checks; the user's hooks replace what they replace in Triton.

    In Triton a `pre_hook` replaces zeroing and keeping a copy, and a `post_hook` replaces putting
    the copy back. Arguments that the IR updates in place are restored in any case.
    """
    check, reference = choices.get("check", "close"), choices.get("reference")
    bound = check if isinstance(check, Bound) else None
    if bound is None and check is not False and check not in ("close", "bits"):
        raise ArgumentTypeError(
            f"check={shortened(repr(check))}: give 'close', 'bits', limits of errors such as "
            "Bound(p99=3e-2, clip=0.03), or False"
        )
    if check == "bits" and reference is not None:
        raise InputError(
            "check='bits' compares with the default config's output: leave reference= out"
        )
    has_pre, has_post = choices.get("pre_hook") is not None, choices.get("post_hook") is not None
    own: Any = choices.get("restore_value")
    restore = own if callable(own) and not is_kernel(own) else None
    restored = () if restore is not None else _names(choices, "restore_value")
    zeroed = _names(choices, "reset_to_zero")
    return CheckOptions(
        check=check is not False,
        reference=reference,
        restore_value=() if has_pre or has_post else restored,
        reset_to_zero=() if has_pre else zeroed,
        tolerance=_tolerance(choices),
        bits_equal=check == "bits",
        accuracy=bound,
        restore=restore,
    )


def _tolerance(choices: Mapping[str, Any]) -> float | None:
    given: Any = choices.get("tolerance")
    if given is None:
        return None
    if not _is_number(given) or not 0 < given < math.inf:
        raise InputError(f"tolerance={shortened(repr(given))}: give a number above 0, such as 0.01")
    if (check := choices.get("check", "close")) != "close":
        raise InputError(f"tolerance= belongs to check='close': leave it or check={check!r} out")
    return float(given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(choices: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = choices.get(name) or ()
    # A kernel is no collection: `tuple` of it never ends.
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        expected = "a list of names of arguments, such as ['out_ptr']"
        raise ArgumentTypeError(f"{name}={shortened(repr(given))}: expected {expected}")
    return tuple(given)


def _function(choices: Mapping[str, Any], name: str) -> Callable[..., Any] | None:
    given = choices.get(name)
    if given is None or callable(given):
        return given
    raise ArgumentTypeError(f"{name}={shortened(repr(given))}: give a function, or None")


def _microseconds(choices: Mapping[str, Any], name: str) -> float | None:
    given = choices.get(name)
    if given is None:
        return None
    # Not `given < 0`, which lets NaN pass.
    if not _is_number(given) or not 0 <= given < math.inf:
        raise InputError(f"{name}={given!r}: give milliseconds, a number of 0 or more")
    return 1e3 * float(given)


Check = Literal["close", "bits", False] | Bound


class Choices(TypedDict, total=False):
    """Keywords of `tune`, `patch` and `reconfigure`.

    `asm_autotune` has most of them, and says what they mean; `TuneOptions` says it of the others.
    """

    effort: str | Effort
    isolate: bool
    seed: int
    force: bool
    check: Check
    reference: Callable[[Mapping[str, Any]], Any] | None
    tolerance: float | None
    alternatives: Alternatives | None
    restore_value: Sequence[str] | Restore | None
    reset_to_zero: Sequence[str] | None
    pre_hook: PreHook | None
    post_hook: PostHook | None
    do_bench: DoBench | None
    warmup: float | None
    rep: float | None
    use_cuda_graph: bool
    cache_results: bool


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of tuning.

    Attributes:
        effort: how hard to search.
        isolate: whether configs run in a process of their own, so that one that faults or
            hangs costs itself alone. Costs some seconds to start, and a copy of the arguments.
        seed: seeds all draws; two runs of one seed differ by their timings alone, those of a short
            list also by the order in which compiles end.
        force: tune although the store has the key.
        checks: how outputs are checked and arguments restored.
        hooks: called around every launch; with `isolate` in the process that times, to which they
            are sent, on its copies of the arguments.
        do_bench: the user's function that times, in the place of our clock; it is sent too.
        alternatives: the user's functions that are timed beside the configs; they are sent too.
    """

    effort: Effort
    isolate: bool = False
    seed: int = 0
    force: bool = False
    checks: CheckOptions = field(default_factory=CheckOptions)
    hooks: TunerHooks = field(default_factory=TunerHooks)
    do_bench: DoBench | None = None
    alternatives: Alternatives = field(default_factory=dict)

    @property
    def clock(self) -> str:
        """Return the name of the user's clock; empty for ours. Times of two do not compare."""
        return function_name(self.do_bench)

    @classmethod
    def of(cls, choices: Choices) -> TuneOptions:
        """Make options from a user's keywords.

        Raises:
            InputError: no such effort or option, or a choice has an invalid value.
        """
        known = list(Choices.__annotations__)
        for name in choices:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ArgumentTypeError(f"unknown option {name!r}: one of {', '.join(known)}{hint}")
        effort = effort_of(choices.get("effort", "balanced"))
        return cls(
            effort=replace(effort, policy=_policy(effort.policy, choices)),
            isolate=choices.get("isolate", False),
            seed=choices.get("seed", 0),
            force=choices.get("force", False),
            checks=_checks(choices),
            hooks=TunerHooks(_function(choices, "pre_hook"), _function(choices, "post_hook")),
            do_bench=_do_bench(choices),
            alternatives=checked_alternatives(choices.get("alternatives")),
        )
