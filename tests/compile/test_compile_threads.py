"""Compiling behind the back of the thread that works: from a thread, given up, stopped, warm."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.errors import ProblemError
from asmtune.base.settings import Settings
from asmtune.compile import sandbox
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import Hooks, compile_configs, sketch_configs, warm
from asmtune.compile.worker import CompiledConfig, Workers
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Failure
from asmtune.predict.prune.front import ProblemAnalysis
from tests.compile.process_tree import comes_true, descendants
from tests.compile.readings import StrangeError, admit, breaks, digest_of, where
from tests.sample_kernels import row_sum_problem, scale_problem

CHILD = "asmtune.compile.child_main"


CONFIGS = [Config({"BLOCK": block}) for block in (256, 512, 1024, 2048)]
SLOW = [Config({"BLOCK": 1 << 17}, num_warps=1, maxnreg=cap) for cap in (None, 64)]
"""LLVM needs minutes for each."""


def hooks() -> Hooks[str]:
    """Admit everything."""
    return Hooks(digest_of, admit)


def test_tasks_are_drawn_as_workers_get_free() -> None:
    """Each result comes once, and no more tasks are drawn than workers have begun."""
    drawn: list[int] = []
    begun, go_on = threading.Semaphore(0), threading.Event()

    def work(task: int, _: object) -> int:
        begun.release()
        assert go_on.wait(20)
        return task * task

    results = Workers(2).unordered(work, (drawn.append(n) or n for n in range(20)))  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(1) as threads:
        listed = threads.submit(list, results)
        assert begun.acquire(timeout=20)
        assert begun.acquire(timeout=20)
        assert len(drawn) == 2
        go_on.set()
        assert sorted(listed.result(20)) == [n * n for n in range(20)]


@pytest.fixture
def patient(empty_settings: Settings) -> Settings:
    """Two workers that would wait for ten minutes."""
    return replace(empty_settings, jobs=2, compile_timeout_s=600)


@pytest.fixture
def no_workers() -> None:
    """No child is left of earlier tests: what they stopped may still hold one for a moment."""
    end = time.monotonic() + 10
    while any(sandbox._lent.values()) and time.monotonic() < end:
        time.sleep(0.01)
    sandbox.release()


def busy() -> set[int]:
    """Children that use the processor."""
    before = {pid: _ticks(pid) for pid in descendants(CHILD)}
    time.sleep(0.4)
    return {pid for pid, ticks in before.items() if _ticks(pid) - ticks > 4}


def _ticks(pid: int) -> int:
    """Time on the processor so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def refuses(config: Config, request: LowerRequest) -> Failure | None:
    """Raise at the third config."""
    if config == CONFIGS[2]:
        raise ProblemError("the grid is none")
    return None


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("faulty", "error"),
    [
        (Hooks(digest_of, refuses), ProblemError),
        (Hooks(breaks, admit), StrangeError),
    ],
)
def test_an_exception_reaches_who_collects(
    faulty: Hooks[str], error: type[Exception], jobs: int, target: Target, patient: Settings
) -> None:
    """What is raised in the front end or in a worker arrives in the thread; the next call works."""
    lowering, chosen = Lowering(scale_problem(), target, 30), replace(patient, jobs=jobs)
    configs = [*CONFIGS[:3], Config({"BLOCK": 2048}, num_warps=2)]
    with ThreadPoolExecutor(1) as threads:
        failed = threads.submit(
            lambda: list(compile_configs(lowering, configs, replace(faulty, known={}), chosen))
        )
        with pytest.raises(error):
            failed.result(120)
        again = threads.submit(
            lambda: dict(compile_configs(lowering, CONFIGS, hooks(), chosen))
        ).result(120)
    assert all(isinstance(again[n], CompiledConfig) for n in range(4))


