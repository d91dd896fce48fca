"""The GPU's clock over a simulated queue: what a late host may do to a sample, and to its cost."""

from __future__ import annotations

import random
import sys
from typing import NamedTuple, NoReturn

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.base.errors import MeasureError
from asmtune.core.config import Config
from asmtune.measure.timing.clock import (
    CudaDevice,
    GpuClock,
    Subject,
    _flush_size,
    short_switch_interval,
)
from asmtune.measure.timing.policy import TimingPolicy
from tests.simulated_gpu import SimulatedGpu

EVENTS = TimingPolicy()
GRAPH = TimingPolicy(mode="graph")


def launched(gpu: SimulatedGpu, us: float, prepared_us: float = 0.0) -> Subject:
    """A subject that takes so long on a simulated GPU, and so long to prepare there."""

    def prepare() -> None:
        if prepared_us:
            gpu.launch("prepare", prepared_us)

    return Subject(Config({"us": us}), lambda: gpu.launch(f"run {us:g}", us), prepare)


@pytest.mark.parametrize("size", [0, 4])
def test_a_flush_writes_the_whole_buffer(size: int) -> None:
    """Every byte that is to evict the caches is written; without a buffer nothing is queued."""
    device = CudaDevice.__new__(CudaDevice)
    device._buffer = buffer = torch.ones(size, dtype=torch.int8)
    before = buffer._version
    device.flush()
    assert (buffer._version > before, bool(buffer.any())) == (size > 0, False)


def awake(gpu: SimulatedGpu, policy: TimingPolicy = EVENTS) -> GpuClock:
    """A clock whose first round, which wakes the GPU, is over; and its costs are forgotten."""
    clock = GpuClock(policy, gpu)
    clock.round([launched(gpu, 1.0)])
    gpu.busy_us.clear()
    gpu.begun.clear()
    clock.delayed = 0
    return clock


# ---------------------------------------------------------------- one launch between marks


def test_a_prompt_host_costs_one_flush_a_sample() -> None:
    """Samples are exact and in order; each takes a preparation, a flush and a launch."""
    gpu = SimulatedGpu()
    clock = awake(gpu)
    subjects = [launched(gpu, 30.0), launched(gpu, 2.0, prepared_us=500.0), launched(gpu, 900.0)]
    assert clock.round(subjects) == pytest.approx([30.0, 2.0, 900.0])
    kinds = ["flush", "run 30", "prepare", "flush", "run 2", "flush", "run 900"]
    assert gpu.begun == kinds
    assert clock.delayed == 0


@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.0, 1.0),
    longest=st.floats(1.0, 6000.0),
    times=st.lists(st.floats(1.0, 3000.0), min_size=1, max_size=40),
    flush_us=st.sampled_from([0.0, 15.0, 60.0]),
)
@settings(max_examples=150)
def test_a_late_host_is_never_in_a_sample(
    seed: int, share: float, longest: float, times: list[float], flush_us: float
) -> None:
    """Whatever stalls the host, all but the samples that are counted as delayed are exact."""
    generator = random.Random(seed)
    gpu = SimulatedGpu(flush_us=flush_us)
    clock = awake(gpu)
    gpu.stall = lambda: generator.uniform(0, longest) if generator.random() < share else 0.0
    for _ in range(3):
        clock.delayed = 0
        samples = clock.round([launched(gpu, us) for us in times])
        wrong = [s for s, us in zip(samples, times, strict=True) if abs(s - us) > 1e-6 * us]
        assert len(wrong) <= clock.delayed
        # A late host only adds.
        assert all(s >= us - 1e-6 * us for s, us in zip(samples, times, strict=True))


@pytest.mark.parametrize("stall_us", [70.0, 300.0, 1000.0])
def test_a_busy_thread_is_outwaited(stall_us: float) -> None:
    """With every call held up, samples are exact, and soon taken once only."""
    gpu = SimulatedGpu()
    clock = awake(gpu)
    gpu.stall = lambda: stall_us
    subjects = [launched(gpu, us) for us in (2.0, 30.0, 31.0)]
    for _ in range(10):
        assert clock.round(subjects) == pytest.approx([2.0, 30.0, 31.0])
    assert clock.delayed == 0
    runs = sum(what.startswith("run") for what in gpu.begun)
    assert runs <= 1.7 * 30


