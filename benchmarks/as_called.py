"""Public functions against PyTorch's at random shapes, as a program calls them.

    python -m benchmarks.as_called [FUNCTION ...] [--shapes N] [--seed N] [--tune SECONDS]

Needs a GPU. The seed draws the shapes, functions take turns, and the store is empty. A shape has:

    first call        seconds of ours and of PyTorch's; every other shape begins with ours
    not tuned         both clocks, where the first call waits for no tuning
    tuned             both clocks, after the background has finished

The clocks: "wall", a call on an idle GPU until its result is there, and "GPU", its time where the
host is far ahead. Both are given as PyTorch's time over ours: more is faster. Shapes are tuned
until --tune is over; at the others nothing is tuned. A function without alternatives tunes at its
first call. PyTorch's function is one call of eager PyTorch, or two where it has no fused one.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from asmtune.core.records.artifacts import Failure
from asmtune.kernels import vector_add
from asmtune.measure.timing.nvml import NO_GPU, device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.runtime.events import KeyResolved, listening
from asmtune.runtime.misses.background import queue_of
from benchmarks.harness import device_of, empty_caches, parser, raced, table, write
from benchmarks.host_cost import CASES
from tests.kernels.accuracy import module_of

SAMPLES = 30
"""Calls of each way on an idle GPU."""

PATIENCE_S = 90.0
"""Most seconds that the tuning of one shape is waited for."""

Way = Callable[[], Any]
Shape = dict[str, int]


def _between(low: int, high: int) -> Callable[[random.Random], int]:
    """Return a draw that is uniform in the logarithm; a third each are multiples of 1, 8 and 64."""

    def draw(rng: random.Random) -> int:
        extent = int(low * (high / low) ** rng.random())
        step = rng.choice((1, 8, 64))
        return max(low, extent // step * step)

    return draw


_PRODUCT = {"M": _between(16, 8192), "N": _between(64, 16384), "K": _between(64, 8192)}
_ROWS = {"rows": _between(16, 32768), "cols": _between(64, 32768)}


def _product(rng: random.Random) -> Shape:
    return {"batch": 1, **{name: draw(rng) for name, draw in _PRODUCT.items()}}


def _rows(rng: random.Random) -> Shape:
    return {name: draw(rng) for name, draw in _ROWS.items()}


def _heads(rng: random.Random) -> Shape:
    heads, length = rng.choice((4, 8, 16, 28, 32)), _between(64, 8192)
    groups = rng.choice((1, 1, 4))
    extents = {"B": rng.choice((1, 2, 4)), "H": heads, "KV": heads // groups}
    queries = length(rng)
    keys = queries if rng.random() < 0.7 else length(rng)
    causal = int(queries == keys and rng.random() < 0.5)
    return {**extents, "M": queries, "N": keys, "D": rng.choice((64, 128)), "causal": causal}


def _layer(rng: random.Random) -> Shape:
    channels, size = rng.choice(
        ((3, 224), (3, 112), (32, 112), (64, 56), (128, 28), (128, 56), (256, 14), (512, 7))
    )
    image = {"batch": rng.choice((1, 8, 32)), "height": size, "width": size, "channels": channels}
    filters = rng.choice((32, 64, 128, 256))
    taps, stride = rng.choice((1, 3, 5, 7)), rng.choice((1, 2))
    return {**image, "filters": filters, "taps": taps, "stride": stride}


def _gelu(rng: random.Random) -> Shape:
    return {"n": _between(1 << 12, 1 << 27)(rng), "tanh": rng.randint(0, 1)}


DRAWS: dict[str, Callable[[random.Random], Shape]] = {
    **dict.fromkeys(("matmul", "linear"), _product),
    "attention": _heads,
    "conv2d": _layer,
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "cross_entropy"), _rows),
    "gelu": _gelu,
}
"""By public function, what draws its shapes."""


def tasks(names: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, Shape, str]]:
    """Draw functions in turn, each with a shape and a dtype."""
    rng = random.Random(seed)
    for number in range(count):
        name = names[number % len(names)]
        yield name, DRAWS[name](rng), rng.choice(("fp16", "bf16"))


def settled(limit_s: float) -> bool:
    """Wait for the tuning in the background; return whether it has ended."""
    end = time.monotonic() + limit_s
    while any(thread.name == "asmtune-background" for thread in threading.enumerate()):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def row(name: str, shape: Shape, dtype: str, ours_first: bool, is_tuned: bool) -> dict[str, Any]:
    """Measure one shape in the states that it comes to."""
    result: dict[str, Any] = {"function": name, "shape": shape, "dtype": dtype}
    module = module_of(name)
    given = module.inputs(shape, dtype, "cuda")
    ways: dict[str, Way] = {
        "ours": partial(getattr(module, name), **given),
        "torch": CASES[name].vendor(given),
    }
    resolved: list[KeyResolved] = []
    with torch.no_grad(), listening(resolved.append):
        order = list(ways) if ours_first else list(ways)[::-1]
        result["first_s"] = {who: round(_first(ways[who]), 5) for who in order}
        has_waited = bool(resolved)
        if not has_waited:
            result["not tuned"] = clocks(ways, gpu=not is_tuned)
        if has_waited or (is_tuned and settled(PATIENCE_S)):
            result["tuned"] = clocks(ways)
    return {**result, "how": [event.how for event in resolved]}


def _first(way: Way) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    way()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def clocks(ways: Mapping[str, Way], gpu: bool = True) -> dict[str, Any]:
    """Time both ways by both clocks; give microseconds, and PyTorch's time over ours."""
    for way in ways.values():
        for _ in range(6):  # until a call is prepared
            way()
    samples: dict[str, list[float]] = {who: [] for who in ways}
    for _ in range(SAMPLES):
        for who, way in ways.items():
            samples[who].append(_first(way) * 1e6)
    figures: dict[str, Any] = {"wall_us": {w: statistics.median(s) for w, s in samples.items()}}
    if gpu:
        outcomes = raced(ways, TimingPolicy())
        figures["gpu_us"] = {
            who: None if isinstance(one, Failure) else one.median_us
            for who, one in outcomes.items()
        }
    for kind in [name.removesuffix("_us") for name in figures]:
        of = figures[f"{kind}_us"]
        if all(of.values()):
            figures[kind] = round(of["torch"] / of["ours"], 3)
    return figures


