"""Launches of kernels over `@triton.heuristics`, against what Triton does."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.runtime import autotuner
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.call_trace import CallTrace
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.launch import plain
from asmtune.runtime.launch.planning import COMPUTED, CONSTEXPR, ParameterLayout
from asmtune.runtime.misses.lookups import Choice
from asmtune.triton_api.launching import CurrentStream
from tests.launch.fakes import FakeDriver, Slow, launcher

X = torch.zeros(64)
SMALL, LARGE = Config({"BLOCK": 16}), Config({"BLOCK": 64}, num_warps=8)
switch = [0]


def scaled(x, n, factor=1.0, steps=3, BLOCK: tl.constexpr = 16, EVEN: tl.constexpr = None):
    """Never compiled: the tests see its launches."""


def even(values: dict[str, Any]) -> bool:
    """Depends on the argument and on the config."""
    return values["n"] % values["BLOCK"] == 0


class Machine:
    """Kernels that Triton would compile and launch, each with what it was compiled for.

    Attributes:
        compiled: constexprs and options of each compile, in order.
        launched: of each launch the constexprs it was compiled for, its grid and its arguments.
    """

    def __init__(self) -> None:
        self.compiled: list[dict[str, Any]] = []
        self.launched: list[tuple[Any, ...]] = []

    def function(self) -> Any:
        """Make a Triton function whose launches come here."""
        made = triton.jit(scaled)
        made.run = lambda *args, **named: self.run(made, args, named)
        return made

    def run(self, function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Stand for `JITFunction.run`."""
        grid = named.pop("grid")
        named.pop("warmup")
        given = dict(zip(function.arg_names, args, strict=False))
        if given.keys() & named.keys():
            raise TypeError(f"multiple values for {given.keys() & named.keys()}")
        values = {p.name: named.get(p.name, given.get(p.name, p.default)) for p in function.params}
        made_for = {p.name: values[p.name] for p in function.params if p.is_constexpr}
        # Sorted: the order of a set, which changes with the process's hashes, is no option's.
        made_for |= {name: named[name] for name in sorted(named.keys() - values.keys())}
        self.compiled.append(made_for)
        sizes = grid(values) if callable(grid) else grid

        def relay(x: int, y: int, z: int, *rest: Any) -> None:
            self.launched.append((made_for, (x, y, z), rest[-len(values) :]))

        relay(*(*sizes, 1, 1)[:3], *values.values())
        target = SimpleNamespace(backend="cuda", warp_size=32)
        metadata = SimpleNamespace(num_warps=4, num_ctas=2, shared=0, target=target)
        source = SimpleNamespace(signature=dict.fromkeys(values, "constexpr"))
        return SimpleNamespace(
            run=relay, function=9, packed_metadata=(), metadata=metadata, src=source, asm={}
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose current device is that of the host's tensors."""
    monkeypatch.setattr(
        autotuner, "current_stream", lambda: CurrentStream(lambda: -1, lambda _: 77)
    )
    switch[0] = 0
    return Machine()


def config_of(n: int) -> Config:
    """Tell the config of a key."""
    return LARGE if n >= 1000 else SMALL


def tuned(c_part: Any, inner: Any, hook: Callable[..., Any] | None = None) -> AsmAutotuner:
    """Decorate a kernel, whose key has the config of `config_of`."""
    kernel = asm_autotune([SMALL, LARGE], ["n"])(inner)
    vars(kernel)["_part"] = c_part

    def resolve(call: Any, _: Any) -> tuple[None, Choice]:
        config = config_of(call.arguments["n"])
        return None, Choice(Config(config.kwargs, config.num_warps, pre_hook=hook), True, "known")

    kernel._chooser._resolve_miss = resolve  # type: ignore[method-assign]
    return kernel


def triton_does(inner: Any, machine: Machine, grid: Any, *args: Any, **named: Any) -> Any:
    """Launch as `triton.autotune` does with the config of the key; return what was launched."""
    config = config_of(args[1] if len(args) > 1 else named["n"])
    inner.run(*args, grid=grid, warmup=False, **named, **config.all_kwargs())
    return machine.launched.pop()


def by_values(values: dict[str, Any]) -> tuple[int, ...]:
    """A grid that reads what a rule has computed."""
    return (values["steps"], 2 if values["EVEN"] else 1)


RULES: dict[str, Callable[[Any], Any]] = {
    "by argument and config": lambda f: triton.heuristics({"EVEN": even})(f),
    "by a global": lambda f: triton.heuristics({"EVEN": lambda _: switch[0]})(f),
    "by another type": lambda f: triton.heuristics({"EVEN": lambda _: (1, True, 1.0)[switch[0]]})(
        f
    ),
    "an option": lambda f: triton.heuristics({"num_warps": lambda v: 1 << v["n"] % 3})(f),
    "a runtime argument": lambda f: triton.heuristics({"steps": lambda v: v["n"] // 3})(f),
    "one after the other": lambda f: triton.heuristics(
        {"EVEN": even, "steps": lambda v: 5 if v["EVEN"] else v["num_warps"]}
    )(f),
    "stacked, one name twice": lambda f: triton.heuristics({"steps": lambda v: v["n"] % 5 + 2})(
        triton.heuristics({"steps": lambda v: 2 * v["steps"], "EVEN": even})(f)
    ),
    "over a config's value": lambda f: triton.heuristics(
        {"BLOCK": lambda v: 2 * v["BLOCK"] if v["n"] % 32 else 8}
    )(f),
    "by what only Triton's call has": lambda f: triton.heuristics(
        {"EVEN": lambda v: "factor" in v, "steps": lambda v: 1 + v["warmup"] + callable(v["grid"])}
    )(f),
    "by what a launch gives for it": lambda f: triton.heuristics(
        {"EVEN": lambda v: v.get("EVEN", 7) == 7}
    )(f),
}
LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from([31, 32, 48, 999, 1000, 1024]),
        st.sampled_from([{}, {"factor": 2.0}, {"EVEN": 7}, {"EVEN": False}, {"EVEN": "no"}]),
        st.sampled_from([(3,), [2, 2], by_values]),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("rule", RULES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(launches=LAUNCHES)
def test_launches_are_tritons(c_part: Any, rule: str, launches: list[Any]) -> None:
    """Whatever changes between launches, each has Triton's kernel, grid and arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autotuner, "current_stream", lambda: CurrentStream(lambda: -1, lambda _: 77))
        mine, theirs = Machine(), Machine()
        kernel, inner = tuned(c_part, RULES[rule](mine.function())), RULES[rule](theirs.function())
        for n, named, grid, switch[0] in launches:
            kernel[grid](X, n, **named)
            assert repr(mine.launched.pop()) == repr(
                triton_does(inner, theirs, grid, X, n, **named)
            )
            assert not mine.launched
            assert kernel.best_config == config_of(n)
        assert len(mine.compiled) <= len(theirs.compiled)


def test_rules_are_called_once_a_launch(c_part: Any, host: Machine) -> None:
    """A rule with another result at each call skips none, planned or not, whatever the grid."""
    calls: list[int] = []

    def rule(_: Any) -> int:
        calls.append(1)
        return len(calls) // 2

    kernel = tuned(
        c_part, triton.heuristics({"EVEN": rule, "steps": lambda v: v["EVEN"] + 5})(host.function())
    )
    for launch in range(8):
        kernel[(1,) if launch % 3 else torch.Size([1])](X, 32)
    assert [made["EVEN"] for made, *_ in host.launched] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert [args[3] for *_, args in host.launched] == [5, 6, 6, 7, 7, 8, 8, 9]


def test_threads_launch_while_plans_are_forgotten(c_part: Any, host: Machine) -> None:
    """Each launch has the config of its key and the results of its own arguments."""
    kernel = tuned(c_part, triton.heuristics({"EVEN": even})(host.function()))

    def launch(sizes: tuple[int, ...]) -> None:
        for n in sizes * 100:
            kernel[by_values](X, n, steps=3)

    def forget(_: Any) -> None:
        for _ in range(200):
            kernel.cache.clear()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as pool:
            work = [pool.submit(launch, (32, 31, 1024)), pool.submit(launch, (1000, 48, 32))]
            work.append(pool.submit(forget, None))
            for one in work:
                one.result()
    finally:
        sys.setswitchinterval(before)
    assert len(host.launched) == 600
    for made, grid, (_, n, *_) in host.launched:
        assert made["BLOCK"] == config_of(n).kwargs["BLOCK"]
        assert made["EVEN"] is (n % made["BLOCK"] == 0)
        assert grid == (3, 2 if made["EVEN"] else 1, 1)


def test_a_rule_that_raises(c_part: Any, host: Machine) -> None:
    """Its exception comes out, nothing is launched, and later launches go by their plan again."""

    def rule(values: dict[str, Any]) -> bool:
        if switch[0]:
            raise ZeroDivisionError("no rule")
        return even(values)

    kernel = tuned(c_part, triton.heuristics({"EVEN": rule})(host.function()))
    for switch[0] in (0, 0, 1, 0):
        if switch[0]:
            with pytest.raises(ZeroDivisionError, match="no rule"):
                kernel[(1,)](X, 32)
        else:
            kernel[(1,)](X, 32)
    assert (len(host.compiled), len(host.launched)) == (1, 3)


@pytest.mark.parametrize(
    "result", [[1], object(), 2**70, torch.ones(1)], ids=lambda v: type(v).__name__
)
def test_results_without_a_key_go_to_triton(c_part: Any, host: Machine, result: Any) -> None:
    """What cannot be compared by type and value is compiled for by Triton at each launch."""
    kernel = tuned(c_part, triton.heuristics({"EVEN": lambda _: result})(host.function()))
    for _ in range(3):
        kernel[(1,)](X, 32)
    assert (len(host.compiled), len(kernel._launcher)) == (3, 0)


def test_the_configs_hook_is_called_before_the_rules(c_part: Any, host: Machine) -> None:
    """It sees arguments and config, and no result; once a launch, whichever way that goes."""
    order: list[Any] = []

    def rule(values: dict[str, Any]) -> int:
        order.append("rule")
        return switch[0]

    def hook(values: dict[str, Any]) -> None:
        order.append(sorted(values.keys() - {"x", "n"}))

    inner = triton.heuristics({"EVEN": rule})(host.function())
    kernel = tuned(c_part, inner, hook)
    for switch[0] in (0, 0, 1, 1):
        order.clear()
        kernel[(1,)](X, 32)
        assert order[0][0] == "BLOCK"
        assert "EVEN" not in order[0]
        assert set(order[1:]) == {"rule"}
    assert len(host.compiled) == 2


@pytest.mark.parametrize("way", ["hook", "rule"])
def test_memory_that_hook_or_rule_change(c_part: Any, host: Machine, way: str) -> None:
    """A launch whose tensor gets memory of another class on the way has no plan of the old one."""
    moved, x = torch.zeros(65), torch.zeros(64)

    def change(_: Any) -> bool:
        x.data = (moved[:64], moved[1:])[switch[0]]
        return True

    def keep(_: Any) -> bool:
        return True

    rule, hook = (change, None) if way == "rule" else (keep, change)
    kernel = tuned(c_part, triton.heuristics({"EVEN": rule})(host.function()), hook)
    for switch[0] in (0, 0, 1, 0):
        x.data = moved[:64]
        kernel[(1,)](x, 32)
    assert len(host.compiled) == 2
    assert len(kernel._launcher) == 2  # of the arguments, and of the rules' results
    assert host.launched[-1][2][0] is x


def test_a_rule_may_forget_all_plans(c_part: Any, host: Machine) -> None:
    """Plan, hook and arguments of a launch live until its end, whatever user code does."""
    kernel: Any = None

    def forget(_: Any) -> bool:
        if switch[0]:
            kernel._launcher.forget()
            gc.collect()
        return True

    class Hook:
        def __call__(self, values: dict[str, Any]) -> None:
            forget(values)

    kernel = tuned(c_part, triton.heuristics({"EVEN": forget})(host.function()), Hook())
    for switch[0] in (0, 0, 1, 1, 0, 0):
        kernel[lambda values: (1 + forget(values),)](X, 32)
    assert len(host.launched) == 6


def test_other_decorators_are_left_to_themselves(host: Machine) -> None:
    """A layer that is not Triton's own may do anything at a launch: it is called each time."""

    class Own(triton.runtime.autotuner.Heuristics):  # type: ignore[misc]
        """Somebody's own."""

    inner = Own(host.function(), ["x", "n"], {"EVEN": even})
    kernel = tuned(plain, inner)
    assert not kernel._layout().names
    for _ in range(2):
        kernel[(1,)](X, 32)
    assert len(host.compiled) == 2


LAYOUT = ParameterLayout(
    ("x", "n", "EVEN"),
    bytes([0, COMPUTED, CONSTEXPR | COMPUTED]),
    rules=(("EVEN", lambda _: switch[0] % 2), ("n", lambda _: 1000 * switch[0])),
)


def test_the_driver_gets_what_rules_computed(c_part: Any, driver: FakeDriver) -> None:
    """A scalar that a rule computes is packed at each launch; another class has another plan."""
    driver.expect([8, 4, 8, 8])
    slow = Slow()
    made = launcher(c_part, LAYOUT, slow)
    made[(1,)](X)
    *_, key, held, _ = slow.calls.pop()
    slots = ((0, 0, 0), (3, 1, 0), (0, -1, 0), (0, -1, 0))
    rest = ("kernel", "config", (), print, (), None, {"num_warps": 4})
    for switch[0] in (2, 3):
        plan = c_part.Plan(9, 128, 0, slots, (c_part.GIVEN,) * 3, *rest)
        made.keep(key, plan, held, (switch[0] % 2, 1000 * switch[0]))
    for switch[0] in (2, 3, 5, 4):
        assert made[(1,)](X) == "kernel"
        assert int.from_bytes(driver.parameters()[1][:4], "little") == 1000 * switch[0]
    switch[0] = 1 << 30  # another class of number
    assert made[(1,)](X) == "slow"


def test_nothing_is_left_of_many_launches(c_part: Any, host: Machine) -> None:
    """Launches by plans, new plans, rules that raise and plans let go leave no reference."""

    class Held(set[int]):
        """Counted by weak references."""

    alive: list[Any] = []

    def rule(values: dict[str, Any]) -> Any:
        held = Held()
        alive.append(weakref.ref(held))
        values["held"] = held
        if switch[0] == 2:
            raise ValueError
        return held if switch[0] == 3 else switch[0]

    kernel = tuned(c_part, triton.heuristics({"EVEN": rule})(host.function()))
    counts = []
    for _ in range(3):
        for switch[0] in (0, 1, 2, 3) * 20:
            try:
                kernel[(1,)](X, 32)
            except ValueError:
                assert switch[0] == 2
            host.launched.clear()
            host.compiled.clear()
        gc.collect()
        counts.append(
            (sys.getrefcount(X), sys.getrefcount(rule), sum(r() is not None for r in alive))
        )
    assert counts[1] == counts[2]
    assert counts[2][2] == 0


def test_a_prepared_call_does_not_keep_results(c_part: Any, host: Machine) -> None:
    """What a rule computes may change between calls of one signature: no trace holds it."""
    kernel = tuned(c_part, triton.heuristics({"EVEN": even})(host.function()))
    for _ in range(2):
        kernel[(1,)](X, 32)
    with CallTrace(c_part, (X,)) as trace:
        kernel[(1,)](X, 32)
    assert kernel._launcher.last is not None
    assert "heuristics" in (trace.reason or "")
