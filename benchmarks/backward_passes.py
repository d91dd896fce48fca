"""Backward passes that no kernel's row has: conv2d's and the GRU's, against cuDNN's.

    python -m benchmarks.backward_passes [conv2d|gru] [--rounds N] [--seconds N] [--output FOLDER]

Needs a GPU. Each gradient is compared with float64 first. It may be off by the tolerance, or by
twice as much as cuDNN's own, whose states are rounded as ours; what is further off is not timed,
and the exit status is 1. Then forward with backward and backward alone are timed, interleaved, L2
cold, p50. What is not tuned yet is tuned by the effort "quick", some 8 s a kernel; no problem
begins after this number of seconds. Each function's file is written after each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from asmtune.core.records.tuned import Measurement
from asmtune.kernels import _conv2d_bias, _gru_backward, conv2d, gru
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.runtime.decorator import reconfigure
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.harness import Ways, device_of, parser, raced, table, until, write

Shape = Mapping[str, int]
Tensors = Mapping[str, torch.Tensor]
Forward = Callable[[Tensors], torch.Tensor]

OF_CUDNN: Final = 2.0
"""Multiple of cuDNN's own error that a gradient may have where that is above the tolerance."""


def _layer(size: int, channels: int, taps: int, groups: int = 1) -> Shape:
    image = {"batch": 32, "height": size, "width": size, "channels": channels}
    return {**image, "filters": channels, "taps": taps, "stride": 1, "groups": groups}


def _steps(seq: int, batch: int, hidden: int) -> Shape:
    return {"seq": seq, "batch": batch, "input": hidden, "hidden": hidden}


PROBLEMS: Final = (
    ("conv2d", _layer(56, 64, 3)),
    ("gru", _steps(512, 16, 256)),
    ("conv2d", _layer(28, 256, 3, groups=8)),
    ("gru", _steps(256, 64, 512)),
    ("conv2d", _layer(14, 256, 3)),
)

TUNED: Final = (conv2d, _conv2d_bias, gru, _gru_backward)
"""Modules whose kernels are tuned for these problems, however small they are."""

TOLERANCES: Final = {"conv2d": {"fp16": "fp16 weights"}, "gru": {"fp16": "fp16 recurrent"}}


