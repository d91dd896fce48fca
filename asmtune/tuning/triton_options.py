"""What is taken over from `triton.autotune`: its hooks, its clock and its figures, held to form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import InputError
from asmtune.measure.bench.hooks import TunerHooks
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

if TYPE_CHECKING:
    from asmtune.measure.bench.hooks import DoBench

_US: Final = 1e3
_SWITCHES: Final = ("use_cuda_graph", "cache_results")


def hooks_of(choices: Mapping[str, Any]) -> TunerHooks:
    """The tuner's hooks.

    Raises:
        InputError: one cannot be called.
    """
    return TunerHooks(_function(choices, "pre_hook"), _function(choices, "post_hook"))


def do_bench_of(choices: Mapping[str, Any]) -> DoBench | None:
    """The user's clock; None where `warmup`, `rep` or `use_cuda_graph` ask for ours.

    Raises:
        InputError: it cannot be called.
    """
    given = _function(choices, "do_bench")
    figures = choices.get("warmup") is not None or choices.get("rep") is not None
    return None if figures or choices.get("use_cuda_graph") else given


def policy_of(policy: TimingPolicy, choices: Mapping[str, Any]) -> TimingPolicy:
    """An effort's policy with what the choices say of it.

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
        # Without samples nothing tells a tie from a difference: what the user's clock says counts.
        policy = replace(policy, near_tie=0.0)
    return policy


def checks_of(choices: Mapping[str, Any]) -> CheckOptions:
    """How outputs are checked; hooks of the user's replace what they replace in Triton.

    There a `pre_hook` stands for zeroing and for keeping a copy, and a `post_hook` for putting
    the copy back. What the IR tells to be updated in place is put back in any case.
    """
    has_pre, has_post = choices.get("pre_hook") is not None, choices.get("post_hook") is not None
    return CheckOptions(
        check=choices.get("check", True),
        reference=choices.get("reference"),
        restore_value=() if has_pre or has_post else _names(choices, "restore_value"),
        reset_to_zero=() if has_pre else _names(choices, "reset_to_zero"),
    )


def _names(choices: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(choices.get(name) or ())


def _function(choices: Mapping[str, Any], name: str) -> Callable[..., Any] | None:
    given = choices.get(name)
    if given is None or callable(given):
        return given
    raise InputError(f"{name}={given!r}: give a function, or None")


def _microseconds(choices: Mapping[str, Any], name: str) -> float | None:
    given = choices.get(name)
    if given is None:
        return None
    # Not `given < 0`, which lets NaN pass.
    sound = isinstance(given, int | float) and not isinstance(given, bool)
    if not sound or not 0 <= given < math.inf:
        raise InputError(f"{name}={given!r}: give milliseconds, a number of 0 or more")
    return float(given) * _US
