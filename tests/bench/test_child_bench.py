"""Timing in a child process: real processes that hang, crash and are started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.errors import InputError, MeasureError
from asmtune.core.records.artifacts import Failure
from asmtune.ir.ttir.slots import AccessStrides, ConfigSlots, ProgramStride, WrittenSlots
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.bench.child_bench import ChildBench, environment
from tests.bench.bench_support import CHILD, entrant, setup, told
from tests.compile.process_tree import comes_true


@pytest.fixture(scope="module")
def bench() -> Iterator[ChildBench]:
    """Share a bench with all tests that leave it in order; it begins with a right 10 us config."""
    made = begun(setup(run_timeout_s=6.0))
    yield made
    made.close()


def begun(options: BenchSetup, default: TimingCandidate | None = None) -> ChildBench:
    """A bench that has begun with a default."""
    made = ChildBench(options, command=CHILD)
    made.begin(default or entrant("good"))
    return made


def child_of(bench: ChildBench) -> int:
    """The process id of the child."""
    return bench._session.pid


@pytest.mark.slow
def test_each_fault_costs_its_config_alone(bench: ChildBench) -> None:
    """Crash, hang, fault, exit, no memory, wrong and no output: the rest is timed, in order."""
    modes = ["good", "segfault", "wrong", "hang", "fault", "nothing", "say and exit", "memory"]
    entrants = [entrant(mode, 3.0 + place) for place, mode in enumerate([*modes, "print"])]
    outcomes = bench.trial(entrants)
    assert [config for config, _ in outcomes] == [e.config for e in entrants]
    failed = ["crash", "wrong_output", "timeout", "fault", "unwritten", "crash", "memory"]
    assert told(outcomes) == [3.0, *failed, 11.0]
    details = {r.kind: r.detail for _, r in outcomes if isinstance(r, Failure)}
    assert "after 6 s" in details["timeout"]
    assert "illegal memory access" in details["fault"]
    assert details["crash"].endswith("exit code 3: out of patience")
    assert told(bench.final([entrant("good", 3.0), entrant("good")])) == [3.0, 10.0]
    assert "started again 4 times" in bench.notes[-1]


@pytest.mark.slow
def test_who_fails_among_the_timed_is_known(bench: ChildBench) -> None:
    """Configs that pass their check and fail while others are timed with them are charged."""
    modes = ["good", "hang later", "print", "fault later"]
    outcomes = bench.trial([entrant(mode, 4.0 + place) for place, mode in enumerate(modes)])
    assert told(outcomes) == [4.0, "timeout", 6.0, "fault"]


@pytest.mark.slow
def test_a_process_killed_between_trials_is_replaced(bench: ChildBench) -> None:
    """Whoever kills it, the next trial is timed against the reference from before."""
    os.kill(child_of(bench), signal.SIGKILL)
    assert told(bench.trial([entrant("wrong", 3.0), entrant("good", 4.0)])) == ["wrong_output", 4.0]


def test_nothing_reaches_the_terminal(bench: ChildBench, capfd: pytest.CaptureFixture[str]) -> None:
    """What kernels print on stdout or stderr is not the user's to see."""
    assert told(bench.trial([entrant("print", 5.0)])) == [5.0]
    assert capfd.readouterr() == ("", "")


def test_a_function_that_does_not_pickle_is_named(bench: ChildBench) -> None:
    """A hook or a reference that holds a lock cannot be sent; told before anything is timed."""
    lock = threading.Lock()

    def locked_hook(_: Any) -> None:
        with lock:
            pass

    with pytest.raises(InputError, match=r"pre_hook .*locked_hook.*isolate=False"):
        bench.trial([entrant("good", 2.0, pre_hook=locked_hook)])
    with pytest.raises(InputError, match=r"reference= .*locked_hook.*isolate=False"):
        ChildBench(setup({"reference": locked_hook}), command=CHILD)
    assert told(bench.trial([entrant("good", 2.0)])) == [2.0]


