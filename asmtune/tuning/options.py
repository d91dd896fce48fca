"""Options of tuning: efforts, the user's choices, and what is taken from `triton.autotune`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, get_args

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, function_name, shortened
from asmtune.core.alternatives import Alternatives, checked_alternatives
from asmtune.measure.accuracy import Bound
from asmtune.measure.bench.hooks import PostHook, PreHook, TunerHooks
from asmtune.measure.checks.roles import CheckOptions, Restore
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.tuning.search.base import BatchSizes, Limits

if TYPE_CHECKING:
    from asmtune.measure.bench.hooks import DoBench


@dataclass(frozen=True, kw_only=True)
class Effort:
    """An effort: how hard to search.

    Attributes:
        name: the preset's name, or the user's own.
        strategy: chooses what is compiled and timed next; one of `search.strategy_names()`.
        scorer: predicts before anything is timed.
        pace: configs a batch, and the expected gain below which the search ends. A space of
            no more configs than its first batch is compiled whole, without sketches.
        limits: seconds, compiles and timings at most, and how many finalists there are.
        caps: configs whose `maxnreg` is read off the best ones' machine code, at most; only
            where the space has no such axis.
        policy: how to time.
    """

    name: str
    strategy: str = "model"
    scorer: str = "learned"
    pace: BatchSizes = field(default_factory=BatchSizes)
    limits: Limits = field(default_factory=Limits)
    caps: int = 8
    policy: TimingPolicy = field(default_factory=TimingPolicy)


EFFORTS: Final = {
    effort.name: effort
    for effort in (
        Effort(
            name="quick",
            pace=BatchSizes(first=16, batch=16, gain=0.1),
            limits=Limits(finalists=4),
            caps=0,
            policy=TimingPolicy(fine_rounds=12),
        ),
        Effort(name="balanced", pace=BatchSizes(first=32, batch=24, gain=0.02)),
        Effort(
            name="thorough",
            pace=BatchSizes(first=48, batch=48, trial=32, gain=0.002),
            limits=Limits(finalists=16),
            caps=16,
            policy=TimingPolicy(fine_rounds=40),
        ),
        Effort(
            name="exhaustive",
            strategy="exhaustive",
            pace=BatchSizes(first=64, batch=64, trial=64, gain=0.0),
            limits=Limits(finalists=16),
            caps=32,
            policy=TimingPolicy(fine_rounds=40),
        ),
    )
}
"""Efforts by name."""


def effort_of(value: str | Effort) -> Effort:
    """Return an effort by its name; an effort is returned as it is.

    Raises:
        InputError: there is none of that name; lists them.
    """
    if isinstance(value, Effort):
        return value
    if value not in EFFORTS:
        hint = did_you_mean(str(value), EFFORTS)
        raise InputError(f"unknown effort {value!r}: the efforts are {', '.join(EFFORTS)}{hint}")
    return EFFORTS[value]


_US: Final = 1e3
_SWITCHES: Final = ("use_cuda_graph", "cache_results")


def hooks_of(choices: Mapping[str, Any]) -> TunerHooks:
    """Return the user's hooks.

    Raises:
        InputError: one cannot be called.
    """
    return TunerHooks(_function(choices, "pre_hook"), _function(choices, "post_hook"))


def do_bench_of(choices: Mapping[str, Any]) -> DoBench | None:
    """Return the user's clock; None if `warmup`, `rep` or `use_cuda_graph` ask for ours.

    Raises:
        InputError: it cannot be called.
    """
    given = _function(choices, "do_bench")
    figures = choices.get("warmup") is not None or choices.get("rep") is not None
    return None if figures or choices.get("use_cuda_graph") else given


def policy_of(policy: TimingPolicy, choices: Mapping[str, Any]) -> TimingPolicy:
    """Change an effort's timing policy as the choices say.

    Raises:
        InputError: `warmup` or `rep` is no number of milliseconds, or a switch is no bool.
    """
    for name in _SWITCHES:
        if not isinstance(choices.get(name, False), bool):
            raise InputError(f"{name}={choices[name]!r}: give True or False")
    warmup_us, rep_us = _microseconds(choices, "warmup"), _microseconds(choices, "rep")
    if warmup_us is not None:
        policy = replace(policy, warmup_us=warmup_us)
    if rep_us is not None:
        policy = replace(policy, entrant_us=rep_us)
    if choices.get("use_cuda_graph"):
        policy = replace(policy, mode="graph")
    if do_bench_of(choices) is not None:
        # Without samples a tie cannot be told from a difference: the user's clock decides.
        policy = replace(policy, near_tie=0.0)
    return policy


def checks_of(choices: Mapping[str, Any]) -> CheckOptions:
    """Make the options of output checks; the user's hooks replace what they replace in Triton.

    There a `pre_hook` stands for zeroing and for keeping a copy, and a `post_hook` for putting
    the copy back. Arguments that the IR updates in place are restored in any case.
    """
    bits, accuracy = choices.get("bits", "close"), choices.get("accuracy")
    if accuracy is not None and not isinstance(accuracy, Bound):
        raise ArgumentTypeError(
            f"accuracy={shortened(repr(accuracy))}: give limits, such as Bound(p99=3e-2, clip=0.03)"
        )
    if accuracy is not None and (bits == "equal" or not choices.get("check", True)):
        raise InputError("accuracy= checks every output: leave bits='equal' and check=False out")
    if bits not in get_args(Bits):
        raise InputError(f"bits={bits!r}: give 'close' or 'equal'")
    if bits == "equal" and (choices.get("reference") is not None or not choices.get("check", True)):
        raise InputError(
            "bits='equal' compares with the default config's output: leave reference= and "
            "check=False out"
        )
    has_pre, has_post = choices.get("pre_hook") is not None, choices.get("post_hook") is not None
    if choices.get("foreign") not in (None, "repeat"):
        raise InputError(f"foreign={shortened(repr(choices['foreign']))}: give 'repeat', or None")
    restored, zeroed = _names(choices, "restore_value"), _names(choices, "reset_to_zero")
    return CheckOptions(
        check=choices.get("check", True),
        reference=choices.get("reference"),
        restore_value=() if has_pre or has_post else restored,
        reset_to_zero=() if has_pre else zeroed,
        tolerance=_tolerance(choices),
        bits_equal=bits == "equal",
        accuracy=accuracy,
        foreign=choices.get("foreign"),
        restore=_function(choices, "restore"),
    )


def _tolerance(choices: Mapping[str, Any]) -> float | None:
    given: Any = choices.get("tolerance")
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < math.inf:
        raise InputError(f"tolerance={shortened(repr(given))}: give a number above 0, such as 0.01")
    if not choices.get("check", True) or choices.get("bits") == "equal" or choices.get("accuracy"):
        raise InputError("tolerance= compares outputs: leave check=, bits= and accuracy= out")
    return float(given)


def _names(choices: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return _listed(choices, name, "a list of names of arguments, such as ['out_ptr']")


def _listed(choices: Mapping[str, Any], name: str, expected: str) -> tuple[Any, ...]:
    given = choices.get(name) or ()
    # A kernel is no collection: `tuple` of it never ends.
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
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
    sound = isinstance(given, int | float) and not isinstance(given, bool)
    if not sound or not 0 <= given < math.inf:
        raise InputError(f"{name}={given!r}: give milliseconds, a number of 0 or more")
    return float(given) * _US


OnBusy = Literal["wait", "heuristic"]
Bits = Literal["close", "equal"]


class Choices(TypedDict, total=False):
    """Keywords of `tune` and of `asm_autotune`; `TuneOptions` says what each is for.

    bits: "close" lets outputs differ from the default config's as roundings do; with "equal" only
        a config wins whose outputs equal the default's in every bit, which is checked while
        tuning. Where nothing is tuned, the default is launched.

    tolerance: how far results may be from the expected: |c - r| <= tolerance (|r| + s), s the usual
        magnitude around r, for all dtypes; by default each dtype has its own.

    accuracy: limits the errors of every floating-point output, such as `Bound(p99=3e-2, clip=0.03)`
        of `asmtune.measure.accuracy`, in place of the tolerance by which outputs are compared. The
        errors are those against `reference=`, whose result may be of fp32 or fp64 (without one,
        against the default config's output). A config that breaks a limit loses, the default
        among them. What no limit names is not checked: limit `max_rel` where single wrong elements
        must not pass. Integers must be equal as ever. Where nothing is tuned, the default is
        launched.

    alternatives: functions by name, such as `{"cublas": fn}`, that do what the kernel does: called
        with a launch's arguments (by position up to the first that the launch leaves to the config,
        by name after it), they write its outputs. They are checked like a config, timed beside
        the finalists, stored by name, and called where one wins.

    foreign, restore: a kernel that may write memory of no tensor argument, such as that behind a
        table of addresses, is not timed, and the model's pick is launched, unless it is told what
        to do with that memory: "repeat" launches on it again and again; `restore(arguments)`,
        called with the arguments by name before each launch and after the last, puts it back.

    Those from `pre_hook` on are `triton.autotune`'s, with its meaning where it has one here:

    pre_hook: called as `pre_hook(kwargs)` before each launch while tuning, after that of the
        config, and once as `pre_hook(kwargs, reset_only=True)` with the winner's values when
        tuning is done. `kwargs` are all arguments by name and the config's values. It takes the
        place of `restore_value` and `reset_to_zero`. Its time does not count.
    post_hook: called as `post_hook(kwargs, exception=None)` after each launch while tuning, or
        with what the launch raised. It takes the place of `restore_value`.
    do_bench: `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))` times in the place of our clock:
        milliseconds, `[median, p20, p80]` or one number, of which the least wins. Calling
        `kernel_call` launches once, with hooks and with what puts back arguments that the kernel
        updates; outputs are checked before it is called. As in Triton the three below, where
        they are given, leave it unused.
    warmup: milliseconds for which each config is launched before its first sample, in every
        trial and final that it is in; one launch by default.
    rep: milliseconds of its own launches for which a config is timed at most in a trial, 30 by
        default, and five times as long in the finals. The clock stops earlier where a config is
        clearly slower or its time is steady: as many samples as Triton takes are not needed.
    use_cuda_graph: whether launches are timed in a CUDA graph, 10 together, hooks included; a
        config that cannot be captured fails.
    cache_results: accepted, and without effect: results are always kept.
    """

    effort: str | Effort
    isolate: bool
    devices: tuple[int, ...] | None
    seed: int
    tiles: bool
    force: bool
    on_busy: OnBusy
    check: bool
    bits: Bits
    reference: Callable[[Mapping[str, Any]], Any] | None
    tolerance: float | None
    accuracy: Bound | None
    alternatives: Alternatives | None
    foreign: Literal["repeat"] | None
    restore: Restore | None
    restore_value: tuple[str, ...]
    reset_to_zero: tuple[str, ...]
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
        devices: indices of the GPUs to time on, one process each (which isolates as well); None
            for the current one.
        seed: seeds all draws; two runs of one seed differ by their timings alone, those of a short
            list also by the order in which compiles end.
        tiles: whether to search the tile axes of a recurrence on a small grid as well, which
            are otherwise held where its state or its grid depends on them.
        force: tune although the store has the key.
        on_busy: while another process tunes the same key: "wait" for it, or launch the
            "heuristic".
        checks: how outputs are checked and arguments restored.
        hooks: called around every launch; with `isolate` or `devices` in the process that times,
            to which they are sent, on its copies of the arguments.
        do_bench: the user's function that times, in the place of our clock; sent likewise.
        alternatives: the user's functions that are timed beside the configs; sent likewise.
    """

    effort: Effort
    isolate: bool = False
    devices: tuple[int, ...] | None = None
    seed: int = 0
    tiles: bool = False
    force: bool = False
    on_busy: OnBusy = "wait"
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
            InputError: no such effort, or a choice has an invalid value.
        """
        on_busy = choices.get("on_busy", "wait")
        if on_busy not in ("wait", "heuristic"):
            raise InputError(f"on_busy={on_busy!r}: give 'wait' or 'heuristic'")
        effort = effort_of(choices.get("effort", "balanced"))
        return cls(
            effort=replace(effort, policy=policy_of(effort.policy, choices)),
            isolate=choices.get("isolate", False),
            devices=_listed(choices, "devices", "a list of GPUs, such as [0, 1]") or None,
            seed=choices.get("seed", 0),
            tiles=choices.get("tiles", False),
            force=choices.get("force", False),
            on_busy=on_busy,
            checks=checks_of(choices),
            hooks=hooks_of(choices),
            do_bench=do_bench_of(choices),
            alternatives=checked_alternatives(choices.get("alternatives")),
        )
