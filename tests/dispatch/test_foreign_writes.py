"""Kernels that write memory of no argument are launched by the program alone, unless told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from asmtune.base.errors import ForeignWriteError, ProblemError
from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.runtime.misses.resolver import MissWarning
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest
from asmtune.tuning.tuner import Tuner
from tests import tuning_support as support
from tests.dispatch.host import Host, Told, later, miss

LIST = Space.from_configs([Config({"BLOCK": block, "FLAW": 0}) for block in (256, 1024)])


@triton.jit
def gather_into(table_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Add to what an address of a table names."""
    place = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(place + at, mask=at < n) + tl.load(x_ptr + at, mask=at < n)
    tl.store(place + at, total, mask=at < n)  # the write
    tl.store(out_ptr + at, total + FLAW, mask=at < n)


@triton.jit
def copy_out(table_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Read alone what an address of a table names."""
    place = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(place + at, mask=at < n) + tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total + FLAW, mask=at < n)


@dataclass
class Accumulating(support.HostMachine):
    """Does what the kernels do, to memory that is no argument.

    Attributes:
        memory: behind the table's address.
        found: what runs have found there first.
    """

    memory: Tensor = field(default_factory=lambda: torch.zeros(8192))
    found: list[float] = field(default_factory=list)
    writes: bool = True

    def launch(
        self,
        binary: Binary,  # noqa: ARG002 - the protocol's
        values: Mapping[str, Any],
        pre_hook: Callable[..., Any] | None,  # noqa: ARG002
    ) -> LoadedLaunch:
        """Add, as the kernel would."""
        n = values["n"]

        def run() -> None:
            self.found.append(float(self.memory[0]))
            total = self.memory[:n] + values["x_ptr"]
            if self.writes:
                self.memory[:n] = total
            values["out_ptr"].copy_(total)

        return LoadedLaunch(lambda: None, run)


@pytest.fixture
def machine(host: Host) -> Accumulating:
    """The host's machine, whose launches are seen."""
    made = Accumulating()

    def opener(setup: BenchSetup) -> Any:
        return DedupBench(setup.lowering.problem, LocalBench(setup, made))

    host.prepared = replace(host.prepared, opener=opener)
    return made


def launch(n: int = 4096, kernel: Any = gather_into, space: Space | None = None) -> TuningRequest:
    """A launch whose table names memory of its own."""
    tensors = {"table_ptr": torch.zeros(1, dtype=torch.int64), "x_ptr": torch.ones(n)}
    arguments = {**tensors, "out_ptr": torch.zeros(n), "n": n}
    made = Problem(kernel, arguments, lambda v: (triton.cdiv(n, v["BLOCK"]),), {"n": n})
    return miss(n, space, made)


def test_nothing_runs_but_the_launch(host: Host, machine: Accumulating) -> None:
    """The model's pick is launched for good; one warning names the line and both ways to tell."""
    resolver, line = host.resolver(), gather_into.starting_line_number
    lines = gather_into.raw_src
    line += next(place for place, text in enumerate(lines) if "# the write" in text)
    with pytest.warns(MissWarning) as told:
        choices = [resolver.resolve(launch(n)) for n in (4096, 2048)]
    assert [(choice.how, choice.final) for choice in choices] == [("predicted", True)] * 2
    assert machine.found == []
    (message,) = [str(one.message) for one in told]
    assert f"{__file__}:{line}" in message
    assert "restore_value= a function" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "choices",
    [
        {"isolate": True},
        {"isolate": True, "restore_value": lambda _: None},
        {"alternatives": {"other": lambda *_: pytest.fail("it was called")}},
        {"do_bench": lambda *_, **__: pytest.fail("it was called")},
        {"check": False, "restore_value": ("out_ptr",)},
        {"check": "bits"},
    ],
)
@pytest.mark.parametrize("space", [None, LIST], ids=["space", "list"])
def test_no_way_of_timing_launches_it(
    host: Host, machine: Accumulating, choices: dict[str, Any], space: Space | None
) -> None:
    """Whatever else is chosen, the library refuses and a launch goes on untimed."""
    with pytest.warns(MissWarning, match="not tuned, it may write memory"):
        choice = host.resolver(choices=choices, on_miss="tune").resolve(launch(space=space))
    assert choice.final
    assert choice.how == ("fallback" if choices.get("check") == "bits" else "predicted")
    tuner = Tuner.open("", TuneOptions.of(choices))  # type: ignore[arg-type]
    (result,) = tuner.results([launch(space=space)])
    assert (result.outcome, result.record) == ("failed", None)
    with pytest.raises(ForeignWriteError, match="it may write memory"):
        tuner.resolve(launch(space=space))
    assert machine.found == []


@pytest.mark.parametrize("choices", [{}, {"restore_value": lambda _: None}])
def test_the_background_times_nothing(
    host: Host, machine: Accumulating, told: Told, choices: dict[str, Any]
) -> None:
    """Another process has no such memory, and the program uses it meanwhile, told or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissWarning)
        resolver = later(host, told, choices=choices)
        assert not resolver.resolve(launch()).final
        choice = told.next()
    assert (choice.how, choice.final, machine.found) == ("predicted", True, [])


def test_restore_puts_the_memory_back(host: Host, machine: Accumulating) -> None:
    """It is called with the arguments by name before each run, and once after the last."""
    at, seen = launch(), []

    def restore(arguments: Mapping[str, Any]) -> None:
        seen.append(arguments["x_ptr"])
        machine.memory.fill_(2.0)

    assert host.resolver(choices={"restore_value": restore}).resolve(at).how == "tuned"
    assert len(machine.found) > 10
    assert set(machine.found) == {2.0}
    assert len(seen) == len(machine.found) + 1
    assert all(one is at.problem.arguments["x_ptr"] for one in seen)
    assert bool((machine.memory == 2.0).all())


def test_restore_that_fails_ends_the_tuning(host: Host, machine: Accumulating) -> None:
    """Its error is the user's, and nothing runs on memory that is not put back."""
    with pytest.raises(ProblemError, match="restore_value=: KeyError"):
        host.resolver(choices={"restore_value": lambda arguments: arguments["none"]}).resolve(
            launch()
        )
    assert machine.found == []


def test_reading_by_a_table_stays_timed(host: Host, machine: Accumulating) -> None:
    """A kernel that only reads such memory can do no harm by it."""
    machine.writes = False
    assert host.resolver().resolve(launch(kernel=copy_out)).how == "tuned"


def test_a_known_config_is_launched_and_beside_it_nothing_timed(
    host: Host, machine: Accumulating
) -> None:
    """A record of one who was told serves all; new alternatives are not timed beside it."""
    first = host.resolver(choices={"restore_value": lambda _: None, "check": False}).resolve(
        launch()
    )
    machine.found.clear()
    named = {"other": lambda *_: pytest.fail("it was called")}
    at = replace(launch(), choices={"alternatives": named})
    with pytest.warns(MissWarning, match="alternatives are not timed, it may write memory") as told:
        choice = host.resolver(choices=at.choices, on_miss="tune").resolve(at)
    assert (choice.how, choice.config) == ("known", first.config)
    assert len(told) == 1
    assert machine.found == []
