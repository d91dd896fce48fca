"""From arguments to the driver."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.runtime.launch.planning import (
    COMPUTED,
    CONSTEXPR,
    KEYED,
    RUNTIME,
    Launcher,
    ParameterLayout,
)
from asmtune.triton_api.launching import CurrentStream
from tests.launch.fakes import FakeDriver, Slow, launcher

NAMES = ("x", "n", "scale", "BLOCK")
LAYOUT = ParameterLayout(NAMES, bytes([RUNTIME, RUNTIME | KEYED, RUNTIME, CONSTEXPR]))
X = torch.zeros(64)
KERNEL = object()
SLOTS = ((0, 0, 0), (3, 1, 0), (9, 2, 0), (0, -1, 0), (0, -1, 0))
FORMATS = {1: "<b", 2: "<h", 3: "<i", 4: "<q", 5: "<B", 6: "<H", 7: "<I", 9: "<f", 10: "<d"}


class Planned:
    """A launcher with a plan for `x, n=4096, scale, BLOCK` and what it did."""

    def __init__(self, c_part: Any, slots: Any = SLOTS, **parts: Any) -> None:
        self.part = c_part
        self.slow = Slow()
        self.relayed: list[tuple[Any, ...]] = []
        self.hook = parts.pop("hook", None)
        self.launcher: Launcher = launcher(c_part, parts.pop("layout", LAYOUT), self.slow, **parts)
        self.slots = slots

    def plan(self, *args: Any, guards: Any = (), function: int = 9, **named: Any) -> Any:
        """Make the plan for a launch."""
        self.launcher[(1,)](*args, **named)
        *_, key, held, _ = self.slow.calls.pop()
        given = dict(zip(NAMES, args, strict=False)) | named
        values = tuple(self.part.GIVEN if name in given else 64 for name in NAMES)
        rest = (KERNEL, "config", guards, self.relay, ("between",), self.hook, {"num_warps": 4})
        plan = self.part.Plan(function, 128, 512, self.slots, values, *rest)
        self.launcher.keep(key, plan, held)
        return plan

    def relay(self, *args: Any) -> None:
        """Stand for Triton's own launcher."""
        self.relayed.append(args)


@pytest.fixture
def planned(c_part: Any, driver: FakeDriver) -> Planned:
    """Plan a launch."""
    driver.expect([8, 4, 4, 8, 8])
    made = Planned(c_part)
    made.plan(X, 4096, 0.5, 128)
    return made


def test_a_planned_launch_gives_the_kernel(planned: Planned) -> None:
    """The second launch of a key never comes to the slow path, and returns what Triton's does."""
    assert planned.launcher.last is None
    assert planned.launcher[(2,)](X, 4096, 0.25, 128) is KERNEL
    assert not planned.slow.calls
    assert planned.launcher.last.config == "config"


@pytest.mark.parametrize("option", ["launch_pdl", "launch_cooperative_grid"])
def test_options_of_a_launch_have_plans_of_their_own(planned: Planned, option: str) -> None:
    """A launch that gives an option never gets the plan of one that does not."""
    launch = planned.launcher[(2,)]
    assert launch(X, 4096, 0.5, 128, **{option: True}) == "slow"
    same_name = "".join([option[:3], option[3:]])  # another object
    plan = planned.plan(X, 4096, 0.5, 128, **{same_name: True})
    assert launch(X, 4096, 0.5, 128, **{option: True}) is KERNEL
    assert planned.launcher.last is plan
    assert launch(X, 4096, 0.5, 128) is KERNEL
    assert planned.launcher.last is not plan
    assert launch(X, 4096, 0.5, 128, **{option: False}) == "slow"
    assert launch(X, 4096, 0.5, 128, **{option: 1}) == "slow"
    assert launch(X, 4096, 0.5, 128, num_warps=4) == "slow"


