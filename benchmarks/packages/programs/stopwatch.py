"""Stopwatch of a program's operations: runs them in turn, times them, and saves their results.

A program hands its operations to `main`, which reads the command line:

    python PROGRAM FOLDER [--operations a,b] [--device cuda] [--small]

FOLDER receives `times.json`, written anew after each operation, and `NAME.pt` for each, with the
outputs of its first and of its last call. Nothing here knows who tunes the kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

SLEEP_CYCLES: Final = 40_000_000
"""The GPU is kept busy for about 20 ms while the host queues launches, so that events then tell
the time of the kernels alone; a call that waits for the GPU itself is told with its waiting."""

ROUNDS: Final = 15
"""Rounds of a steady measurement; the median of them is reported."""

QUEUED_S: Final = 0.015
"""Host seconds of launches that are queued in one round, inside the sleep's 20 ms."""

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


def main(operations: Mapping[str, Callable[[Place], Call]]) -> None:
    """Run the operations that the command line names.

    Args:
        operations: functions by name; each makes its inputs, seeded alike, and returns the call to
            time.
    """
    options = _options()
    place = Place(options.device, options.small)
    names = options.operations.split(",") if options.operations else list(operations)
    results: dict[str, Any] = {"operations": {}}
    _write(options.folder, results)
    for name in names:
        torch.manual_seed(0)
        call = operations[name](place)
        began = time.time()
        first_s, first = _timed_first(call, place)
        at = [began, time.time()]
        print(f"operation {name}: first call {first_s:.2f} s", flush=True)
        steady, last = _steady(call) if place.device == "cuda" else ({}, call())
        torch.save({"first": first, "last": _kept(last)}, options.folder / f"{name}.pt")
        results["operations"][name] = {"first_s": round(first_s, 4), "first_at": at, **steady}
        _write(options.folder, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operations", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    return parser.parse_args()


def _timed_first(call: Call, place: Place) -> tuple[float, Outputs]:
    """Time the first call, tuning and compiles included; return its wall clock and result."""
    _wait(place.device)
    start = time.perf_counter()
    outputs = call()
    _wait(place.device)
    return time.perf_counter() - start, _kept(outputs)


def _steady(call: Call) -> tuple[dict[str, float], Outputs]:
    """Time a call once all is tuned, in microseconds: host and GPU, and the GPU alone."""
    calls = max(1, min(20, int(QUEUED_S / min(_enqueued_s(call) for _ in range(5)))))
    walls, kernels = [], []
    for _ in range(ROUNDS):
        walls.append(_wall_us(call, calls))
        kernels.append(_gpu_us(call, calls))
    times = {
        "call_us": round(statistics.median(walls), 2),
        "gpu_us": round(statistics.median(kernels), 2),
        "calls_a_round": calls,
    }
    return times, call()


def _enqueued_s(call: Call) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _wall_us(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def _gpu_us(call: Call, calls: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP_CYCLES)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls * 1e3


def _kept(outputs: Outputs) -> Outputs:
    return {name: value.detach().cpu() for name, value in outputs.items()}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _write(folder: Path, results: Mapping[str, Any]) -> None:
    part = folder / "times.part"
    part.write_text(json.dumps(results))
    part.replace(folder / "times.json")


def gradients(
    output: torch.Tensor, inputs: Mapping[str, torch.Tensor], upstream: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Compute the gradient of each input, named `d` and the input's name."""
    names: Sequence[str] = list(inputs)
    grads = torch.autograd.grad(output, [inputs[name] for name in names], upstream)
    return {f"d{name}": value for name, value in zip(names, grads, strict=True)}