@pytest.mark.slow
def test_the_parents_tensors_are_whole() -> None:
    """Nothing that runs in the child is seen here, and what hooks write here is undone."""
    options = setup()
    arguments = options.lowering.problem.arguments
    before = {name: arguments[name].clone() for name in ("x_ptr", "y_ptr")}

    def zero(values: Any) -> None:
        values["y_ptr"].zero_()

    bench = begun(options)
    bench.trial([entrant("in place", 2.0), entrant("good", 3.0, pre_hook=zero)])
    assert torch.equal(arguments["x_ptr"], before["x_ptr"])
    bench.close()
    for name, held in before.items():
        assert torch.equal(arguments[name], held)


@pytest.mark.slow
def test_hooks_and_reference_travel() -> None:
    """Closures run in the child, on the child's tensors."""
    factor = 2.0

    def reference(values: Any) -> Any:
        return {"y_ptr": values["x_ptr"] * factor + 1}

    def hook(values: Any) -> None:
        values["x_ptr"] += 0.5

    options = setup({"reference": reference, "restore_value": ("x_ptr",)})
    bench = begun(options, entrant("good", pre_hook=hook))
    right, wrong = entrant("good", 3.0, pre_hook=hook), entrant("good", 4.0)
    assert told(bench.trial([right, wrong])) == [3.0, "wrong_output"]
    bench.close()


@pytest.mark.slow
def test_a_default_that_kills_is_replaced() -> None:
    """The first that runs gives the reference, also to the processes after the next death."""
    bench = begun(setup(), entrant("segfault"))
    assert told(bench.trial([entrant("wrong", 3.0)])) == [3.0]
    assert any("MODE=wrong" in note for note in bench.notes)
    outcomes = bench.trial([entrant("segfault", 2.0), entrant("good", 1.0), entrant("wrong", 2.0)])
    assert told(outcomes) == ["crash", "wrong_output", 2.0]
    bench.close()


def test_a_child_that_dies_at_its_start() -> None:
    """After three in a row the last words of the last one are the error."""
    with pytest.raises(MeasureError, match=r"died 3 times in a row.*the driver is too old"):
        ChildBench(setup(), command=(*CHILD, "die"))


@pytest.mark.slow
def test_a_child_without_a_gpu() -> None:
    """What it misses is the error, at the first try."""
    with pytest.raises(MeasureError, match="no GPU here"):
        ChildBench(setup(), command=(*CHILD, "refuse"))


@pytest.mark.slow
def test_close_ends_a_trial_in_another_thread() -> None:
    """A thread that waits for a hanging config gets an error, and no process is left."""
    with ThreadPoolExecutor(1) as brief:
        bench = brief.submit(begun, setup(run_timeout_s=600.0)).result()
    pid, errors = child_of(bench), []
    bench.trial([entrant("good", 2.0)])
    assert child_of(bench) == pid  # it outlives the thread that opened the bench

    def wait() -> None:
        try:
            bench.trial([entrant("hang"), entrant("good")])
        except MeasureError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    bench.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "closed" in errors[0]
    assert comes_true(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(
    ("listed", "index", "shown"),
    [(None, 2, "2"), ("5,7", 1, "7"), ("GPU-a, GPU-b", 1, "GPU-b"), ("3", None, "3")],
)
def test_a_child_sees_one_gpu(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, index: int | None, shown: str
) -> None:
    """Indices count among those that the parent sees."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert environment(index)["CUDA_VISIBLE_DEVICES"] == shown


@pytest.mark.slow(seconds=3)
def test_slots_are_compared_in_the_child() -> None:
    """A config that stores another number of partial sums is right there too, which is told."""

    def parts(count: int) -> TimingCandidate:
        strides = ProgramStride("x", count, 1), ProgramStride("x", count, 8 // count)
        written = WrittenSlots("y_ptr", strides[:1], (), ("x",), (), 32)
        slots = ConfigSlots((written,), (AccessStrides("x_ptr", 0, strides[1:]),))
        return replace(entrant(f"parts {count}", float(count)), slots=slots)

    with closing(begun(setup(), parts(4))) as bench:
        assert told(bench.trial([parts(2), entrant("parts 1")])) == [2.0, "unwritten"]
        assert any(note.startswith("y_ptr: workspace of each config") for note in bench.notes)