def test_an_option_is_no_result_of_a_rule(c_part: Any, driver: FakeDriver) -> None:
    """Plans of rules' results are other plans than those of options."""
    rules = (("scale", lambda _: 0.5),)
    modes = bytes([RUNTIME, RUNTIME | COMPUTED])
    slow = Slow()
    start = launcher(c_part, ParameterLayout(("x", "scale"), modes, rules=rules), slow)
    driver.expect([8, 4, 8, 8])
    slots = ((0, 0, 0), (9, 1, 0), (0, -1, 0), (0, -1, 0))
    for options, kernel in (({}, "plain"), ({"launch_pdl": True}, "dependent")):
        start[(1,)](X, **options)
        key, held = slow.calls.pop()[3:5]
        facts = (9, 128, 0, slots, (c_part.GIVEN,) * 2, kernel, "config", ())
        start.keep(key, c_part.Plan(*facts, print, (), None, {}), held, (0.5,))
    assert start[(1,)](X) == "plain"


def test_the_driver_gets_what_the_kernel_reads(c_part: Any, driver: FakeDriver) -> None:
    """Grid, block, shared memory, stream and each parameter reach the driver as Triton has them."""
    driver.expect([8, 4, 4, 8, 8])
    made = Planned(c_part)
    made.plan(X, 4096, 0.5, 128)
    made.launcher[(5, 6)](X, 4096, 0.1, 128)
    assert list(driver.noted.sizes) == [5, 6, 1, 128, 1, 1, 512]
    assert (driver.noted.function, driver.noted.stream) == (9, 77)
    expected = [struct.pack("<Q", X.data_ptr()), struct.pack("<i", 4096), struct.pack("<f", 0.1)]
    padded = [packed.ljust(8, b"\0") for packed in expected] + [bytes(8)] * 2
    assert driver.parameters() == padded


@given(kind=st.sampled_from(sorted(FORMATS)), data=st.data())
def test_scalars_of_every_kind(
    c_part: Any, driver: FakeDriver, kind: int, data: st.DataObject
) -> None:
    """A scalar is packed as its type says; one that does not fit is left to Triton."""
    value = data.draw(
        st.floats(width=32) if kind >= 9 else st.integers(-(2**40), 2**40), label="value"
    )
    width = struct.calcsize(FORMATS[kind])
    driver.expect([width])
    made = Planned(c_part, ((kind, 1, 0),), layout=ParameterLayout(NAMES, bytes(4)))
    made.plan(X, value, 0.5, 128)
    launches = driver.noted.launches
    result = made.launcher[(1,)](X, value, 0.5, 128)
    try:
        packed = struct.pack(FORMATS[kind], value)
    except struct.error:
        assert result == "slow"
        assert driver.noted.launches == launches
        return
    assert driver.parameters()[0] == packed.ljust(8, b"\0")


@pytest.mark.parametrize(
    "launch",
    {
        "by name": lambda k: k(X, n=4096, scale=0.5, BLOCK=128),
        "in another order": lambda k: k(BLOCK=128, scale=0.5, n=4096, x=X),
        "another float": lambda k: k(X, 4096, -3.5, 128),
    }.items(),
    ids=lambda item: item[0],
)
def test_the_same_key_in_other_words(planned: Planned, launch: Any) -> None:
    """How arguments are given does not matter."""
    assert launch[1](planned.launcher[(1,)]) is KERNEL


