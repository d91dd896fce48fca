"""Choices are held to form; what is taken over from `triton.autotune` means what it means there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import Bound
from asmtune.tuning.options import EFFORTS, Choices, TuneOptions


def options(**choices: Any) -> TuneOptions:
    """Options of a user's keywords."""
    return TuneOptions.of(Choices(**choices))


def hook(*_: Any, **__: Any) -> None:
    """Do nothing."""


def test_left_out_nothing_changes() -> None:
    """Without them, and with all of them at Triton's defaults, a preset stays as it is."""
    named = ("pre_hook", "post_hook", "do_bench", "warmup", "rep")
    plain = options(**dict.fromkeys(named), use_cuda_graph=False, cache_results=False)
    assert plain == options()
    assert plain.effort == EFFORTS["balanced"]
    assert plain.clock == ""


@given(st.floats(0, 1e6), st.floats(0, 1e6) | st.integers(0, 10**6))
def test_milliseconds_go_to_the_clock(warmup: float, rep: float) -> None:
    """`warmup` is time before the first sample, `rep` the most that a config is timed for."""
    policy = options(warmup=warmup, rep=rep).effort.policy
    assert policy.warmup_us == pytest.approx(warmup * 1000)
    assert policy.entrant_us == pytest.approx(rep * 1000)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        *(
            ({name: value}, f"^{name}=.*milliseconds, a number of 0 or more$")
            for name in ("warmup", "rep")
            for value in (-0.1, float("nan"), float("inf"), "25", True, [1])
        ),
        *(
            ({name: 5}, f"^{name}=5: give a function")
            for name in ("pre_hook", "post_hook", "do_bench")
        ),
        *(
            ({name: "yes"}, f"^{name}='yes': give True")
            for name in ("use_cuda_graph", "cache_results")
        ),
        ({"check": "same"}, "^check='same': give 'close'"),
        ({"check": 0.03}, "^check=0.03: give 'close'"),
        ({"check": True}, "^check=True: give 'close'"),
        ({"check": "bits", "reference": len}, "^check='bits' compares with the default"),
        ({"tolerance": 0}, "^tolerance=0: give a number above 0"),
        ({"tolerance": True}, "^tolerance=True: give a number"),
        ({"tolerance": 0.1, "check": Bound(p99=1e-2)}, "leave it or check=Bound"),
        ({"tolerance": 0.1, "check": "bits"}, "leave it or check='bits' out"),
    ],
)
def test_choices_that_mean_nothing_are_refused(choices: dict[str, Any], message: str) -> None:
    """The name, the value and what is expected, in one line."""
    with pytest.raises(InputError, match=message) as caught:
        options(**choices)
    assert "\n" not in str(caught.value)


def test_a_graph_times_in_a_graph() -> None:
    """`use_cuda_graph` is the clock's mode."""
    assert options(use_cuda_graph=True).effort.policy.mode == "graph"
    assert options(cache_results=True) == options()


def test_the_users_clock_decides_alone() -> None:
    """With `do_bench` the least time wins, with no tie for cheaper configs; it is known by name."""
    made = options(do_bench=hook, effort="quick")
    assert made.do_bench is hook
    assert made.effort.policy.near_tie == 0
    assert made.clock.endswith("test_borrowed.hook")


@pytest.mark.parametrize("figure", [{"warmup": 1}, {"rep": 1}, {"use_cuda_graph": True}])
def test_triton_leaves_the_users_clock_unused(figure: dict[str, Any]) -> None:
    """As in Triton, which takes its own clock where one of its old figures is given."""
    made = options(do_bench=hook, **figure)
    assert made.do_bench is None
    assert made.effort.policy.near_tie > 0


@pytest.mark.parametrize(
    ("hooks", "restored", "zeroed"),
    [
        ({}, ("x",), ("y",)),
        ({"pre_hook": hook}, (), ()),
        ({"post_hook": hook}, (), ("y",)),
        ({"pre_hook": hook, "post_hook": hook}, (), ()),
    ],
)
def test_hooks_replace_what_they_replace(
    hooks: dict[str, Any], restored: tuple[str, ...], zeroed: tuple[str, ...]
) -> None:
    """A `pre_hook` stands for zeroing and for the copy, a `post_hook` for putting it back."""
    made = options(restore_value=["x"], reset_to_zero=["y"], **hooks)
    assert made.checks.restore_value == restored
    assert made.checks.reset_to_zero == zeroed
    assert (made.hooks.pre, made.hooks.post) == (hooks.get("pre_hook"), hooks.get("post_hook"))
