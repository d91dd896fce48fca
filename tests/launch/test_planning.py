"""Plans of what Triton really compiled, for real targets."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as triton_compile
from triton.runtime import _allocation

from asmtune.core.config import Config
from asmtune.runtime.launch import plain, planning
from asmtune.runtime.launch.planning import (
    LaunchWarning,
    TritonLaunch,
    backend,
    kinds,
    plan_of,
    plan_of_alternative,
)
from asmtune.runtime.launch.slots import entry_widths
from asmtune.triton_api.compiler import Toolchain
from asmtune.triton_api.launching import hook_lists
from tests.launch.fakes import FACTS, Slow, launcher

KINDS = kinds()
WIDTH = tl.constexpr(4)


@triton.jit
def scalars(
    x, n, wide, scale, flag, one, nothing, double: tl.float64, small: tl.int8, B: tl.constexpr
):
    """Take parameters of many types."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = at * scale + wide + flag + one + double + small
    tl.store(x + at, value.to(x.dtype.element_ty), mask=at < n)


@triton.jit
def scratch(x, n, B: tl.constexpr):
    """Make a descriptor, in memory that the launcher has to give."""
    desc = tl.make_tensor_descriptor(x, [n], [1], [B])
    desc.store([0], desc.load([B]) + WIDTH)


def compiled(function: Any, arguments: dict[str, Any], arch: int = 90, **options: Any) -> Any:
    """Compile a launch as Triton does, as if it had been loaded."""
    toolchain = Toolchain("cuda", arch, 32)
    made = toolchain.specialise(function, {**arguments, **options})
    kernel = triton_compile(
        ASTSource(function, made.source.signature, made.source.constants, made.source.attrs),
        target=GPUTarget("cuda", arch, 32),
        options=options,
    )
    kernel._run, kernel.module, kernel.function = lambda *_: None, object(), 4711
    return kernel


def planned(function: Any, given: dict[str, Any], chosen: dict[str, Any], **parts: Any) -> Any:
    """The plan of a launch."""
    arch = parts.pop("arch", 90)
    options = {name: value for name, value in chosen.items() if name not in function.arg_names}
    known = {name: value for name, value in chosen.items() if name in function.arg_names}
    kernel = compiled(function, {**given, **known}, arch, **options)
    config = Config(known)
    return plan_of(FACTS, TritonLaunch(function, kernel, given, chosen, config), KINDS)


