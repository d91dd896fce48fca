"""Stopwatch of a program's operations: runs them, times them, and saves their results.

A program hands its operations to `main`, which reads the command line:

    python PROGRAM FOLDER [--device cuda] [--small]

It does one request at a time, which come as lines of JSON on stdin; each answer is a line on
stdout, where nothing else is printed. So two processes can measure in turns. FOLDER/NAME.pt has the
outputs of an operation's first call and of a later one. `--device cpu --small` is a dry run, under
Triton's interpreter where the operations are kernels. Nothing here knows who tunes the kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import torch

SLEEP_CYCLES: Final = 40_000_000
"""The GPU is kept busy for about 20 ms while the host queues launches, so that events then tell
the time of the kernels alone."""

ROUNDS: Final = 12
"""Rounds of a steady measurement; their medians are reported."""

QUEUED_S: Final = 0.015
"""Host seconds of launches that are queued in one round, inside the sleep's 20 ms."""

BURST_S: Final = 0.06
"""Seconds of calls in a row in one round."""

MOST_CALLS: Final = 20

Outputs = Mapping[str, torch.Tensor]
Call = Callable[[], Outputs]


@dataclass(frozen=True)
class Place:
    """Place and size of an operation: its device, and the real or the dry run's.

    Attributes:
        device: "cuda", or "cpu" for a dry run under Triton's interpreter.
        small: sizes of a dry run instead of a model's.
    """

    device: str
    small: bool

    def size(self, whole: int, small: int) -> int:
        """Choose a model's size, or a dry run's."""
        return small if self.small else whole

    def normal(self, *shape: int) -> torch.Tensor:
        """Draw random numbers in bf16."""
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16)


Operation = Callable[[Place], Call]


class Stopwatch:
    """Operations whose inputs stay alive after their first call, so that rounds can follow.

    Args:
        operations: functions by name; each makes its inputs, seeded alike, and returns the call to
            time.
        place: where they run.
        folder: folder for the outputs.
    """

    def __init__(self, operations: Mapping[str, Operation], place: Place, folder: Path) -> None:
        self._operations, self._place, self._folder = operations, place, folder
        self._calls: dict[str, Call] = {}
        self._first: dict[str, Outputs] = {}

    def first(self, name: str) -> dict[str, Any]:
        """Time the first call, tuning and compiles included, by the wall clock."""
        torch.manual_seed(0)
        call = self._calls[name] = self._operations[name](self._place)
        self._wait()
        start = time.perf_counter()
        outputs = call()
        self._wait()
        first_s = time.perf_counter() - start
        self._first[name] = _kept(outputs)
        print(f"operation {name}: first call {first_s:.2f} s", flush=True)
        return {"first_s": round(first_s, 4)}

    def plan(self, name: str) -> dict[str, int]:
        """Choose how many calls a round has, and how many of them the host queues in the sleep.

        Returns:
            `calls` in a row; `queued`, 0 where the host is late even with one: a call that waits
            for the GPU cannot be queued.
        """
        call = self._calls[name]
        if self._place.device != "cuda":
            return {"calls": 1, "queued": 0}
        queueing_s = min(self._seconds(call, synchronised=False) for _ in range(5))
        call_s = min(self._seconds(call, synchronised=True) for _ in range(3))
        calls = max(1, min(MOST_CALLS, int(BURST_S / call_s)))
        queued = max(1, min(calls, int(QUEUED_S / queueing_s)))
        while queued and _queued_us(call, queued) is None:
            queued //= 2
        return {"calls": calls, "queued": queued}

    def round(self, name: str, calls: int, queued: int) -> dict[str, Any]:
        """Time calls in a row, in microseconds a call: host and GPU, and the GPU alone.

        The GPU's time is that of queued calls, or of the trace of calls that cannot be queued. It
        is never above the time of calls in a row: the GPU has done all its work in that.

        Returns:
            `call_us`; on a GPU `gpu_us`, and `gpu_by`: "queue", "trace", or "calls" in a row.
        """
        call = self._calls[name]
        call()  # brings the GPU back to this process, and its clock up
        self._wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        self._wait()
        call_us = (time.perf_counter() - start) / calls * 1e6
        if self._place.device != "cuda":
            return {"call_us": call_us}
        gpu_us, by = _gpu_us(call, calls, queued)
        if gpu_us is None or gpu_us > call_us:
            gpu_us, by = call_us, "calls"
        return {"call_us": call_us, "gpu_us": gpu_us, "gpu_by": by}

    def save(self, name: str) -> dict[str, Any]:
        """Save the outputs of the first call and of one more."""
        saved = {"first": self._first[name], "last": _kept(self._calls[name]())}
        torch.save(saved, self._folder / f"{name}.pt")
        return {}

    def _seconds(self, call: Call, *, synchronised: bool) -> float:
        self._wait()
        start = time.perf_counter()
        call()
        if synchronised:
            self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self._place.device == "cuda":
            torch.cuda.synchronize()


