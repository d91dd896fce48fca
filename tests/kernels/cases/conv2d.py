"""Convolution with bias and ReLU."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.checks import check_kernel
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of

ALSO = ("_conv2d_bias",)
LAST = torch.channels_last
PARTED = Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64, "SPLIT": 3})


def _shape(
    batch: int, image: tuple[int, int], depths: tuple[int, int], taps: int, stride: int = 1
) -> dict[str, int]:
    names = ("batch", "height", "width", "channels", "filters", "taps", "stride")
    return dict(zip(names, (batch, *image, *depths, taps, stride), strict=True))


def laid_out(device: str) -> dict[str, float]:
    """Views that are read in place, copies of other layouts, sizes without pixels, wide margins."""
    module = module_of("conv2d")
    given = module.inputs(_shape(4, (9, 8), (40, 24), 3), "fp16", device)
    x, weight = given.pop("x"), given.pop("weight")
    settings = {"bias": given["bias"], "stride": (2, 1), "padding": (1, 4), "dilation": (1, 2)}
    pairs = {
        "part of an image": (x[:, :, 2:, 1:-1], weight),
        "every other image": (x[::2], weight),
        "one image for all": (x[:1].expand(4, -1, -1, -1), weight),
        "every other pixel": (x[:, :, ::2, ::2], weight),
        "NCHW": (x.contiguous(), weight.contiguous()),
        "some of the channels": (x[:, 8:16], weight[:, 8:16]),
        "odd channels": (x[:, 3:38], weight[:, 3:38]),
        "one channel of many": (x[:, 3:4], weight[:, 3:4]),
        "one pixel": (x[:, :, 4:5, 4:5], weight),
        "uneven taps": (x, weight[:, :, :2]),
        "no image": (x[:0], weight),
    }
    found = {}
    for config in (module.DEFAULT, PARTED):
        for what, (some_x, some_weight) in pairs.items():
            with launched_with(config, "conv2d"):
                got = module.conv2d(some_x, some_weight, **settings)
            exact = {**settings, "bias": given["bias"].double()}
            want = module.baseline(some_x.double(), some_weight.double(), **exact)
            found[f"{what} by {config}"] = excess(got, want)
            # 2 for a result that is not channels_last.
            last = got.is_contiguous(memory_format=torch.channels_last)
            found[f"layout of {what} by {config}"] = 0.0 if last else 2.0
    return found


def few(device: str) -> dict[str, float]:
    """Few channels, whose windows are read by rows: margins, strides, layouts, NaN beside them."""
    module, found = module_of("conv2d"), {}
    ways = {
        "a margin": {"padding": (1, 3)},
        "strides": {"padding": (3, 0), "stride": (1, 3)},
        "taps apart": {"padding": 3, "dilation": (2, 1), "stride": 2},
        "taps apart across": {"padding": 3, "dilation": (1, 2)},
    }
    for place, (channels, taps) in enumerate(((1, 3), (3, 7), (5, 4), (24, 3))):
        given = module.inputs(_shape(2, (8, 11), (channels, 40), taps), "fp16", device)
        x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
        x[1, 0, 4, 5] = float("nan")
        layouts = {"": x, "NCHW": x.contiguous(), "a part": x[:, :, 1:, :-2], "one": x[1:]}
        for (i, (what, settings)), (j, (layout, some_x)) in product(
            enumerate(ways.items()), enumerate(layouts.items())
        ):
            if device == "cpu" and j != (i + place) % len(layouts):
                continue  # the interpreter takes each two of channels, ways and layouts once
            with launched_with(module.DEFAULT, "conv2d"):
                got = module.conv2d(some_x, weight, bias, **settings)
            exact = (tensor.double() for tensor in (some_x, weight, bias))
            name = f"{channels} channels by {taps} taps, {what}, {layout}"
            found[name] = excess(got, module.baseline(*exact, **settings))
    return found


def parted(device: str) -> dict[str, float]:
    """Programs that share tiles: the same bits each time, and counters at 0 after each launch."""
    module = module_of("conv2d")
    given = module.inputs(_shape(2, (6, 6), (96, 40), 3), "fp32", device)
    with launched_with(PARTED, "conv2d"):
        results = [module.conv2d(**given) for _ in range(4)]
    apart = [float(not torch.equal(results[0], other)) * 2 for other in results[1:]]
    problem = module.problem(_shape(2, (6, 6), (96, 40), 3), "fp32", device)
    problem.arguments["sums_ptr"].fill_(float("nan"))
    problem.kernel[problem.grid](**problem.arguments, **PARTED.all_kwargs())
    left = int(problem.arguments["count_ptr"].count_nonzero())
    used = int(problem.arguments["sums_ptr"].isfinite().sum())
    assert used >= 3 * results[0].numel()
    return {"bits": max(apart), "counters": 2.0 * left}


def in_place(device: str) -> dict[str, float]:
    """Check one tap that sees each pixel: in a batch as it lies, in parts of it, in one column."""
    module = module_of("conv2d")
    given = module.inputs(_shape(3, (5, 6), (80, 24), 1), "fp16", device)
    x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
    views = {
        "all": x,
        "some channels": x[:, :40],
        "some rows": x[:, :, 1:4],
        "every other image": x[::2],
        "one image": x[2:],
        "one column": x[..., 2:3],
        "one column of some channels": x[:, :40, :, :1].contiguous(memory_format=LAST)[:, :24],
    }
    found = {}
    for what, view in views.items():
        some = weight[:, : view.shape[1]]
        with launched_with(module.DEFAULT, "conv2d"):
            got = module.conv2d(view, some, bias)
        exact = (tensor.double() for tensor in (view, some, bias))
        found[f"in place, {what}"] = excess(got, module.baseline(*exact))
    return found


def grouped(device: str) -> dict[str, float]:
    """Groups, and gradients: strides past taps, taps apart, odd edges, layouts, NaN, ReLU."""
    ways: list[tuple[int, int, int, dict[str, Any]]] = [
        (2, 40, 3, {"padding": 1}),
        (3, 9, 3, {"padding": (0, 2), "stride": (2, 3), "relu": True}),
        (1, 5, 2, {"stride": 3, "padding": 1}),
        (1, 34, 3, {"stride": (4, 2), "dilation": (2, 3), "padding": (2, 3), "relu": True}),
        (6, 6, 1, {"stride": 2, "padding": 1}),
        (2, 8, 3, {"stride": 2, "dilation": 2, "padding": (4, 0)}),
    ]
    module, found = module_of("conv2d"), {}
    for place, (groups, channels, taps, settings) in enumerate(ways):
        shape = {**_shape(2, (6, 8), (channels, 6 * groups), taps), "groups": groups}
        given = module.inputs(shape, "fp32", device)
        x, weight, bias = (given[name] for name in ("x", "weight", "bias"))
        x = x.contiguous() if place % 2 else x[:, :, 1:]
        if place == 1:
            x[1, 0, 3, 4] = float("nan")
        inputs = {"x": x, "weight": weight, "bias": bias, **settings, "groups": groups}
        with launched_with(PARTED if place % 2 else module.DEFAULT, "conv2d", *ALSO):
            report = check_kernel(
                module.conv2d,
                module.baseline,
                {f"{groups} groups, {channels} channels, {settings}": inputs},
                gradients=("x", "weight", "bias"),
                tolerances=CASE.rows(device, "fp32"),
                checks=("shapes", "gradients"),
            )
        found |= {one.name: one.excess for one in report.comparisons}
    return found


def parted_gradients(device: str) -> dict[str, float]:
    """Programs that share the bias's sums: right, the same bits again, counters at 0 after."""
    dy = torch.randn(5, 70, 32, 33, device=device).contiguous(memory_format=LAST)
    (module,) = map(module_of, ALSO)
    shared = {"programs": 132, "WAVES": 2}
    given = {**module.DEFAULT.all_kwargs(), **module.arguments_of(dy, None, True), **shared}
    assert module.grid(given)[1] >= 42
    made = []
    for _ in range(3):
        given["sums_ptr"].fill_(float("nan"))
        given["dbias_ptr"].fill_(float("nan"))
        module.kernel[module.grid](**given)
        made.append(given["dbias_ptr"].clone())
    return {
        "of parts": excess(made[0], dy.double().sum((0, 2, 3)), CASE.rows(device, "fp32")),
        "bits": 2.0 * any(not torch.equal(made[0], one) for one in made),
        "counters": 2.0 * int(given["count_ptr"].count_nonzero()),
    }


CASE = Case(
    shapes=(
        _shape(2, (5, 7), (40, 24), 3),
        _shape(1, (9, 6), (3, 33), 7, 2),
        _shape(1, (1, 1), (1, 1), 1),
        _shape(3, (6, 5), (64, 48), 1, 2),
        _shape(1, (8, 8), (100, 8), 5, 3),
        _shape(2, (6, 8), (64, 33), 3),
    ),
    configs=(
        PARTED,
        Config({"BLOCK_M": 32, "BLOCK_N": 128, "BLOCK_K": 32, "SPLIT": 1}),
    ),
    varied=("x", "weight", "bias"),
    gradients=("x", "weight", "bias"),
    also=ALSO,
    keywords=(
        {"bias": None},
        {"relu": False},
        {"padding": (0, 2), "stride": (1, 2)},
        {"dilation": (2, 1), "padding": (3, 0)},
    ),
    most=1e15,
    on_gpu={"fp32": "tf32"},
    extras=(laid_out, few, in_place, parted, grouped, parted_gradients),
    is_parted=True,
)