@pytest.mark.parametrize(
    "launch",
    {
        "another key value": lambda k: k(X, 8192, 0.5, 128),
        "another constexpr": lambda k: k(X, 4096, 0.5, 64),
        "True is not 1": lambda k: k(X, 4096, 0.5, True),
        "another dtype": lambda k: k(X.half(), 4096, 0.5, 128),
        "not aligned": lambda k: k(X[1:], 4096, 0.5, 128),
        "an int for a float": lambda k: k(X, 4096, 3, 128),
        "None for a tensor": lambda k: k(None, 4096, 0.5, 128),
        "one left out": lambda k: k(X, 4096, 0.5),
        "too many": lambda k: k(X, 4096, 0.5, 128, 1),
        "an option": lambda k: k(X, 4096, 0.5, 128, num_warps=8),
        "given twice": lambda k: k(X, 4096, 0.5, 128, x=X),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_the_plan_is_not_for(planned: Planned, launch: Any) -> None:
    """Whatever may need another kernel, config or error comes to the slow path, as it was given."""
    assert launch[1](planned.launcher[(1,)]) == "slow"
    (call,) = planned.slow.calls
    assert call[0] == (1,)
    assert not planned.relayed


ODD_GRIDS: tuple[Any, ...] = (
    *((0, 65536), (-1,), (1.0,), (), (1, 1, 1, 1), (1, 65536), (2**31,), (True,), "1", None, 7),
    (2**70,),
)


@pytest.mark.parametrize("grid", ODD_GRIDS, ids=repr)
def test_odd_grids_take_the_slow_path(planned: Planned, grid: Any) -> None:
    """A grid that is not one to three whole numbers in the device's limits is not launched."""
    assert planned.launcher[grid](X, 4096, 0.5, 128) == "slow"
    assert planned.launcher[lambda _: grid](X, 4096, 0.5, 128) == "slow"


@pytest.mark.parametrize("function", [9, 0], ids=["driver", "relay"])
@pytest.mark.parametrize("grid", [(0,), [0], (4, 0), (1, 2, 0)], ids=repr)
def test_no_programs_are_launched(
    c_part: Any, driver: FakeDriver, grid: Any, function: int
) -> None:
    """A planned launch of no programs returns its kernel, and comes to no launcher."""
    driver.expect([8, 4, 4, 8, 8])
    made = Planned(c_part)
    plan = made.plan(X, 4096, 0.5, 128, function=function)
    launches = driver.noted.launches
    for form in (grid, lambda _: grid):
        assert made.launcher[form](X, 4096, 0.5, 128) is KERNEL
    assert made.launcher.last is plan
    assert (driver.noted.launches, made.relayed, made.slow.calls) == (launches, [], [])


def test_a_grid_function_sees_all_values(planned: Planned, driver: FakeDriver) -> None:
    """It is called with the launch's values by name, in the parameters' order."""
    seen: list[dict[str, Any]] = []

    def grid(values: dict[str, Any]) -> list[int]:
        seen.append(values)
        return [values["n"] // values["BLOCK"], 3]

    assert planned.launcher[grid](X, 4096, 0.5, BLOCK=128) is KERNEL
    assert list(seen[0]) == list(NAMES)
    assert list(driver.noted.sizes[:3]) == [32, 3, 1]


def test_values_of_the_config_and_defaults_are_filled_in(c_part: Any, driver: FakeDriver) -> None:
    """A parameter that the launch leaves out has the plan's value, for kernel, grid and relay."""
    driver.expect([8, 4, 4, 8, 8])
    made = Planned(c_part, ((0, 0, 0), (3, 1, 0), (9, -1, 64), (0, -1, 0), (0, -1, 0)))
    made.plan(X, 4096)
    assert made.launcher[lambda v: (v["n"] // v["BLOCK"],)](X, n=4096) is KERNEL
    assert driver.noted.sizes[0] == 64
    assert driver.parameters()[2] == struct.pack("<f", 64.0).ljust(8, b"\0")


def test_the_relay_launches_what_the_driver_cannot(c_part: Any) -> None:
    """A plan without a function goes through Triton's launcher, with the current stream."""
    made = Planned(c_part)
    made.plan(X, 4096, 0.5, 128, function=0)
    assert made.launcher[(3, 2)](X, 4096, scale=0.75, BLOCK=128) is KERNEL
    assert made.relayed == [(3, 2, 1, 77, "between", X, 4096, 0.75, 128)]


@pytest.mark.parametrize("function", [9, 0], ids=["driver", "relay"])
def test_the_configs_hook_runs_before_each_launch(
    c_part: Any, driver: FakeDriver, function: int
) -> None:
    """It sees the launch's values, its grid and the config's own, once a launch."""
    driver.expect([8, 4, 4, 8, 8])
    seen: list[dict[str, Any]] = []
    made = Planned(c_part, hook=seen.append)
    made.plan(X, 4096, 0.5, BLOCK=128, function=function)
    assert made.launcher[(1,)](X, 4096, 0.25, BLOCK=128) is KERNEL
    assert len(seen) == 1
    assert seen[0]["x"] is X
    assert {name: seen[0][name] for name in seen[0] if name != "x"} == {
        "n": 4096, "scale": 0.25, "BLOCK": 128, "num_warps": 4, "grid": (1,), "warmup": False,
    }  # fmt: skip
    assert made.launcher[(0,)](X, 4096, 0.25, BLOCK=128) is KERNEL  # it may zero an output
    assert made.launcher[(-1,)](X, 4096, 0.25, BLOCK=128) == "slow"
    assert len(seen) == 3
    assert made.slow.calls[-1][-1] == made.hook  # the slow path does not call it again


MOVED = torch.zeros(65)
CHANGES: dict[str, tuple[torch.Tensor, bool]] = {
    "aligned memory": (MOVED[:64], True),
    "memory that is not aligned": (MOVED[1:], False),
    "another dtype": (torch.zeros(64, dtype=torch.float16), False),
}
WAYS = ("grid", "hook", "key")


@pytest.mark.parametrize("function", [9, 0], ids=["driver", "relay"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("other", "same"), CHANGES.values(), ids=CHANGES.keys())
def test_memory_that_the_users_code_changes(
    c_part: Any, driver: FakeDriver, other: torch.Tensor, same: bool, way: str, function: int
) -> None:
    """Memory that a grid function, hook or key function gives a tensor reaches the kernel."""
    driver.expect([8, 4, 4, 8, 8])
    x, active = torch.zeros(64), [False]

    def change(*_: Any) -> tuple[int]:
        if active[0]:
            x.data = other
        return (1,)

    ways = dict.fromkeys(WAYS, lambda *_: (1,)) | {way: change}
    layout = ParameterLayout(LAYOUT.names, LAYOUT.modes, ((lambda n: ways["key"](n) and 7, (1,)),))
    made = Planned(c_part, hook=ways["hook"], layout=layout)
    made.plan(x, 4096, 0.5, 128, function=function)
    active[0] = True
    launches = driver.noted.launches
    result = made.launcher[ways["grid"]](x, 4096, 0.5, 128)
    if not same:
        # A compiled kernel of the key that it had, or a plan kept for it, would read amiss.
        assert result == "slow"
        *_, key, _, hook = made.slow.calls[-1]
        assert key is None or way == "key"
        assert hook == (None if way == "key" else ways["hook"])
        assert (driver.noted.launches, made.relayed) == (launches, [])
    elif made.relayed:
        assert made.relayed[0][5].data_ptr() == other.data_ptr()
    else:
        assert driver.parameters()[0] == struct.pack("<Q", other.data_ptr())


def test_a_hooks_error_stops_the_launch(c_part: Any, driver: FakeDriver) -> None:
    """What a config's hook raises comes out, and nothing is launched."""

    def broken(_: dict[str, Any]) -> None:
        raise ValueError("no room")

    launches = driver.noted.launches
    made = Planned(c_part, hook=broken)
    made.plan(X, 4096, 0.5, 128)
    with pytest.raises(ValueError, match="no room"):
        made.launcher[(1,)](X, 4096, 0.5, 128)
    assert driver.noted.launches == launches
    assert not made.relayed


def test_guards_and_hooks_stop_a_plan(c_part: Any, driver: FakeDriver) -> None:
    """A changed global or knob, or a hook, sends the launch to the slow path until it is gone."""
    driver.expect([8, 4, 4, 8, 8])
    hooks: list[Any] = []
    scope = {"WIDTH": 4}
    made = Planned(c_part, quiet=(hooks,))
    made.plan(X, 4096, 0.5, 128, guards=((scope, "WIDTH", 4), (scope, "debug", c_part.GIVEN)))
    for change in (
        lambda: scope.update(WIDTH=5),
        lambda: scope.update(debug=True),
        lambda: hooks.append(1),
    ):
        assert made.launcher[(1,)](X, 4096, 0.5, 128) is KERNEL
        change()
        assert made.launcher[(1,)](X, 4096, 0.5, 128) == "slow"
        scope.clear()
        scope["WIDTH"] = 4
        hooks.clear()


def test_functions_of_the_key(c_part: Any, driver: FakeDriver) -> None:
    """A key's function decides by its result: a size in the same bucket is the same key."""
    driver.expect([8, 4, 4, 8, 8])
    layout = ParameterLayout(
        NAMES, bytes([0, 0, 0, 1]), ((lambda n, scale: f"{n // 1024}{scale}", (1, 2)),)
    )
    made = Planned(c_part, layout=layout)
    made.plan(X, 4096, 0.5, 128)
    assert made.launcher[(1,)](X, 4096 + 16, 0.5, 128) is KERNEL
    assert made.launcher[(1,)](X, 5120, 0.5, 128) == "slow"
    assert made.launcher[(1,)](X, None, 0.5, 128) == "slow"  # the function raises


def test_each_device_has_its_plans_and_its_stream(c_part: Any) -> None:
    """The current device is part of every key, and the stream is asked for at each launch."""
    streams = iter(range(100, 200))
    current = [-1]
    made = Planned(
        c_part, machine=CurrentStream(lambda: current[0], lambda device: device + next(streams))
    )
    made.plan(3, 4096, 0.5, 128, function=0)
    assert made.launcher[(1,)](3, 4096, 0.5, 128) is KERNEL
    current[0] = 2
    assert made.launcher[(1,)](3, 4096, 0.5, 128) == "slow"
    current[0] = -1
    assert made.launcher[(1,)](3, 4096, 0.5, 128) is KERNEL
    assert [args[3] for args in made.relayed] == [99, 100]


def test_a_thread_without_a_context_is_left_to_triton(c_part: Any, driver: FakeDriver) -> None:
    """Triton gives such a thread a context; the driver alone would fail."""
    made = Planned(c_part)
    made.plan(X, 4096, 0.5, 128)
    driver.expect([8, 4, 4, 8, 8], context=False)
    assert made.launcher[(1,)](X, 4096, 0.5, 128) == "slow"


def test_a_drivers_error_is_raised_as_tritons(c_part: Any, driver: FakeDriver) -> None:
    """Programs that catch Triton's error for a fault catch this one."""
    made = Planned(c_part)
    made.plan(X, 4096, 0.5, 128)
    driver.expect([8, 4, 4, 8, 8], code=700)
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: an illegal memory access"):
        made.launcher[(1,)](X, 4096, 0.5, 128)


@pytest.mark.slow
def test_forgotten_plans_are_let_go(c_part: Any) -> None:
    """`forget` drops plans, and what they hold."""

    class Held:
        pass

    kernel = Held()
    made = Planned(c_part)
    made.launcher[(1,)](X, 4096, 0.5, 128)
    *_, key, held, _ = made.slow.calls.pop()
    values = (c_part.GIVEN,) * 4
    plan = c_part.Plan(0, 128, 0, (), values, kernel, None, (), made.relay, (), None, {})
    made.launcher.keep(key, plan, held)
    alive = weakref.ref(kernel)
    del plan, kernel
    gc.collect()
    assert alive() is not None
    assert len(made.launcher) == 1
    made.launcher.forget()
    gc.collect()
    assert alive() is None
    assert len(made.launcher) == 0


def test_many_keys_do_not_grow_without_end(c_part: Any) -> None:
    """A program of endlessly many keys keeps some thousand plans at most, and the newest."""
    made = Planned(c_part)
    for n in range(2, 5002):
        made.plan(3, n, 0.5, 128, function=0)
    assert len(made.launcher) <= 4096
    assert made.launcher[(1,)](3, 5001, 0.5, 128) is KERNEL
