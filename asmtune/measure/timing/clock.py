"""The clock: samples of launches on a GPU, with cold caches and without the host's delays."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from asmtune.base.deadline import ProcessSetting
from asmtune.base.errors import MemoryShortError, NoGpuError
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.memory import CHECK_BYTES, free_bytes
from asmtune.measure.timing.policy import TimingPolicy

# More than the SM clock of any GPU so far, so that a hold never ends early.
_CYCLES_PER_US: Final = 3000


class TimingEvent(Protocol):
    """Marks a point in the GPU's queue; `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """Return whether the GPU has passed it."""

    def elapsed_time(self, end: Any, /) -> float:
        """Return the milliseconds from here to a later mark; both were passed."""


class CudaDevice:
    """Queues work on the CUDA device and stream that are PyTorch's current ones at each call.

    Args:
        flush_bytes: size of the buffer that `flush` writes; at 0 `flush` does nothing. Where
            memory is short, the buffer is smaller, but no smaller than the L2.

    Raises:
        NoGpuError: there is no GPU.
        MemoryShortError: there is no room for the buffer.
    """

    def __init__(self, flush_bytes: int) -> None:
        import torch

        if not torch.cuda.is_available():
            raise NoGpuError("timing needs a CUDA GPU; PyTorch finds none on this machine")
        self._cuda = torch.cuda
        try:
            size = _flush_size(flush_bytes) if flush_bytes else 0
            self._buffer = torch.empty(size, dtype=torch.int8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            free = torch.cuda.mem_get_info()[0]
            raise MemoryShortError(
                f"no room for the buffer that flushes L2: {flush_bytes >> 20} MiB, and "
                f"{free >> 20} MiB are free on the GPU; free some, or set "
                "TimingPolicy(flush_bytes=...) to no less than the size of its L2"
            ) from error

    def now_us(self) -> float:
        """Return the host's clock in microseconds."""
        return time.perf_counter() * 1e6

    def mark(self, *, captured: bool = False) -> TimingEvent:
        """Queue a mark; `captured` if it is to become a node of a graph."""
        event: Any = self._cuda.Event(enable_timing=True, external=captured)  # type: ignore[no-untyped-call]
        event.record()
        return event  # type: ignore[no-any-return]

    def flush(self) -> None:
        """Queue a write of the buffer, which evicts the caches: 60 us for 256 MiB on an H200."""
        if self._buffer.numel():
            self._buffer.zero_()

    def hold(self, us: float) -> None:
        """Queue a pause of at least this long, in which one SM spins."""
        self._cuda._sleep(int(us * _CYCLES_PER_US))  # type: ignore[no-untyped-call]

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Capture what `body` queues; calling the result queues all of it at once.

        Other threads may go on using CUDA meanwhile.
        A failed capture leaves PyTorch's generator of random numbers unusable (2.11: "Offset
        increment outside graph capture"), so it gets a new state then.
        """
        graph: Any = self._cuda.CUDAGraph()
        generator: Any = self._cuda.default_generators[self._cuda.current_device()]
        spare = generator.clone_state()
        try:
            with self._cuda.graph(graph, capture_error_mode="thread_local"):
                body()
        except RuntimeError:
            generator.graphsafe_set_state(spare.graphsafe_get_state())
            raise
        return graph.replay  # type: ignore[no-any-return]

    def wait(self) -> None:
        """Wait for the device; errors of what ran are raised here."""
        self._cuda.synchronize()


def _flush_size(wanted: int) -> int:
    """Halve a size until the GPU has room for it beside checks, down to that of its L2."""
    import torch

    least = int(getattr(torch.cuda.get_device_properties("cuda"), "L2_cache_size", 0)) or wanted
    room, size = free_bytes() - CHECK_BYTES, wanted
    while size > room and size // 2 >= least:
        size //= 2
    return size


_switch_interval: Final = ProcessSetting(sys.getswitchinterval, sys.setswitchinterval, within=2e-5)


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Make Python's threads take turns every 20 us, not every 5 ms, within the context.

    Each call into CUDA releases the interpreter. If another thread is busy, this one gets it back
    only after that thread's turn. Contexts may nest, also over threads.
    """
    with _switch_interval.changed():
        yield


_RETAKES: Final = 3
_BATCH: Final = 64
"""Subjects queued before the host waits; CUDA's queue holds about a thousand launches."""

_LEAST_LEAD_US: Final = 50.0
_MOST_HOLD_US: Final = 50_000.0
_PAUSE_US: Final = 20_000.0
_WAKE_US: Final = 20_000.0
_PROBE_US: Final = 100.0


@dataclass(frozen=True)
class Graph:
    """Holds a CUDA graph of a subject's launches, after the same work without them.

    Attributes:
        replay: queues the whole graph.
        marks: before the part without launches, between the two parts, and at the end.
    """

    replay: Callable[[], None]
    marks: tuple[TimingEvent, TimingEvent, TimingEvent]


@dataclass(eq=False)
class Subject:
    """Holds a candidate that the clock times, and its samples.

    Attributes:
        config: what is timed.
        run: launches once on the current stream. It may be called again in later trials, as long
            as the config is the best so far.
        prepare: called before each launch, outside the timed interval.
        finish: called after each launch, outside the timed interval, while it may still run.
        always: stays to the end however slow it is: the default config.
        samples_us: samples of its last trial or final.
        graph: its captured launches, in `graph` mode.
    """

    config: Config
    run: Callable[[], None]
    prepare: Callable[[], None]
    finish: Callable[[], None] = lambda: None
    always: bool = False
    samples_us: list[float] = field(default_factory=list)
    graph: Graph | None = field(default=None, repr=False)


class Clock(Protocol):
    """Takes the samples of a race."""

    def warm_up(self, subject: Subject) -> Failure | None:
        """Load a subject and run it once; return why it cannot."""

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Take one sample of each in microseconds, in this order."""


class GpuClock:
    """Times launches on PyTorch's current CUDA device and stream.

    Before each launch a flush of L2 keeps the GPU busy while the host queues the launch between two
    marks. If the GPU passed the first mark before the second was queued, the host may have been
    late (another thread held the interpreter, up to 5 ms). The sample is then taken again, with the
    GPU held back for as long as the host seems to need: beside the other late ones, then alone,
    since launches that outlast any hold make the next one late. After three such retakes the
    smallest sample counts: a late host can only add time.

    Attributes:
        delayed: number of samples for which the host was late in every take.

    Raises:
        MeasureError: there is no GPU, or no room for the buffer that flushes L2.
    """

    def __init__(self, policy: TimingPolicy, device: CudaDevice | None = None) -> None:
        self.delayed = 0
        self._policy = policy
        self._device = CudaDevice(policy.flush_bytes) if device is None else device
        self._lead_us = 0.0
        self._ended_us = float("-inf")
        self._quickest_us = float("inf")

    def warm_up(self, subject: Subject) -> Failure | None:
        """Load a subject and run it, once or for `warmup_us`; in `graph` mode capture it."""

        def runs() -> None:
            ends_us = self._device.now_us() + self._policy.warmup_us
            while True:
                subject.prepare()
                subject.run()
                subject.finish()
                self._device.wait()
                if self._device.now_us() >= ends_us:
                    return

        outcome = guarded("launch", runs)
        if isinstance(outcome, Failure):
            return outcome
        if self._policy.mode == "graph" and subject.graph is None:
            captured = guarded("launch", lambda: self._capture(subject))
            if isinstance(captured, Failure):
                # Not timed by events instead: samples of the two modes do not compare.
                return Failure("launch", "capture", f"not in a CUDA graph: {captured.detail}")
            subject.graph = captured
        return None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Take one sample of each in microseconds, in this order.

        Late samples are taken again after the others of their batch of 64.
        """
        take = self._replays if self._policy.mode == "graph" else self._launches
        with short_switch_interval():
            self._wake()
            samples = [
                sample
                for first in range(0, len(subjects), _BATCH)
                for sample in take(subjects[first : first + _BATCH])
            ]
        self._ended_us = self._device.now_us()
        return samples

    def _launches(self, subjects: Sequence[Subject]) -> list[float]:
        """Sample each with marks around one launch; take late samples again a few times."""
        samples = [float("inf")] * len(subjects)
        waiting = list(range(len(subjects)))
        for number in range(1 + _RETAKES):
            batches = [waiting] if number <= 1 else [[place] for place in waiting]
            waiting = []
            for places in filter(None, batches):
                taken = self._take([subjects[place] for place in places])
                for place, (sample, was_late) in zip(places, taken, strict=True):
                    samples[place] = min(samples[place], sample) if was_late else sample
                    waiting += [place] if was_late else []
        self.delayed += len(waiting)
        return samples

    def _take(self, subjects: Sequence[Subject]) -> list[tuple[float, bool]]:
        """Take one sample of each, and whether the host was late; adapt the lead."""
        device = self._device
        hold_us = min(self._lead_us * len(subjects), _MOST_HOLD_US)
        if hold_us:
            device.hold(hold_us)
        began_us = device.now_us()
        marks = []
        for subject in subjects:
            subject.prepare()
            device.flush()
            start = device.mark()
            subject.run()
            end = device.mark()
            marks.append((start, end, start.query()))
            subject.finish()
        host_us = (device.now_us() - began_us) / len(subjects)
        device.wait()
        if any(late for _, _, late in marks):
            self._lead_us = max(2 * self._lead_us, 1.5 * host_us, _LEAST_LEAD_US)
        else:
            self._lead_us = self._lead_us / 2 if self._lead_us > _LEAST_LEAD_US else 0.0
        return [(start.elapsed_time(end) * 1e3, late) for start, end, late in marks]

    def _replays(self, subjects: Sequence[Subject]) -> list[float]:
        """Sample each by its graph, which the host cannot delay."""
        graphs = []
        for subject in subjects:
            if subject.graph is None:
                subject.graph = self._capture(subject)
            subject.graph.replay()
            graphs.append(subject.graph)
        self._device.wait()
        return [self._per_launch_us(graph) for graph in graphs]

    def _per_launch_us(self, graph: Graph) -> float:
        """Return the time that each launch adds; at least a hundredth of a microsecond.

        If flushes of 60 us vary by more than a launch takes, the difference of one sample may be
        0 or less, which no kernel can take.
        """
        first, middle, last = graph.marks
        added_ms = middle.elapsed_time(last) - first.elapsed_time(middle)
        return max(added_ms * 1e3 / self._policy.launches, 0.01)

    def _capture(self, subject: Subject) -> Graph:
        """Capture the work around launches several times, then again with the launches."""
        device, marks = self._device, list[TimingEvent]()

        def body() -> None:
            marks.append(device.mark(captured=True))
            for launched in (False, True):
                for _ in range(self._policy.launches):
                    subject.prepare()
                    device.flush()
                    if launched:
                        subject.run()
                    subject.finish()
                marks.append(device.mark(captured=True))

        replay = device.capture(body)
        first, middle, last = marks
        return Graph(replay, (first, middle, last))

    def _wake(self) -> None:
        """Bring the SM clock up after a pause, in which it falls to a fifth on an H200.

        A hold lasts a number of cycles, so its time shows the clock. Spends up to 20 ms until it is
        as short as the shortest so far.
        """
        device = self._device
        now_us = device.now_us()
        if now_us - self._ended_us < _PAUSE_US:
            return
        known_us, deadline_us = self._quickest_us, now_us + _WAKE_US
        while device.now_us() < deadline_us:
            device.hold(_PROBE_US)  # the host queues the rest meanwhile
            start = device.mark()
            device.hold(_PROBE_US)
            end = device.mark()
            device.wait()
            taken_us = start.elapsed_time(end) * 1e3
            self._quickest_us = min(self._quickest_us, taken_us)
            if taken_us <= 1.03 * known_us < float("inf"):
                return
