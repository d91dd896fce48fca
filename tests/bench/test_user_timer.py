"""A user's `do_bench` in the place of our clock: what it is asked, what it may give, who fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from asmtune.base.errors import InputError
from asmtune.core.records.tuned import Measurement
from asmtune.measure.bench.base import TunerHooks
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.bench.trials import DeviceLostError
from tests.bench.bench_support import entrant, setup
from tests.bench.cpu_machine import CpuMachine


def bench(
    do_bench: Callable[..., Any], machine: CpuMachine | None = None, **more: Any
) -> LocalBench:
    """A bench that times by a function."""
    return LocalBench(replace(setup(), do_bench=do_bench, **more), machine or CpuMachine())


def five_calls(kernel_call: Callable[[], None], quantiles: Any) -> float:
    """Launch five times, and find a millisecond."""
    for _ in range(5):
        kernel_call()
    return 1.0


def test_its_milliseconds_become_microseconds() -> None:
    """Median, p20 and p80 as given, in the order asked for."""
    asked: list[Any] = []

    def do_bench(kernel_call: Callable[[], None], quantiles: Sequence[float]) -> list[float]:
        asked.append(quantiles)
        for _ in range(7):
            kernel_call()
        return [0.010, 0.009, 0.012]

    machine = CpuMachine()
    made = bench(do_bench, machine)
    _, outcome = made.begin(entrant("good"))
    assert (outcome.median_us, outcome.p20_us, outcome.p80_us) == pytest.approx((10.0, 9.0, 12.0))
    assert asked == [(0.5, 0.2, 0.8)]
    assert machine.launched == ["good"] * (2 + 7)  # two to learn the output, then its own
    made.final([entrant("good")])
    assert len(machine.launched) == 2 + 7 + 7
    made.close()


def test_each_call_does_all_around_a_launch() -> None:
    """Arguments updated in place are put back, and hooks called, in `kernel_call`."""
    calls: list[str] = []
    seen: list[list[float]] = []

    def do_bench(kernel_call: Callable[[], None], quantiles: Any) -> float:
        calls.clear()
        for _ in range(3):
            kernel_call()
        return 1.0

    def before(kwargs: dict[str, Any]) -> None:
        calls.append("pre")
        seen.append(kwargs["x_ptr"].tolist())

    hooks = TunerHooks(before, lambda *_, **__: calls.append("post"))
    effects = replace(setup().effects, writes=frozenset({"x_ptr", "y_ptr"}))
    made = bench(do_bench, hooks=hooks, effects=effects)
    made.begin(entrant("in place"))
    made.close()
    assert calls == ["pre", "post"] * 3
    assert seen == [[float(value) for value in range(8)]] * len(seen)


@pytest.mark.parametrize(
    "gives",
    [0.0, -1.0, float("nan"), [1.0, 2.0], [1.0, 0.0, 2.0], "soon", None, [], [1, 2, 3, 4]],
)
def test_what_is_no_time_is_told(gives: Any) -> None:
    """One line shows what was given and what is expected."""
    made = bench(lambda *_, **__: gives)
    with pytest.raises(InputError, match=r"do_bench gave .*expected milliseconds above 0"):
        made.begin(entrant("good"))
    made.close()


def test_one_number_is_the_median_and_both_percentiles() -> None:
    """Infinity is a failure, as Triton has it of a config that cannot be timed."""
    made = bench(lambda kernel_call, **_: kernel_call() or 0.25)
    _, outcome = made.begin(entrant("good"))
    made.close()
    assert (outcome.median_us, outcome.p20_us, outcome.p80_us) == (250.0, 250.0, 250.0)
    assert outcome.samples_us == (250.0,)
    made = bench(lambda *_, **__: [float("inf")] * 3)
    _, outcome = made.begin(entrant("good"))
    made.close()
    assert outcome.kind == "untimed"


def test_a_config_that_fails_inside_costs_itself_alone() -> None:
    """What a launch raises in the function is that config's failure; the others are timed."""

    def after(kwargs: dict[str, Any], exception: Exception | None) -> None:
        after.calls += 1  # type: ignore[attr-defined]
        if kwargs["US"] == 9.0 and after.calls > 5:  # type: ignore[attr-defined]
            raise RuntimeError("out of resources: shared memory")

    after.calls = 0  # type: ignore[attr-defined]
    made = bench(five_calls, hooks=TunerHooks(post=after))
    (_, failed), (_, timed) = (made.begin(entrant("good")), *made.trial([entrant("good", 8.0)]))
    assert isinstance(timed, Measurement)
    ((_, failed),) = made.trial([entrant("good", 9.0)])
    made.close()
    assert failed.kind == "shared_memory"


def test_a_function_that_launches_nothing_is_told() -> None:
    """Its own mistake is no config's: one line, at once."""
    made = bench(lambda _: 1.0)
    with pytest.raises(InputError, match=r"do_bench failed before it launched.*quantiles"):
        made.begin(entrant("good"))
    made.close()


def test_a_lost_device_is_told() -> None:
    """A fault inside the function names the config that broke the context."""
    made = bench(five_calls)
    with pytest.raises(DeviceLostError, match="fault later"):
        made.begin(entrant("fault later"))
