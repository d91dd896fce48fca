"""Choices: held to form, as `triton.autotune` means them, and in the provenance of a config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import Bound
from asmtune.tuning.options import Choices, TuneOptions
from asmtune.tuning.request import provenance
from tests.tuning_support import HostMachine, problem, request, space, workshop


def options(**choices: Any) -> TuneOptions:
    """Options of a user's keywords."""
    return TuneOptions.of(Choices(**choices))


def hook(*_: Any, **__: Any) -> None:
    """Do nothing."""


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


def test_the_users_clock_decides_alone() -> None:
    """With `do_bench` the least time wins; as in Triton, an old figure takes the own clock."""
    made = options(do_bench=hook, effort="quick")
    assert made.do_bench is hook
    assert made.effort.policy.near_tie == 0
    assert made.clock.endswith("test_borrowed.hook")
    for figure in ("warmup", "rep", "use_cuda_graph"):
        own = options(do_bench=hook, **{figure: True if figure == "use_cuda_graph" else 1})
        assert own.do_bench is None
        assert own.effort.policy.near_tie > 0
        assert own.effort.policy.mode == ("graph" if figure == "use_cuda_graph" else "events")


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


def own_clock(call: Any, quantiles: Any) -> float:
    """Stand for a user's clock."""
    return 1.0


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"effort": "quick", "isolate": True, "seed": 3},
        {"do_bench": own_clock},
        {"do_bench": own_clock, "rep": 20.0},
        {"restore_value": ("x_ptr",), "check": False},
        {"check": Bound(p99=1e-2), "reference": max},
        {"check": Bound(clip=0.0)},
    ],
    ids=lambda choices: " ".join(choices) or "none",
)
def test_lookups_expect_what_tuning_writes(tmp_path: Path, choices: dict[str, Any]) -> None:
    """Whatever a user chooses, what is tuned so is a hit for a launch that has chosen so."""
    bench = workshop(tmp_path, HostMachine())
    bench.options = TuneOptions.of(choices)  # type: ignore[arg-type]
    written = request(bench).expected
    expected = provenance(problem(), space(), choices)
    assert replace(expected, date="") == replace(written, date="")


def test_choices_that_change_what_is_best_are_told_apart() -> None:
    """Clock, check or bound each expect a config of their own."""
    chosen: list[dict[str, Any]] = [{}, {"do_bench": own_clock}, {"check": "bits"}]
    chosen += [{"check": Bound(p99=limit)} for limit in (1e-2, 1e-3)]
    chosen += [{"check": Bound(p99=1e-2), "reference": function} for function in (max, own_clock)]
    chosen += [{"tolerance": 0.1}, {"tolerance": 0.2}]
    made = [provenance(problem(), space(), choices) for choices in chosen]
    assert len({(one.source, one.space) for one in made}) == len(chosen)