def test_retakes_are_bounded() -> None:
    """A host that is always too late costs four takes; the least stands, and is counted."""
    gpu = SimulatedGpu()
    clock = awake(gpu)
    stalls = iter(range(1_000_000, 2_000_000, 1000))
    gpu.stall = lambda: float(next(stalls))
    (sample,) = clock.round([launched(gpu, 30.0)])
    assert [what for what in gpu.begun if what.startswith("run")] == ["run 30"] * 4
    assert clock.delayed == 1
    # What the calls of the first take took between its marks: the start and the launch.
    assert sample == pytest.approx(1_001_000 + 1_002_000 + 2 * gpu.call_us)


def test_one_that_outlasts_every_hold_makes_no_other_late() -> None:
    """Beside launches that take the host 200 ms, one that takes it 600 us is timed without them."""
    gpu = SimulatedGpu()
    clock = awake(gpu)

    def hosted(host_us: float, us: float) -> Subject:
        def run() -> None:
            gpu.host_us += host_us
            gpu.launch(f"run {us:g}", us)

        return Subject(Config({"us": us}), run, lambda: None)

    subjects = [hosted(200_000.0, 5.0), hosted(600.0, 40.0)]
    for order in (subjects, subjects[::-1]):
        clock.delayed = 0
        samples = dict(zip((s.config for s in order), clock.round(order), strict=True))
        assert samples[subjects[1].config] == pytest.approx(40.0)
        assert clock.delayed == 1


# ---------------------------------------------------------------- idle clocks


def test_idle_clocks_are_waited_for() -> None:
    """A GPU that takes 8 ms to come up from idle clocks has done so before the first sample."""
    gpu = SimulatedGpu()
    clock = GpuClock(EVENTS, gpu)
    subject = launched(gpu, 30.0)
    for pause_us in (0.0, 500_000.0, 60_000.0):
        gpu.host_us += pause_us
        woken = gpu.host_us + 8_000
        gpu.slowdown = lambda now_us, woken=woken: 5.0 if now_us < woken else 1.0
        assert clock.round([subject]) == pytest.approx([30.0])


def test_waking_is_bounded_and_not_repeated() -> None:
    """Clocks that stay low cost 20 ms after a pause, and nothing without one."""
    gpu = SimulatedGpu()
    clock = awake(gpu)
    subject = launched(gpu, 30.0)
    gpu.slowdown = lambda _: 2.0
    clock.round([subject])
    assert "hold" not in gpu.busy_us
    gpu.host_us += 1e6
    assert clock.round([subject]) == pytest.approx([60.0])
    assert gpu.busy_us.pop("hold") < 21_000
    gpu.slowdown = lambda _: 1.0
    gpu.host_us += 1e6
    clock.round([subject])
    assert gpu.busy_us["hold"] == pytest.approx(200.0)


# ---------------------------------------------------------------- graphs


def test_a_graph_tells_what_the_launches_add() -> None:
    """Flushes and preparations are in no sample of `graph` mode, and no host delays it."""
    gpu = SimulatedGpu()
    clock = awake(gpu, GRAPH)
    subjects = [launched(gpu, 1.5, prepared_us=40.0), launched(gpu, 300.0)]
    assert [clock.warm_up(subject) for subject in subjects] == [None, None]
    gpu.begun.clear()
    gpu.stall = lambda: 5000.0
    assert clock.round(subjects) == pytest.approx([1.5, 300.0])
    assert gpu.begun.count("run 1.5") == gpu.begun.count("run 300") == GRAPH.launches
    assert gpu.begun.count("prepare") == 2 * GRAPH.launches
    first = gpu.begun.index("run 1.5")
    assert gpu.begun[first - 2 : first + 3] == ["prepare", "flush", "run 1.5", "prepare", "flush"]


def test_a_graph_never_tells_nothing() -> None:
    """Where flushes vary by more than the launches take, a sample is still above zero."""
    gpu = SimulatedGpu()
    clock = awake(gpu, GRAPH)
    subject = launched(gpu, 0.5)
    clock.warm_up(subject)
    begin_us = max(gpu.host_us, gpu.free_us)
    gpu.slowdown = lambda now_us: 1.5 if now_us < begin_us + 100 else 1.0
    assert clock.round([subject]) == [0.01]