@pytest.mark.slow
def test_given_up_half_way(target: Target, patient: Settings, no_workers: None) -> None:
    """Closing the iterator ends compiles that would run for minutes; the next call works."""
    lowering = Lowering(row_sum_problem(), target, 30)
    found = compile_configs(lowering, [*CONFIGS[:1], *SLOW], hooks(), patient)
    next(found)
    assert comes_true(busy)
    found.close()
    assert comes_true(lambda: not busy())
    again = dict(compile_configs(lowering, CONFIGS, hooks(), patient))
    assert all(isinstance(again[n], CompiledConfig) for n in range(4))


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["given up", "an error"])
def test_others_go_on(trouble: str, target: Target, patient: Settings, no_workers: None) -> None:
    """What ends the compiles of one thread costs another thread no config."""
    lowering = Lowering(row_sum_problem(), target, 30)
    many = [Config({"BLOCK": 256 << n}, num_warps=1 << w) for n in range(3) for w in range(4)]
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(lambda: dict(compile_configs(lowering, many, hooks(), patient)))
        if trouble == "given up":
            found = compile_configs(lowering, [*CONFIGS[:1], *SLOW], hooks(), patient)
            next(found)
            found.close()
        else:
            with pytest.raises(StrangeError):
                list(compile_configs(lowering, many[:4], Hooks(breaks, admit), patient))
        made = other.result(120)
    assert sorted(made) == list(range(len(many)))
    assert all(isinstance(outcome, CompiledConfig) for outcome in made.values()), made


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_stopped_from_outside(
    jobs: int, target: Target, patient: Settings, no_workers: None
) -> None:
    """Another thread's verdicts end at once when told to, with what was known; then all works."""
    front = ProblemAnalysis(
        row_sum_problem(), target, patient, ProgressListener(), {}, Workers(jobs)
    )
    known: dict[str, Any] = {}
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(front.verdicts, [*CONFIGS[:1], *SLOW], "assembly", known)
        assert comes_true(lambda: known, 60)
        front.stop()
        verdicts = asked.result(60)
        assert [verdict.config for verdict in verdicts] == CONFIGS[:1]
        assert len(known) == 1
        again = threads.submit(front.verdicts, CONFIGS, "assembly", known).result(120)
    assert [verdict.kept for verdict in again] == [True] * 4


READERS = (digest_of.__module__,)


def test_stop_ends_one_purpose_alone() -> None:
    """What other workers do goes on to its end."""
    compiling, sketching = Workers(1), Workers(1)

    def done(stopped: Workers) -> list[int]:
        results = sketching.unordered(lambda task, _: task, iter(range(20)))
        first = next(results)
        stopped.stop()
        return [first, *results]

    assert done(compiling) == list(range(20))
    assert len(done(sketching)) < 20


def test_warm_workers(target: Target, patient: Settings, no_workers: None) -> None:
    """Workers and their compilers that were started early are those that compile."""
    lowering = Lowering(scale_problem(), target, 30)
    before = set(descendants(CHILD))
    warm(lowering.machine, READERS, patient)
    started = set(descendants(CHILD)) - before
    assert len(started) == 2
    made = dict(sketch_configs(lowering, CONFIGS, hooks(), patient))
    assert all(isinstance(outcome, CompiledConfig) for outcome in made.values())
    assert set(descendants(CHILD)) - before == started


@pytest.mark.slow
def test_children_read_in_parallel(target: Target, patient: Settings, no_workers: None) -> None:
    """Children read what they compile, as many as there are workers, beside other threads' too."""
    lowering, before = Lowering(scale_problem(), target, 30), set(descendants(CHILD))

    def made() -> set[int]:
        reading: Hooks[Any] = Hooks(where, admit)
        found = dict(compile_configs(lowering, CONFIGS, reading, patient))
        return {o.reading for o in found.values() if isinstance(o, CompiledConfig)}

    with ThreadPoolExecutor(2) as pool:
        processes = [one.result(120) for one in [pool.submit(made), pool.submit(made)]]
    assert os.getpid() not in set.union(*processes)
    assert len(set(descendants(CHILD)) - before) == 2