def main(operations: Mapping[str, Operation]) -> None:
    """Serve requests for operations, functions by name as `Stopwatch` takes them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    place = Place(options.device, options.small)
    # Whatever else prints, compilers included, prints to stderr.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _serve(Stopwatch(operations, place, options.folder), answers)


def _serve(stopwatch: Stopwatch, answers: TextIO) -> None:
    """Answer requests of a method and its arguments, until "end" or until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "end":
            return
        answer = getattr(stopwatch, request.pop("do"))(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Take the medians of rounds, and the ways in which the GPU's time was taken in them."""
    times = [key for key in ("call_us", "gpu_us") if key in rounds[0]]
    result: dict[str, Any] = {
        key: round(statistics.median(row[key] for row in rounds), 2) for key in times
    }
    if "gpu_us" in result:
        result["gpu_by"] = sorted({row["gpu_by"] for row in rounds})
    return result


def _gpu_us(call: Call, calls: int, queued: int) -> tuple[float | None, str]:
    """Time the GPU alone in one round; None where neither the queue nor the trace tells it."""
    while queued:
        gpu_us = _queued_us(call, queued)
        if gpu_us is not None:
            return gpu_us, "queue"
        queued //= 2  # the host was late this once: less work fits
    return _traced_us(call, calls), "trace"


def _queued_us(call: Call, calls: int) -> float | None:
    """Time calls that the host queues while the GPU sleeps; None if the sleep ended before.

    A late host makes the GPU wait between kernels, and the events then tell the host's time:
    FlagGems' cross entropy, which waits for the GPU in each call, so took 913 us of "GPU time"
    where calls in a row took 792.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP_CYCLES)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    late = begin.query()
    end.synchronize()
    return None if late else begin.elapsed_time(end) / calls * 1e3


def _traced_us(call: Call, calls: int) -> float | None:
    """Add up the time in which any kernel or copy of some calls ran; None without a trace."""
    from torch.profiler import ProfilerActivity, profile, supported_activities

    if ProfilerActivity.CUDA not in supported_activities():
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    on_gpu = (row for row in trace.events() if row.device_type == torch.autograd.DeviceType.CUDA)
    busy = busy_us((row.time_range.start, row.time_range.end) for row in on_gpu)
    return busy / calls if busy else None


def busy_us(spans: Iterable[tuple[float, float]]) -> float:
    """Add up spans of time; what several cover counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _kept(outputs: Outputs) -> Outputs:
    return {name: value.detach().cpu() for name, value in outputs.items()}


def gradients(
    output: torch.Tensor, inputs: Mapping[str, torch.Tensor], upstream: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Compute the gradient of each input, named `d` and the input's name."""
    names: Sequence[str] = list(inputs)
    grads = torch.autograd.grad(output, [inputs[name] for name in names], upstream)
    return {f"d{name}": value for name, value in zip(names, grads, strict=True)}
