"""Host cost of the public functions against PyTorch's, in one process.

    python -m benchmarks.host_cost [FUNCTION ...] [--rounds N] [--output FILE]

Needs a GPU. Each way is called in turns: a round is some dozen calls of each after the queue is
empty, fewer than the queue holds, on problems of a few microseconds, so that the host never waits
for the GPU. Given are medians over the rounds, in microseconds of one call: forward, forward where
a gradient is asked for, and forward with backward. "function" is the host function itself,
without its prepared calls. Kernels launch the first config of their spaces, and nothing is tuned.
Forward is measured again with each function that tuning may find faster: a vendor's, or on Hopper a
Gluon kernel, whose launches take tensor descriptors. The file is written after each function.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from asmtune.core.config import Config
from asmtune.measure.timing.nvml import NO_GPU
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import autotuners, reconfigure
from asmtune.runtime.options import numbers
from benchmarks.harness import device_of, empty_caches, host_times, parser, table, write
from tests.kernels.accuracy import case_of, module_of

CALLS = 60
FEWEST = 8
"""Calls before any round: kernels are compiled, and calls prepared."""

FORWARD, RECORDED, BACKWARD = "forward", "forward, gradient asked for", "forward and backward"
AIMS = {FORWARD: 1.2, RECORDED: 1.5, BACKWARD: 1.5}
"""Most of PyTorch's time that ours is to take."""

BY_GLUON = {"matmul": "_hopper_gemm", "linear": "_hopper_gemm", "attention": "_hopper_attention"}
"""Modules of the kernels behind alternatives that are named `gluon`."""

Way = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A public function, PyTorch's of the same arguments, and a problem.

    Attributes:
        shape: sizes, as the kernel's module names them.
        vendor: makes a call of PyTorch's function, with as little around it as can be.
        inputs: those that get gradients; empty without a backward pass.
    """

    shape: Mapping[str, int]
    vendor: Callable[[Mapping[str, Any]], Way]
    inputs: tuple[str, ...] = ()


def _linear(given: Mapping[str, Any]) -> Way:
    x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
    activate = getattr(functional, given["activation"])
    return lambda: activate(functional.linear(x, weight, bias))


def _layer_norm(given: Mapping[str, Any]) -> Way:
    x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
    return partial(functional.layer_norm, x, weight.shape, weight, bias)


def _rms_norm(given: Mapping[str, Any]) -> Way:
    weight = given["weight"]
    return partial(functional.rms_norm, given["x"], weight.shape, weight, 1e-6)


def _attend(given: Mapping[str, Any]) -> Way:
    heads = [given[name] for name in "qkv"]
    how = {"is_causal": given["causal"], "enable_gqa": heads[0].shape[1] != heads[1].shape[1]}
    return partial(functional.scaled_dot_product_attention, *heads, **how)


def _convolve(given: Mapping[str, Any]) -> Way:
    x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
    how = {name: given[name] for name in ("stride", "padding")}
    return lambda: functional.conv2d(x, weight, bias, **how).relu_()


def _gelu(given: Mapping[str, Any]) -> Way:
    return partial(functional.gelu, given["x"], approximate=given["approximate"])


_ROWS = {"rows": 64, "cols": 1024}
_PRODUCT = {"batch": 1, "M": 256, "N": 256, "K": 256}
_IMAGES = {"batch": 1, "height": 14, "width": 14, "channels": 64, "filters": 64, "taps": 3}
_IMAGES |= {"stride": 1}
_HEADS = {"B": 1, "H": 4, "KV": 4, "M": 128, "N": 128, "D": 64, "causal": 1}

CASES = {
    "matmul": Case(_PRODUCT, lambda given: partial(torch.matmul, given["a"], given["b"])),
    "linear": Case(_PRODUCT, _linear),
    "softmax": Case(_ROWS, lambda given: partial(torch.softmax, given["x"], -1)),
    "layernorm": Case(_ROWS, _layer_norm, ("x", "weight", "bias")),
    "rmsnorm": Case(_ROWS, _rms_norm, ("x", "weight")),
    "cross_entropy": Case(
        _ROWS,
        lambda given: partial(functional.cross_entropy, given["logits"], given["target"]),
        ("logits",),
    ),
    "attention": Case(_HEADS, _attend, ("q", "k", "v")),
    "gelu": Case({"n": 1 << 16, "tanh": 0}, _gelu),
    "conv2d": Case(_IMAGES, _convolve),
}


def ways(name: str, device: str) -> dict[str, dict[str, Way]]:
    """List the ways to call a function, by phase: ours, PyTorch's, and the function alone."""
    case, module = CASES[name], module_of(name)
    given = module.inputs(case.shape, "fp16", device)
    public = getattr(module, name)
    phases = {FORWARD: _calls(public, case, given)}
    if case.inputs:
        leaves = {key: given[key].detach().requires_grad_() for key in case.inputs}
        phases[RECORDED] = _calls(public, case, {**given, **leaves})
        phases[BACKWARD] = {
            who: _with_backward(way, list(leaves.values())) for who, way in phases[RECORDED].items()
        }
    return phases