def document(data: Mapping[str, Any]) -> str:
    """Tabulate by function: first calls, and PyTorch's time over ours, its mean and its worst."""
    lines = []
    for name in data["functions"]:
        rows = [one for one in data["rows"] if one["function"] == name]
        over = [one["first_s"]["ours"] - one["first_s"]["torch"] for one in rows]
        if not rows:
            continue
        cells = [f"`{name}`", str(len(rows)), f"{statistics.median(over) * 1e3:.1f}"]
        cells.append(f"{max(over) * 1e3:.1f}")
        for state in ("not tuned", "tuned"):
            for kind in ("wall", "gpu"):
                ratios = [one[state][kind] for one in rows if kind in one.get(state, ())]
                shown = "-"
                if ratios:
                    mean, worst = statistics.geometric_mean(ratios), min(ratios)
                    under = sum(ratio < 0.97 for ratio in ratios)
                    shown = f"{mean:.2f} ({worst:.2f}; {under} of {len(ratios)})"
                cells.append(shown)
        lines.append(cells)
    heads = [f"{device_of(data)}: function", "shapes", "first call over PyTorch's, ms", "at most"]
    heads += [f"{state}, {kind}" for state in ("not tuned", "tuned") for kind in ("wall", "GPU")]
    return table(heads, lines)


def record(names: Sequence[str], count: int, seed: int, tune_s: float, output: Path) -> None:
    """Measure all shapes; a run that is cut leaves those before."""
    results: dict[str, Any] = {"functions": list(names), "seed": seed, "samples": SAMPLES}
    results |= {"tune_s": tune_s, "rows": []}
    # Modules, libraries, CUDA's context and the launcher's C part, at a shape of no task.
    tensor = torch.ones(1 << 20, device="cuda")
    vector_add.vector_add(tensor, tensor)
    for name in names:
        module = module_of(name)
        with torch.no_grad():
            CASES[name].vendor(module.inputs(module.SHAPES[0], "fp16", "cuda"))()
    end, is_tuned = time.monotonic() + tune_s, True
    for number, task in enumerate(tasks(names, count, seed)):
        if is_tuned and time.monotonic() > end:
            is_tuned = False
            queue_of(device_name()).stop()
        results["rows"].append(row(*task, ours_first=number % 2 == 0, is_tuned=is_tuned))
        print(number, results["rows"][-1], flush=True)
        write(output, results)
        torch.cuda.empty_cache()
    print(document(write(output, results)), flush=True)


def main() -> None:
    """Measure, write and print."""
    arguments = parser(__doc__, "as_called.json")
    arguments.add_argument("functions", nargs="*", help=f"of {', '.join(DRAWS)}")
    arguments.add_argument("--shapes", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=44)
    arguments.add_argument("--tune", type=float, default=600.0, help="seconds of tuned shapes")
    options = arguments.parse_args()
    unknown = sorted(set(options.functions) - set(DRAWS))
    if unknown:
        arguments.error(f"unknown function {unknown[0]!r}: one of {', '.join(DRAWS)}")
    if not torch.cuda.is_available():
        sys.exit(f"benchmarks.as_called needs a CUDA GPU; {NO_GPU}")
    with empty_caches():
        names = options.functions or list(DRAWS)
        record(names, options.shapes, options.seed, options.tune, options.output)


if __name__ == "__main__":
    main()
