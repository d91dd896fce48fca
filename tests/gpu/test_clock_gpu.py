"""The clock on a real GPU."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import pytest
import torch
import triton

from asmtune import Config
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.clock import GpuClock, Subject
from asmtune.measure.timing.policy import TimingPolicy
from tests.gpu import gpu_kernels

ROUNDS = 21
MIDDLING = 10_000_000
"""Elements of which an addition takes 30 us on an H200: 120 MB through DRAM."""

SMALL = 4096


def added(n: int, block: int = 1024, num_warps: int = 4) -> Subject:
    """An addition of so many elements, by the compiled kernel's own launcher."""
    x, y = torch.randn(2, n, device="cuda")
    out = torch.empty_like(x)
    grid = (triton.cdiv(n, block), 1, 1)
    kernel = gpu_kernels.add[grid](x, y, out, n, BLOCK=block, num_warps=num_warps)
    config = Config({"BLOCK": block}, num_warps=num_warps)
    return Subject(config, lambda: kernel[grid](x, y, out, n, block), lambda: None)


def timed(subject: Subject, policy: TimingPolicy, rounds: int = ROUNDS) -> float:
    """Median of so many rounds, in microseconds."""
    clock = GpuClock(policy)
    assert clock.warm_up(subject) is None
    return median(clock.round([subject])[0] for _ in range(rounds))


@contextmanager
def busy(work: Callable[[], object]) -> Iterator[None]:
    """Another Python thread does this all the time."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_samples_are_those_of_do_bench() -> None:
    """The median of a kernel of 30 us is within 10% of `triton.testing.do_bench`'s."""
    subject = added(MIDDLING)
    theirs = 1e3 * triton.testing.do_bench(subject.run, return_mode="median")
    assert timed(subject, TimingPolicy()) == pytest.approx(theirs, rel=0.1)


def test_a_prompt_host_is_not_late() -> None:
    """With nothing else going on, all samples of a round are accepted."""
    subjects = [added(MIDDLING) for _ in range(8)]
    clock = GpuClock(TimingPolicy())
    assert [clock.warm_up(subject) for subject in subjects] == [None] * 8
    for _ in range(10):
        clock.round(subjects)
    assert clock.delayed == 0


def count_up() -> None:
    """Hold the interpreter in bytecode, which gives it up when asked."""
    sum(number * number for number in range(2000))


VALUES = random.Random(1).sample(range(20_000), 20_000)


def sort() -> None:
    """Hold the interpreter in one call of some milliseconds, which does not."""
    sorted(VALUES)


@pytest.mark.parametrize("work", [count_up, sort])
@pytest.mark.parametrize("n", [SMALL, MIDDLING])
def test_a_busy_thread_moves_nothing(n: int, work: Callable[[], object]) -> None:
    """The median beside another thread that holds the interpreter is that without, to 10%."""
    subject = added(n)
    alone = timed(subject, TimingPolicy())
    with busy(work):
        beside = timed(subject, TimingPolicy())
    assert beside == pytest.approx(alone, rel=0.1)


def test_inputs_come_from_dram() -> None:
    """What would fit into L2 takes longer with the flush than without."""
    subject = added(1_000_000)
    assert timed(subject, TimingPolicy()) > 1.1 * timed(subject, TimingPolicy(flush_bytes=0))


def test_a_graph_prepares_each_launch() -> None:
    """A kernel that works in place finds what `prepare` gives it, also inside a graph."""
    source = torch.randn(SMALL, device="cuda")
    x = torch.empty_like(source)
    grid = (triton.cdiv(SMALL, 256), 1, 1)
    kernel = gpu_kernels.scale_in_place[grid](x, SMALL, BLOCK=256)
    subject = Subject(Config({}), lambda: kernel[grid](x, SMALL, 256), lambda: x.copy_(source))
    clock = GpuClock(TimingPolicy(mode="graph"))
    assert clock.warm_up(subject) is None
    x.zero_()
    clock.round([subject])
    assert torch.equal(x, source * 2)


def test_what_cannot_be_captured_fails_alone() -> None:
    """A launch that reads back fails in `graph` mode; all else goes on, random numbers too."""
    values = torch.ones(16, device="cuda")
    reads_back = Subject(Config({}), lambda: values.sum().item(), lambda: None)
    clock = GpuClock(TimingPolicy(mode="graph"))
    failure = clock.warm_up(reads_back)
    assert isinstance(failure, Failure)
    assert failure.kind == "capture"
    assert torch.randn(4, device="cuda").isfinite().all()
    subject = added(MIDDLING)
    assert clock.warm_up(subject) is None
    assert clock.round([subject])[0] > 1