GIVEN = {
    "x": torch.zeros(64),
    "n": 48,
    "wide": 2**40,
    "scale": 0.5,
    "flag": True,
    "one": 1,
    "nothing": None,
    "double": 0.1,
    "small": -3,
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_amd_kernels_go_to_triton(arch: str) -> None:
    """A kernel for an AMD GPU has a plan, whose launches Triton's own launcher makes."""
    kernel = amd_kernel(arch)
    launched = TritonLaunch(copied, kernel, {"x": GIVEN["x"]}, {"B": 64}, Config({"B": 64}))
    plan = plan_of(FACTS, launched, KINDS)
    assert plan is not None
    assert (plan.function, plan.slots) == (0, ())
    assert plan.relay is kernel.run


@pytest.mark.parametrize("wanted", ["auto", "python"])
def test_where_the_c_part_cannot_be_built(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch then takes the slow path, with one warning unless it was asked for."""

    def unbuilt() -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setenv("ASMTUNE_LAUNCH", wanted)
    monkeypatch.setattr(planning, "native", unbuilt)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert backend.__wrapped__() is plain
    assert [one.category for one in told] == ([LaunchWarning] if wanted == "auto" else [])


def test_without_plans_each_launch_takes_the_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as it was given, without a key; a trace of a call hears of it."""
    slow, heard = Slow(), []
    made = launcher(plain, SimpleNamespace(names=(), modes=b"", functions=(), rules=()), slow)
    made.keep("key", "plan", ())
    monkeypatch.setattr(plain, "observer", lambda *launch: heard.append(launch))
    assert made[(4,)](1, n=2) == "slow"
    assert slow.calls == [((4,), (1,), {"n": 2}, None, (), None)]
    assert heard == [(made, None, None, None)]
    assert len(made) == 0


@triton.jit
def copied(x, B: tl.constexpr):
    """Read and write a block."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at) + 1)


def amd_kernel(arch: str) -> Any:
    """Compile a kernel for an AMD GPU as Triton does, as if it had been loaded."""
    made = Toolchain("hip", arch, 64).specialise(copied, {"x": GIVEN["x"], "B": 64})
    source = made.source
    kernel = triton_compile(
        ASTSource(copied, source.signature, source.constants, source.attrs),
        target=GPUTarget("hip", arch, 64),
    )
    kernel._run, kernel.module, kernel.function = lambda *_: None, object(), 4711
    return kernel


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_plain_kernels_go_to_the_driver(arch: int) -> None:
    """Every runtime argument has its slot, in the entry's order; constexprs have none."""
    plan = planned(scalars, GIVEN, {"B": 64, "num_warps": 8}, arch=arch)
    assert plan.function == 4711
    assert plan.threads == 256
    slots = [(kind, index) for kind, index, _ in plan.slots]
    assert slots == [(0, 0), (3, 1), (4, 2), (9, 3), (5, 4), (10, 7), (1, 8), (0, -1), (0, -1)]
    assert plan.values[-1] == 64
    assert all(value is FACTS.GIVEN for value in plan.values[:-1])
    assert plan.config == Config({"B": 64})


@pytest.mark.parametrize(
    ("option", "expected"),
    [({"num_ctas": 2}, (2, False, False)), ({"launch_pdl": True}, (1, False, True)),
     ({"launch_cooperative_grid": True}, (1, True, False))],
)  # fmt: skip
def test_what_a_launch_asks_of_the_driver(option: dict[str, Any], expected: Any) -> None:
    """Clusters, cooperative and dependent launches are the driver's own."""
    plan = planned(scalars, GIVEN, {"B": 64, **option})
    assert (plan.function, plan.attributes) == (4711, expected)


def test_a_profiled_kernel_goes_through_triton() -> None:
    """A kernel that writes a profile gets its memory from Triton's own launcher."""
    kernel = compiled(scalars, {**GIVEN, "B": 64})
    kernel.metadata = kernel.metadata._replace(profile_scratch_size=64)
    launched = TritonLaunch(scalars, kernel, GIVEN, {"B": 64}, Config({"B": 64}))
    plan = plan_of(FACTS, launched, KINDS)
    assert plan is not None
    assert (plan.function, plan.slots, plan.between[0]) == (0, (), 4711)


def test_scratch_memory_is_in_the_plan() -> None:
    """A plan says what a program asks for, how aligned, and whom Triton would ask for it."""
    plan = planned(scratch, {"x": torch.zeros(256), "n": 256}, {"B": 64})
    assert plan.scratch[:2] == (128, 128)
    assert plan.scratch[2]() is _allocation._allocator.get()
    clustered = planned(scratch, {"x": torch.zeros(256), "n": 256}, {"B": 64, "num_ctas": 2})
    assert clustered.scratch[0] == 2 * 128


def test_an_entry_that_is_not_as_expected_goes_through_triton() -> None:
    """Where the assembly has other parameters than the signature, the driver is not called."""
    kernel = compiled(scalars, {**GIVEN, "B": 64})
    launched = TritonLaunch(scalars, kernel, GIVEN, {"B": 64}, Config({"B": 64}))
    assert entry_widths(kernel.asm["ptx"]) == [8, 4, 8, 4, 1, 8, 1, 8, 8]
    kernel.asm["ptx"] = kernel.asm["ptx"].replace(
        ".param .u32 scalars_param_1", ".param .u64 scalars_param_1"
    )
    assert entry_widths(kernel.asm["ptx"]) == [8, 8, 8, 4, 1, 8, 1, 8, 8]
    plan = plan_of(FACTS, launched, KINDS)
    assert plan is not None
    assert plan.function == 0


def test_defaults_and_configs_fill_what_a_launch_leaves_out() -> None:
    """A runtime parameter that the config sets is a constant of the plan."""
    given = {name: value for name, value in GIVEN.items() if name != "n"}
    plan = planned(scalars, given, {"B": 64, "n": 48})
    assert plan.slots[1] == (3, -1, 48)
    assert plan.values[1] == 48


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook", "pre_run_hooks"])
def test_no_plan_under_hooks(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a profiler listens, Triton launches; the lists are those that a launcher watches."""
    if hook == "pre_run_hooks":
        monkeypatch.setattr(scalars, "pre_run_hooks", [print])
    else:
        monkeypatch.setattr(getattr(knobs.runtime, hook), "calls", [print])
    assert [print] in hook_lists(scalars)
    assert planned(scalars, GIVEN, {"B": 64}) is None


def test_guards_are_what_triton_looks_at_again() -> None:
    """A changed global, `debug` or a knob breaks a guard."""
    plan = planned(scratch, {"x": torch.zeros(256), "n": 256}, {"B": 64})
    watched = {name: owner for owner, name, _ in plan.guards}
    assert watched["WIDTH"] is scratch.fn.__globals__
    assert watched["value"] is vars(WIDTH)
    assert watched["debug"] is vars(scratch)
    assert watched["launch_enter_hook"] is vars(knobs.runtime)
    assert all(owner.get(name, FACTS.GIVEN) is now for owner, name, now in plan.guards)


def test_no_plan_over_globals_that_change_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that holds a list is compared by Triton at each launch."""
    given = {"x": torch.zeros(256), "n": 256}
    kernel = compiled(scratch, {**given, "B": 64})
    monkeypatch.setattr(WIDTH, "value", [4])
    launched = TritonLaunch(scratch, kernel, given, {"B": 64}, Config({"B": 64}))
    assert plan_of(FACTS, launched, KINDS) is None


def test_an_alternative_runs_while_a_trace_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The observer of another thread's trace, which may go at any time, is looked at once."""

    class Ending:
        """A launcher whose trace ends as soon as it has been looked at."""

        def __init__(self) -> None:
            unheard = SimpleNamespace(unheard=lambda call, *values: call(*values))
            self.observers = iter((unheard, None))

        @property
        def observer(self) -> Any:
            return next(self.observers)

    seen: list[Any] = []
    won = Config({"B": 16}).with_alternative("vendor")
    relay = plan_of_alternative(FACTS, scratch, lambda *v: seen.append(v), ("x", "n"), won).relay
    monkeypatch.setattr(planning, "plain", Ending())
    between = (1, 1, 1, 0)  # sizes of the grid, and the stream
    relay(*between, "x", 5, 16)
    assert seen == [("x", 5)]
