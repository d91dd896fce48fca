"""The ladder on CPU tensors, its errors by tolerance, for Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch.nn import functional

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.kernels._conv2d_vendor import Window
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.ladder import attention, conv, gemm, others
from benchmarks.ladder.__main__ import other_errors
from tests.kernels.accuracy import launched_with, module_of

SIZES = ((1, 1, 1), (17, 33, 65), (5, 30, 0), (0, 4, 4), (35, 3, 50))
SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16}
MANY_TILES = {
    "v1": ((gemm.tiled, {}),),
    "v2": ((gemm.pipelined, {"GROUP_M": 2}), (gemm.pipelined, {"GROUP_M": 9})),
}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}

Case = tuple[str, torch.Tensor, torch.Tensor]


def cases(steps: Sequence[str], dtype: str, m: int, n: int, k: int) -> Iterator[Case]:
    """Each step, the tiled ones with many tiles as well, with what is exact."""
    kind = torch_dtype(dtype)
    a, b, bias = (torch.randn(extents).to(kind) for extents in ((m, k), (k, n), (n,)))
    exact = a.double() @ b.double()
    for step in steps:
        if step != "v4":
            yield step, getattr(gemm, step)(a, b), exact
        for name, function in ACTIVATIONS.items() if step == "v4" else ():
            yield f"v4 {name}", gemm.v4(a, b, bias, name), function(exact + bias.double())
        for kernel, more in MANY_TILES.get(step, ()):
            c = gemm.launched(kernel, gemm.tiles, gemm.arguments(a, b), Config({**SMALL, **more}))
            yield f"{step} by many tiles {more}", c, exact


def odd(steps: Sequence[str], dtype: str) -> Iterator[Case]:
    """NaN and infinity in A, and NaN in the bias, stay in their rows and columns."""
    a, b = torch.randn(20, 24).to(torch_dtype(dtype)), torch.randn(24, 18).to(torch_dtype(dtype))
    a[3, 5], a[7, 2] = float("nan"), float("inf")
    exact = a.double() @ b.double()
    bias = torch.randn(18).to(a.dtype)
    bias[4] = float("nan")
    for step in steps:
        if step == "v4":
            fused = functional.relu(exact + bias.double())
            yield "v4 odd values", gemm.v4(a, b, bias, "relu"), fused
        elif step != "v3":  # the same kernel as v2
            yield f"{step} odd values", getattr(gemm, step)(a, b), exact


@exact_floats()
def errors(dtype: str, steps: Sequence[str]) -> dict[str, float]:
    """Return the error of every comparison of some steps with a dtype."""
    made = {f"{size}": list(cases(steps, dtype, *size)) for size in SIZES}
    made["odd"] = list(odd(steps, dtype))
    # JSON has no infinity.
    return {
        f"{name} at {size}": min(excess(got, want), 1e300)
        for size, rows in made.items()
        for name, got, want in rows
    }


@exact_floats()
def attention_errors(dtype: str) -> dict[str, float]:
    """Return the error of every step of the attention ladder; NaN stays in its rows."""
    found = {}
    for heads, m, n, d in ((2, 70, 100, 16), (1, 1, 1, 16), (1, 64, 128, 32), (1, 5, 65, 16)):
        q, k, v = (torch.randn(heads, rows, d).to(torch_dtype(dtype)) for rows in (m, n, n))
        if heads > 1:
            q[0, 3, 4], k[1, 7, 2] = float("nan"), 30.0
        exact = functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        for step in attention.BETWEEN:
            got = getattr(attention, step)(q, k, v)
            # Weights are rounded, and v0's scores before them.
            rows = {"fp16": "fp16 weights"} if step != "v0" else {"fp16": "bf16 weights"}
            error = min(excess(got, exact, rows), 1e300)
            found[f"{step} of {heads} heads, {m} by {n}, {d}"] = error
    return found


@exact_floats()
def conv_errors(dtype: str) -> dict[str, float]:
    """Return the error of both steps of the convolution ladder, of bias and of ReLU, with NaN."""
    found = {}
    kind, windows = torch_dtype(dtype), (Window.of(1, 1), Window.of((2, 1), (0, 2), (1, 2)))
    for window, (size, channels, filters, taps) in product(
        windows, (((4, 3), 3, 5, (3, 2)), ((3, 2), 5, 66, (1, 1)), ((0, 3), 2, 2, (1, 1)))
    ):
        x = torch.randn(2 if size[0] else 0, max(size[0], 1), size[1], channels).to(kind)
        weight = torch.randn(filters, *taps, channels).to(kind)
        if len(x):
            x[1, 2, 1, 0] = float("nan")
        places = (x.double().permute(0, 3, 1, 2), weight.double().permute(0, 3, 1, 2))
        options = (window.stride, window.padding, window.dilation)
        exact = functional.conv2d(*places, None, *options).permute(0, 2, 3, 1)
        for step in ("v0", "v1"):
            got = getattr(conv, step)(x, weight, window)
            found[f"{step} of {tuple(x.shape)} by {taps}, {window}"] = excess(got, exact)
    y, bias = torch.randn(5, 7, 3).to(kind), torch.randn(3).to(kind)
    y[0, 1, 2], z, grid = float("nan"), torch.empty_like(y), (1,)
    conv.add_bias[grid](y, bias, z, y.numel(), 3, **conv.ROWS.all_kwargs())
    found["bias"] = excess(z, y.double() + bias.double())
    conv.relu[grid](y, z, y.numel(), **conv.ROWS.all_kwargs())
    found["relu"] = excess(z, y.double().relu())
    return {what: min(error, 1e300) for what, error in found.items()}


TINY = {
    "attention": {"heads": 2, "N": 70, "D": 16},
    "conv": {
        "batch": 2, "height": 5, "width": 6, "channels": 16, "filters": 24, "taps": 3, "stride": 2
    },
}  # fmt: skip


@exact_floats()
def timed_errors(name: str) -> dict[str, float]:
    """Return the error of every step as it is timed, at a tiny size; PyTorch's functions run."""
    ladder = others.LADDERS[name]
    problem = ladder.problem(TINY[name], "cpu")
    with launched_with(module_of("conv2d").DEFAULT, "conv2d"):
        found = other_errors(problem, ladder.steps)
    for function in {*ladder.against.values()}:
        assert problem.launches[function]().isfinite().all()
    assert {*problem.launches} == {*ladder.steps, *ladder.against.values()}
    return found
