"""The GPU as a clock sees it, and its implementation with CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from asmtune.base.errors import MeasureError

# More than the SM clock of any GPU so far, so that a hold never ends early.
_CYCLES_PER_US: Final = 3000


class TimingEvent(Protocol):
    """Marks a point in the GPU's queue; `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """Returns whether the GPU has passed it."""
        ...

    def elapsed_time(self, end: Any, /) -> float:
        """Returns the milliseconds from here to a later mark; both were passed."""
        ...


class Device(Protocol):
    """Queues work on a GPU, which runs it in order."""

    def now_us(self) -> float:
        """Returns the host's clock in microseconds."""
        ...

    def mark(self, *, captured: bool = False) -> TimingEvent:
        """Queues a mark; `captured` if it is part of a graph that is being captured."""
        ...

    def flush(self) -> None:
        """Queues work that evicts everything from the caches."""
        ...

    def hold(self, us: float) -> None:
        """Queues a pause of at least this long, in which the GPU is busy with nothing."""
        ...

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures what `body` queues; calling the result queues all of it at once."""
        ...

    def wait(self) -> None:
        """Returns when the queue is empty."""
        ...


class CudaDevice:
    """Uses the CUDA device and stream that are PyTorch's current ones at each call.

    Args:
        flush_bytes: size of the buffer that `flush` writes; at 0 `flush` does nothing.

    Raises:
        MeasureError: there is no GPU, or no room for the buffer.
    """

    def __init__(self, flush_bytes: int) -> None:
        import torch

        if not torch.cuda.is_available():
            raise MeasureError("timing needs a CUDA GPU; PyTorch finds none on this machine")
        self._cuda = torch.cuda
        try:
            self._buffer = torch.empty(flush_bytes, dtype=torch.int8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            free = torch.cuda.mem_get_info()[0]
            raise MeasureError(
                f"no room for the buffer that flushes L2: {flush_bytes >> 20} MiB, and "
                f"{free >> 20} MiB are free on the GPU; free some, or set "
                "TimingPolicy(flush_bytes=...) to no less than the size of its L2"
            ) from error

    def now_us(self) -> float:
        """Returns the host's clock in microseconds."""
        return time.perf_counter() * 1e6

    def mark(self, *, captured: bool = False) -> TimingEvent:
        """Records an event; an external one becomes a node of the graph."""
        event: Any = self._cuda.Event(enable_timing=True, external=captured)  # type: ignore[no-untyped-call]
        event.record()
        return event  # type: ignore[no-any-return]

    def flush(self) -> None:
        """Writes the buffer: 60 us for 256 MiB on an H200."""
        if self._buffer.numel():
            self._buffer.zero_()

    def hold(self, us: float) -> None:
        """Spins on one SM."""
        self._cuda._sleep(int(us * _CYCLES_PER_US))  # type: ignore[no-untyped-call]

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures a CUDA graph; other threads may go on using CUDA meanwhile.

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
        """Waits for the device; errors of what ran are raised here."""
        self._cuda.synchronize()