def forwards(name: str, shape: Shape) -> tuple[Forward, Forward]:
    """Return the forward pass by asmtune and by PyTorch, of tensors by name."""
    if name == "gru":
        return _gru, _torch_gru
    options = {"stride": shape["stride"], "padding": shape["taps"] // 2}
    options["groups"] = shape["groups"]
    return partial(_called, conv2d.conv2d, options), partial(_called, functional.conv2d, options)


def _called(function: Any, options: Mapping[str, int], given: Tensors) -> torch.Tensor:
    y: torch.Tensor = function(**_named(function, given), **options)
    return y


def _named(function: Any, given: Tensors) -> dict[str, torch.Tensor]:
    """Name the image as PyTorch does."""
    is_ours = function is conv2d.conv2d
    return {name if is_ours or name != "x" else "input": t for name, t in given.items()}


def _gru(given: Tensors) -> torch.Tensor:
    return gru.gru(**given)[0]


def _torch_gru(given: Tensors) -> torch.Tensor:
    """Call PyTorch's function of `torch.nn.GRU`: one layer, one direction, in training."""
    weights = [given[name] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    settings = (True, 1, 0.0, True, False, False)
    y: torch.Tensor = torch.gru(given["x"], given["h0"][None], weights, *settings)[0]
    return y


def operands(name: str, shape: Shape, device: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Draw the tensors that get gradients, and the result's gradient, in halves."""
    module = conv2d if name == "conv2d" else gru
    given = module.inputs(shape, "fp16", device)
    leaves = {n: t.requires_grad_() for n, t in given.items() if isinstance(t, torch.Tensor)}
    if name == "gru":
        leaves |= _in_a_row(leaves)
    return leaves, torch.randn_like(forwards(name, shape)[1](leaves).detach())


def _in_a_row(given: Tensors) -> dict[str, torch.Tensor]:
    """Move the weights to one piece of memory: else cuDNN copies them there at each call."""
    weight = given["weight_ih"]
    layer = torch.nn.GRU(weight.shape[1], weight.shape[0] // 3)
    layer = layer.to(device=weight.device, dtype=weight.dtype)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = {name: getattr(layer, f"{name}_l0") for name in names}
    with torch.no_grad():
        for name, moved in weights.items():
            moved.copy_(given[name])
    layer.flatten_parameters()
    return weights


def gradients(forward: Forward, leaves: Tensors, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute a forward and a backward pass."""
    return torch.autograd.grad(forward(leaves), list(leaves.values()), dy)


def errors(name: str, shape: Shape, leaves: Tensors, dy: torch.Tensor) -> dict[str, Any]:
    """Compute the error by tolerance of each gradient, ours and PyTorch's, against float64."""
    exact = {n: t.detach().double().requires_grad_() for n, t in leaves.items()}
    plain = (lambda given: gru.baseline(**given)[0]) if name == "gru" else forwards(name, shape)[1]
    wanted = gradients(plain, exact, dy.double())
    found = {}
    for who, forward in zip(("ours", "torch"), forwards(name, shape), strict=True):
        pairs = zip(gradients(forward, leaves, dy), wanted, strict=True)
        each = [min(excess(got, want, TOLERANCES[name]), 1e300) for got, want in pairs]
        found[who] = dict(zip(leaves, each, strict=True))
    return found


def is_right(found: Mapping[str, Mapping[str, float]]) -> bool:
    """Say if each gradient of ours is within the tolerance, or near PyTorch's own error."""
    return all(
        error <= max(1.0, OF_CUDNN * found["torch"][name]) for name, error in found["ours"].items()
    )


def launches(
    name: str, shape: Shape, leaves: Tensors, dy: torch.Tensor
) -> dict[str, Callable[[], Any]]:
    """List what is timed: forward with backward, then backward alone, by both."""
    ways: dict[str, Callable[[], Any]] = {}
    for who, forward in zip(("ours", "torch"), forwards(name, shape), strict=True):
        ways[f"{who}, forward and backward"] = partial(gradients, forward, leaves, dy)
        grad = partial(torch.autograd.grad, forward(leaves), list(leaves.values()), dy)
        ways[f"{who}, backward"] = partial(grad, retain_graph=True)
    return ways


def timed(ways: Ways, policy: TimingPolicy) -> dict[str, dict[str, Any]]:
    """Measure microseconds and samples of each launch, or its error."""
    times: dict[str, dict[str, Any]] = {}
    for name, outcome in raced(ways, policy).items():
        if isinstance(outcome, Measurement):
            median = round(outcome.median_us, 3)
            times[name] = {"p50_us": median, "samples": len(outcome.samples_us)}
        else:
            times[name] = {"failed": outcome.detail}
    return times


def row(name: str, shape: Shape, policy: TimingPolicy, device: str = "cuda") -> dict[str, Any]:
    """Check a problem and, if it is right, time it."""
    torch.manual_seed(0)
    leaves, dy = operands(name, shape, device)
    found: dict[str, Any] = {"function": name, "shape": dict(shape)}
    start = time.perf_counter()
    found["error_by_tolerance"] = errors(name, shape, leaves, dy)
    found["first_calls_s"] = round(time.perf_counter() - start, 1)
    if not is_right(found["error_by_tolerance"]):
        return {**found, "wrong": True}
    found["times"] = timed(launches(name, shape, leaves, dy), policy)
    for phase in ("forward and backward", "backward"):
        ours, theirs = (
            found["times"][f"{who}, {phase}"].get("p50_us") for who in ("ours", "torch")
        )
        if ours and theirs:
            found[f"{phase}, over torch"] = round(theirs / ours, 3)
    return found


def record(
    problems: Sequence[tuple[str, Shape]], policy: TimingPolicy, seconds: float, folder: Path
) -> bool:
    """Measure problems until the time is over, print and write them; say if all are right."""
    rows: list[dict[str, Any]] = []
    for name, shape in until(problems, seconds, "give more --seconds, or a function"):
        rows.append(row(name, shape, policy))
        print(json.dumps(rows[-1]), flush=True)
        own = [row for row in rows if row["function"] == name]
        write(folder / f"backward_{name}.json", {"dtype": "fp16", "rows": own})
    return not any("wrong" in row for row in rows)


def document(*files: Mapping[str, Any]) -> str:
    """Tabulate training steps beside cuDNN's."""
    lines = []
    for data in files:
        for found in data["rows"]:
            sizes = " ".join(f"{size} {n}" for size, n in found["shape"].items())
            passes = ("forward and backward", "backward")
            times = (f"{found['times'][f'ours, {one}']['p50_us']:.0f}" for one in passes)
            speeds = (f"{found[f'{one}, over torch']:.2f}" for one in passes)
            lines.append([found["function"], sizes, device_of(data), *times, *speeds])
    heads = ("function", "sizes", "GPU", "both, us", "backward, us")
    return table((*heads, "both over cuDNN", "backward over cuDNN"), lines)


def main() -> None:
    """Measure, write and print."""
    arguments = parser(__doc__, ".")  # a file for each function, in a folder
    arguments.add_argument("function", nargs="?", choices=("conv2d", "gru"), default=None)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument(
        "--seconds", type=float, default=45.0, help="begin no problem after these"
    )
    options = arguments.parse_args()
    torch.backends.cudnn.benchmark = True
    for module in TUNED:
        reconfigure(module, skip_tuning_below_us=None, effort="quick", on_miss="tune")
    problems = [one for one in PROBLEMS if options.function in (None, one[0])]
    policy = TimingPolicy(fine_rounds=options.rounds)
    sys.exit(0 if record(problems, policy, options.seconds, options.output) else 1)


if __name__ == "__main__":
    main()