def test_what_cannot_be_captured_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `graph` mode it is a failure that says so; by events it is timed."""
    gpu = SimulatedGpu()

    def run() -> None:
        if gpu._captured is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        gpu.launch("run", 5.0)

    subject = Subject(Config({}), run, lambda: None)
    failure = GpuClock(GRAPH, gpu).warm_up(subject)
    assert (failure.stage, failure.kind) == ("launch", "capture")
    assert "not permitted when stream is capturing" in failure.detail
    clock = GpuClock(EVENTS, gpu)
    assert clock.warm_up(subject) is None
    assert clock.round([subject]) == pytest.approx([5.0])


# ---------------------------------------------------------------- warm-up, threads, no GPU


@pytest.mark.parametrize(("warmup_us", "launches"), [(0.0, 1), (2_000.0, 4)])
def test_warming_up_goes_on_as_long_as_asked(warmup_us: float, launches: int) -> None:
    """Launches of 600 us go on until 2 ms are over; what one raises is a failure."""
    gpu = SimulatedGpu()
    clock = GpuClock(TimingPolicy(warmup_us=warmup_us), gpu)
    assert clock.warm_up(finished(gpu, 600.0, after_us=10.0)) is None
    assert gpu.begun == ["prepare", "run", "finish"] * launches
    assert gpu.host_us >= 600.0 * launches

    def refuse() -> NoReturn:
        raise RuntimeError("out of resource: shared memory, Required: 300000")

    failure = clock.warm_up(Subject(Config({}), refuse, lambda: None))
    assert (failure.stage, failure.kind) == ("launch", "shared_memory")


@pytest.mark.parametrize("policy", [EVENTS, GRAPH])
def test_what_comes_after_a_launch_is_not_in_its_sample(policy: TimingPolicy) -> None:
    """A step of 3 ms on the GPU after each launch is done each time, and never timed."""
    gpu = SimulatedGpu()
    clock = awake(gpu, policy) if policy is EVENTS else GpuClock(policy, gpu)
    subjects = [finished(gpu, 20.0), finished(gpu, 40.0)]
    for subject in subjects:
        assert clock.warm_up(subject) is None
    gpu.begun.clear()
    assert clock.round(subjects) == pytest.approx([20.0, 40.0])
    assert gpu.begun.count("finish") == gpu.begun.count("prepare") > 0


def finished(gpu: SimulatedGpu, us: float, after_us: float = 3_000.0) -> Subject:
    """A subject with something to do on the GPU before each launch and after."""
    return Subject(
        Config({"us": us}),
        lambda: gpu.launch("run", us),
        lambda: gpu.launch("prepare", 10.0),
        lambda: gpu.launch("finish", after_us),
    )


def test_threads_take_short_turns_meanwhile() -> None:
    """The interpreter's switch interval is short in a round, and the user's own after it."""
    before = sys.getswitchinterval()
    gpu = SimulatedGpu()
    seen: list[float] = []
    gpu.stall = lambda: seen.append(sys.getswitchinterval()) or 0.0
    GpuClock(EVENTS, gpu).round([launched(gpu, 3.0)])
    assert max(seen) < 1e-4
    assert sys.getswitchinterval() == before
    with pytest.raises(RuntimeError), short_switch_interval():
        raise RuntimeError
    assert sys.getswitchinterval() == before


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a clock says that there is no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasureError, match="timing needs a CUDA GPU"):
        GpuClock(EVENTS)


class L2(NamedTuple):
    """Properties of a device."""

    L2_cache_size: int


@pytest.mark.parametrize(("free_mib", "size_mib"), [(4096, 256), (400, 128), (280, 64), (1, 64)])
def test_the_buffer_is_smaller_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, size_mib: int
) -> None:
    """The buffer leaves room for checks, and is no smaller than the L2."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_mib << 20, 140 << 30))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: L2(50 << 20))
    assert _flush_size(256 << 20) == size_mib << 20