def _calls(public: Any, case: Case, given: Mapping[str, Any]) -> dict[str, Way]:
    return {
        "ours": partial(public, **given),
        "torch": case.vendor(given),
        "function": partial(public.prepared.ordinary, **given),
    }


def _with_backward(way: Way, leaves: list[torch.Tensor]) -> Way:
    gradient = torch.ones_like(way().detach())
    return lambda: torch.autograd.grad(way(), leaves, gradient)


def launch_first_configs(name: str, winner: str | None = None) -> None:
    """Let the kernels of a function and of its backward launch their first config, untuned.

    Where a `winner` is named, the kernels that have such an alternative call it.
    """
    gluon = [import_module(f"asmtune.kernels.{BY_GLUON[name]}")] if winner == "gluon" else []
    for module in (*map(module_of, (name, *case_of(name).also)), *gluon):
        for tuner in autotuners(module):
            first = partial(_first_config, tuner, winner)
            reconfigure(tuner, skip_tuning_below_us=math.inf, fallback=first)


def _first_config(tuner: AsmAutotuner, winner: str | None, arguments: Mapping[str, Any]) -> Config:
    first = tuner.space.first(**numbers(arguments))
    named = winner is not None and winner in (tuner.options.choices.get("alternatives") or {})
    return first.with_alternative(winner) if named else first


def row(name: str, rounds: int, device: str, calls: int) -> dict[str, Any]:
    """Measure a function in all phases, and forward by each winner."""
    host = getattr(module_of(name), name).prepared
    launch_first_configs(name)
    phases = {
        phase: _compared(by_way, phase, rounds, calls)
        for phase, by_way in ways(name, device).items()
    }
    hopper = device == "cuda" and torch.cuda.get_device_capability()[0] == 9
    for winner in host.alternatives:
        if winner != "gluon" or hopper:
            launch_first_configs(name, winner)
            by_way = ways(name, device)[FORWARD]
            phases[f"{FORWARD}, by {winner}"] = _compared(by_way, FORWARD, rounds, calls)
    return {
        "shape": dict(CASES[name].shape),
        **phases,
        "prepared": len(host),
        "refused": list(host.refused),
    }


def _compared(by_way: Mapping[str, Way], phase: str, rounds: int, calls: int) -> dict[str, Any]:
    """Measure all ways; add what ours takes of PyTorch's time."""
    with torch.set_grad_enabled(phase != FORWARD):
        figures: dict[str, Any] = host_times(by_way, rounds, calls, FEWEST)
    ratio = figures["ours"]["median_us"] / figures["torch"]["median_us"]
    return {**figures, "of_torch": round(ratio, 3)}


def document(*files: Mapping[str, Any]) -> str:
    """Tabulate microseconds of a call's host time and its share of PyTorch's, by device."""
    lines = []
    for name in dict.fromkeys(name for data in files for name in data["functions"]):
        measured = [data["functions"].get(name, {}) for data in files]
        known = dict.fromkeys(phase for function in measured for phase in function)
        for phase in (p for p in known if p in AIMS or p.startswith(f"{FORWARD}, by ")):
            cells = [f"`{name}`, {phase}"]
            for figures in (function.get(phase) for function in measured):
                if figures is None:
                    cells += ["-"] * 4
                    continue
                medians = [figures[who]["median_us"] for who in ("ours", "torch", "function")]
                cells += [*(f"{median:.1f}" for median in medians), f"{figures['of_torch']:.2f}"]
            lines.append(cells)
    heads = ["call"]
    for data in files:
        heads += [f"{device_of(data)}: asmtune", "PyTorch", "function", "asmtune / PyTorch"]
    return table(heads, lines)


def record(
    names: Sequence[str], rounds: int, output: Path, device: str = "cuda", calls: int = CALLS
) -> None:
    """Measure functions and print all so far; a run that is cut leaves those before."""
    results: dict[str, Any] = {"rounds": rounds, "calls": calls, "aims": AIMS}
    results |= {"functions": {}}
    for name in names:
        results["functions"][name] = row(name, rounds, device, calls)
        print(document(write(output, results)), flush=True)


def main() -> None:
    """Measure, write and print."""
    arguments = parser(__doc__, "host_cost.json")
    arguments.add_argument("functions", nargs="*", help=f"of {', '.join(CASES)}")
    arguments.add_argument("--rounds", type=int, default=60)
    options = arguments.parse_args()
    unknown = sorted(set(options.functions) - set(CASES))
    if unknown:
        arguments.error(f"unknown function {unknown[0]!r}: one of {', '.join(CASES)}")
    if options.rounds < 2:  # percentiles need two
        arguments.error(f"--rounds {options.rounds}: give 2 or more")
    if not torch.cuda.is_available():
        sys.exit(f"benchmarks.host_cost needs a CUDA GPU; {NO_GPU}")
    with empty_caches():  # what the user has tuned stays out
        record(options.functions or list(CASES), options.rounds, options.output)


if __name__ == "__main__":
    main()
