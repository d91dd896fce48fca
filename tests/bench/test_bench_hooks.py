"""A user's hooks around every launch, here and in a child: order, arguments, failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.errors import InputError
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench.base import BenchSetup, TunerHooks
from asmtune.measure.bench.child_bench import ChildBench
from asmtune.measure.bench.local import LocalBench
from tests.bench.bench_support import CHILD, entrant, setup
from tests.bench.cpu_machine import CpuMachine


def hooked(hooks: TunerHooks, **more: Any) -> BenchSetup:
    """A setup with hooks."""
    return replace(setup(**more), hooks=hooks)


def test_every_launch_is_between_the_hooks() -> None:
    """Each launch has one call before it and one after, which see arguments and config by name."""
    machine, seen = CpuMachine(), list[Mapping[str, Any]]()

    def note(word: str, kwargs: Mapping[str, Any]) -> None:
        machine.launched.append(word)
        seen.append(dict(kwargs))

    hooks = TunerHooks(lambda kwargs: note("pre", kwargs), lambda kwargs, **_: note("post", kwargs))
    given = hooked(hooks)
    bench = LocalBench(given, machine)
    bench.begin(entrant("good"))
    bench.trial([entrant("good", 9.0, num_warps=8), entrant("wrong")])
    bench.final([entrant("good", 9.0, num_warps=8), entrant("good")])
    bench.close()
    before, launched, after = (machine.launched[place::3] for place in range(3))
    assert launched.count("wrong") == 1
    assert before == ["pre"] * len(launched)
    assert after == ["post"] * len(launched)
    arguments = given.lowering.problem.arguments
    for values in seen:
        assert values["x_ptr"] is arguments["x_ptr"]
        assert (values["n"], values["num_warps"]) == (8, 8 if values["US"] == 9.0 else 4)


def test_the_configs_own_hook_comes_first() -> None:
    """As in Triton: the config's `pre_hook`, then the tuner's."""
    order: list[str] = []
    hooks = TunerHooks(lambda _: order.append("tuner"))
    bench = LocalBench(hooked(hooks), CpuMachine())
    bench.begin(entrant("good", pre_hook=lambda _: order.append("config")))
    bench.close()
    pairs = order[order.index("tuner") - 1 :]  # specialising the launch runs the config's alone
    assert pairs == ["config", "tuner"] * (len(pairs) // 2)


def test_a_launch_that_raises_is_told_to_the_hook() -> None:
    """`post_hook` gets the exception, and the config its failure."""
    raised: list[str] = []
    hooks = TunerHooks(post=lambda _, exception: raised.append(type(exception).__name__))
    bench = LocalBench(hooked(hooks), CpuMachine())
    bench.begin(entrant("good"))
    ((_, outcome),) = bench.trial([entrant("memory")])
    bench.close()
    assert isinstance(outcome, Failure)
    assert raised.count("RuntimeError") == 1
    assert set(raised) == {"NoneType", "RuntimeError"}


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_hook_that_raises_costs_its_config(place: str) -> None:
    """The failure says what the hook raised; other configs are timed."""

    def fussy(kwargs: dict[str, Any], exception: Exception | None = None) -> None:
        if kwargs["US"] == 9.0:
            raise KeyError("not this one")

    hooks = TunerHooks(**{place: fussy})
    bench = LocalBench(hooked(hooks), CpuMachine())
    bench.begin(entrant("good"))
    (_, refused), (_, timed) = bench.trial([entrant("good", 9.0), entrant("good", 8.0)])
    bench.close()
    assert "not this one" in refused.detail
    assert isinstance(timed, Measurement)


def test_the_last_call_resets_alone() -> None:
    """`reset` calls the first hook once, with `reset_only`; what it raises names it."""
    called: list[tuple[Any, bool]] = []
    TunerHooks(lambda kwargs, reset_only: called.append((kwargs["n"], reset_only))).reset({"n": 1})
    assert called == [(1, True)]
    TunerHooks(post=lambda *_: pytest.fail("nothing was launched")).reset({})
    with pytest.raises(InputError, match=r"pre_hook\(reset_only=True\).*TypeError"):
        TunerHooks(lambda _: None).reset({})


@pytest.mark.slow
def test_hooks_go_along_to_a_child(tmp_path: Path) -> None:
    """In the child they are called around each launch, on its copies of the arguments."""
    log = tmp_path / "log"

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(word + "\n")

    def before(kwargs: dict[str, Any]) -> None:
        note(f"pre {kwargs['US']:g} {kwargs['x_ptr'].sum().item():g}")
        kwargs["x_ptr"][0] = 0.0

    def after(kwargs: dict[str, Any], exception: Exception | None) -> None:
        note(f"post {exception}")

    given = hooked(TunerHooks(before, after))
    x = given.lowering.problem.arguments["x_ptr"]
    x[0] = 5.0
    bench = ChildBench(given, command=CHILD)
    _, outcome = bench.begin(entrant("good"))
    bench.close()
    assert isinstance(outcome, Measurement)
    lines = log.read_text().splitlines()
    assert lines[::2] == ["pre 10 33"] + ["pre 10 28"] * (len(lines) // 2 - 1)
    assert set(lines[1::2]) == {"post None"}
    assert torch.equal(x, torch.tensor([5.0, 1, 2, 3, 4, 5, 6, 7]))


def test_functions_of_the_user_are_timed_in_the_child() -> None:
    """They travel by name, on its copies of the arguments; a wrong one fails with a reason."""

    def twice(x: torch.Tensor, y: torch.Tensor, n: int) -> None:
        y.copy_(x + x)

    def thrice(x: torch.Tensor, y: torch.Tensor, n: int) -> None:
        y.copy_(3 * x)

    given = replace(setup(), alternatives={"twice": twice, "thrice": thrice})
    bench = ChildBench(given, command=CHILD)
    good = entrant("good")
    bench.begin(good)
    named = [replace(good, config=good.config.with_alternative(n)) for n in ("twice", "thrice")]
    outcomes = [outcome for _, outcome in bench.final([good, *named])]
    bench.close()
    assert [type(outcome) for outcome in outcomes] == [Measurement, Measurement, Failure]
    assert isinstance(outcomes[1], Measurement)
    assert outcomes[1].config.alternative == "twice"
    assert isinstance(outcomes[2], Failure)
    assert outcomes[2].kind == "wrong_output"
    assert torch.equal(given.lowering.problem.arguments["y_ptr"], torch.full((8,), 7.0))
