"""The attention and the convolution ladder as they are timed, and the tables of their pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import triton
from torch.nn import functional

from asmtune.kernels import conv2d
from asmtune.kernels._conv2d_vendor import Window
from asmtune.runtime.decorator import reconfigure
from benchmarks.harness import RESULTS, between, table
from benchmarks.ladder import attention, conv

Size = Mapping[str, int]
Launch = Callable[[], torch.Tensor]
BEGIN, END = "<!-- times -->\n", "<!-- end of times -->\n"


@dataclass(frozen=True)
class Problem:
    """A problem of a ladder.

    Attributes:
        launches: the steps, then PyTorch's functions, by name.
        exact: the result in float64 by the step's name, and of the name "" for the others.
        tolerances: names of rows of the table of tolerances for results in halves.
        flops: operations of a launch.
    """

    launches: Mapping[str, Launch]
    exact: Mapping[str, torch.Tensor]
    tolerances: Mapping[str, str]
    flops: float


@dataclass(frozen=True)
class Ladder:
    """A ladder that is timed.

    Attributes:
        steps: names of the steps that are checked.
        against: PyTorch's function that a step is held against, by the step.
        sizes: the problems' sizes.
        problem: makes one on a device.
    """

    steps: Sequence[str]
    against: Mapping[str, str]
    sizes: Sequence[Size]
    problem: Callable[[Size, str], Problem]


SDPA: Final = "scaled_dot_product_attention"
CONV, CONV_RELU = "torch conv2d", "torch conv2d, relu_"
THREE, ONE = "v2, bias, ReLU: three kernels", "v2 with bias and ReLU"


def heads(size: Size, device: str) -> Problem:
    """Draw heads in halves, and list attention's steps and PyTorch's function on them."""
    extents = (size["heads"], size["N"], size["D"])
    q, k, v = (torch.randn(extents, device=device).half() for _ in range(3))
    launches: dict[str, Launch] = {
        step: partial(getattr(attention, step), q, k, v) for step in attention.BETWEEN
    }
    # Its fastest kernels take four axes.
    launches[SDPA] = partial(functional.scaled_dot_product_attention, q[None], k[None], v[None])
    scores = q.double() @ k.double().mT * size["D"] ** -0.5
    exact = scores.softmax(-1) @ v.double()
    # v0 rounds scores to halves before it takes exponents.
    tolerances = {"": "fp16 weights", "v0": "bf16 weights"}
    return Problem(launches, {"": exact}, tolerances, 4.0 * q.numel() * size["N"])


def layer(size: Size, device: str) -> Problem:
    """Draw an image in halves, and list convolution's steps and PyTorch's functions on it."""
    given = conv2d.inputs(size, "fp16", device)
    x, weight, bias = given["x"], given["weight"], given["bias"]
    window = Window.of(given["stride"], given["padding"])
    last = [tensor.permute(0, 2, 3, 1) for tensor in (x, weight)]
    options = {"stride": given["stride"], "padding": given["padding"]}
    launches: dict[str, Launch] = {
        step: partial(_filters_first, getattr(conv, step), *last, window) for step in ("v0", "v1")
    }
    implicit = partial(conv2d.conv2d, x, weight, **options)
    launches["v2"] = implicit
    launches[THREE] = partial(_then_two, implicit, bias)
    launches[ONE] = partial(conv2d.conv2d, x, weight, bias, relu=True, **options)
    launches[CONV] = partial(functional.conv2d, x, weight, None, **options)
    launches[CONV_RELU] = lambda: functional.conv2d(x, weight, bias, **options).relu_()
    exact = functional.conv2d(x.double(), weight.double(), None, **options)
    fused = (exact + bias.double()[:, None, None]).relu()
    tolerances = {"": "fp16 sums", THREE: "fp16 recurrent"}
    flops = 2.0 * exact.numel() * weight[0].numel()
    return Problem(launches, {"": exact, THREE: fused, ONE: fused}, tolerances, flops)


def _filters_first(step: Callable[..., torch.Tensor], *given: Any) -> torch.Tensor:
    return step(*given).permute(0, 3, 1, 2)


def _then_two(convolve: Launch, bias: torch.Tensor) -> torch.Tensor:
    """Convolve, then add the bias and apply ReLU by a kernel each."""
    y = convolve().permute(0, 2, 3, 1)
    n, z = y.numel(), torch.empty_like(y)
    grid, config = (triton.cdiv(n, conv.ROWS.kwargs["BLOCK"]),), conv.ROWS.all_kwargs()
    conv.add_bias[grid](y, bias, z, n, len(bias), **config)
    conv.relu[grid](z, y, n, **config)
    return y.permute(0, 3, 1, 2)


def prepare(name: str) -> None:
    """Set PyTorch and asmtune up for timing: cuDNN by its own trials, a quick search of ours."""
    if name == "conv":
        torch.backends.cudnn.benchmark = True
        reconfigure(conv2d, effort="quick", skip_tuning_below_us=None)


LADDERS: Final = {
    "attention": Ladder(
        tuple(attention.BETWEEN),
        dict.fromkeys(attention.BETWEEN, SDPA),
        tuple({"heads": 16, "N": n, "D": dim} for n, dim in ((1024, 64), (4096, 64), (4096, 128))),
        heads,
    ),
    "conv": Ladder(
        ("v0", "v1", "v2", THREE, ONE),
        {**dict.fromkeys(("v0", "v1", "v2"), CONV), THREE: CONV_RELU, ONE: CONV_RELU},
        tuple(conv2d.SHAPES[place] for place in (0, 1, 3)),
        layer,
    ),
}


def file_of(name: str) -> Path:
    """Give the committed results of a ladder."""
    return RESULTS / f"ladder_{name}.json"


def page_of(name: str) -> Path:
    """Give the page of a ladder."""
    return Path(__file__).parents[2] / "docs" / f"ladder_{name}.md"


def rewritten(name: str, text: str, file: Path) -> str:
    """Return a page with the times of a file."""
    content = json.loads(file.read_text())
    return between(text, BEGIN, END, f"\n{times(name, content)}\n\n", page_of(name).name)


def times(name: str, content: Mapping[str, Any]) -> str:
    """Write where the times come from, and a line a step and a size."""
    call = f"`python -m benchmarks.ladder {name}`"
    origin = content["provenance"]
    said = (
        f"{origin['device']}, Triton {origin['triton']}, PyTorch {origin['torch']}, "
        f"{origin['date'][:10]}: halves, L2 cold, p50 of interleaved launches by {call} "
        f"([{file_of(name).name}](../benchmarks/results/{file_of(name).name}))."
    )
    headings = ("size", "step", "time, us", "TFLOP/s", "speed by PyTorch's")
    lines: list[tuple[str, ...]] = []
    for row in content["rows"]:
        size = " ".join(f"{key}={value}" for key, value in row["size"].items())
        lines += [(size, *cells) for cells in _cells(name, row)]
    return f"{said}\n\n{table(headings, lines)}"


def _cells(name: str, row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    against, found = LADDERS[name].against, row.get("times", {})
    p50 = {step: figures["p50_us"] for step, figures in found.items() if "p50_us" in figures}
    return [
        (
            step,
            f"{us:.1f}",
            f"{row['flops'] / us / 1e6:.1f}",
            f"{p50[other] / us:.2g}" if (other := against.get(step, step)) in p50 else "-",
        )
        for step, us in p50.items()
    ]
