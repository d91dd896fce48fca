"""Times the Gluon kernels for Hopper, every config of each, beside the vendors' functions.

    python -m benchmarks.hopper gemm
    python -m benchmarks.hopper attention --shape 3 --plain
    python -m benchmarks.hopper scaled --shape 40
    python -m benchmarks.hopper backward --plain

Each shape is timed in a process of its own, which is killed after `--limit` seconds. `--plain`
tunes the plain kernel as well. The vendors' are cuBLAS, the fastest SDPA, and `torch._scaled_mm`.
A config of the backward pass is timed with the launches before and after it. Shares are the
vendor's time over the kernel's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from triton.testing import do_bench

from asmtune.core.config import Config
from asmtune.kernels import (
    _hopper_attention,
    _hopper_attention_backward,
    _hopper_gemm,
    _hopper_scaled,
    attention,
    attention_backward,
    matmul,
    scaled_matmul,
)
from asmtune.kernels._attention_host import Attending
from asmtune.runtime.options import numbers
from benchmarks.kernels import wide
from benchmarks.kernels.attention_backends import attend, fastest, gradients
from tests.gpu.hopper_process import attention_case, gemm_case, launch, scaled_inputs

Row = tuple[str, Callable[[], object]]

GEMMS = (  # M, N, K; B is (N, K) in memory
    (4096, 4096, 4096), (8192, 8192, 8192), (1536, 1536, 1536), (2048, 2048, 2048),
    (1024, 5120, 5120), (4608, 6144, 4096), (8192, 28672, 4096), (4096, 4096, 14336),
    (3072, 3072, 3072), (5000, 5000, 5000), (128, 6144, 4096), (256, 4096, 14336),
)  # fmt: skip
ATTENTIONS = (  # batch, heads, key heads, queries, keys, dim, causal
    (4, 16, 16, 2048, 2048, 128, 0), (4, 16, 16, 2048, 2048, 128, 1),
    (2, 32, 8, 4096, 4096, 128, 0), (2, 32, 8, 4096, 4096, 128, 1),
    (1, 32, 8, 16384, 16384, 128, 1), (4, 16, 16, 1024, 1024, 64, 0),
    (2, 16, 16, 4096, 4096, 64, 0), (2, 16, 16, 4096, 4096, 64, 1),
)  # fmt: skip
SCALED = tuple(  # M, N, K and granularity: 20 shapes a tensor, a row and a block each
    (shape["M"], shape["N"], shape["K"], name)
    for shape in wide.SHAPES["scaled_matmul"]()
    for name, groups in scaled_matmul.GRANULARITIES.items()
    if groups == (shape["GROUP_A"], shape["GROUP_B"], shape["GROUP_K"])
)
SHAPES = {"gemm": GEMMS, "attention": ATTENTIONS, "scaled": SCALED, "backward": ATTENTIONS}


def microseconds(run: Callable[[], object]) -> float:
    """Return the median time of a launch."""
    return float(do_bench(run, warmup=50, rep=200, return_mode="median")) * 1e3


def gemm_rows(number: int, plain: bool) -> Iterator[Row]:
    """Yield cuBLAS, the plain kernel if it is wanted, and each config."""
    arguments, (c,), _ = gemm_case({"shape": (1, *GEMMS[number]), "dense": "k"})
    a, b = arguments["a_desc"].base[0], arguments["b_desc"].base[0].mT
    yield "cuBLAS", lambda: torch.matmul(a, b, out=c[0])
    if plain:
        yield "plain", lambda: matmul.matmul(a, b, vendor=False, gluon=False)
    for config in _hopper_gemm.space().configs(**numbers(arguments)):
        yield str(config), partial(launch, _hopper_gemm, arguments, config)


def attention_rows(number: int, plain: bool) -> Iterator[Row]:
    """Yield the fastest SDPA, the plain kernel if it is wanted, and each config."""
    *extents, causal = ATTENTIONS[number]
    arguments, _, _ = attention_case({"shape": extents, "causal": bool(causal)})
    given = {name: arguments[f"{name}_desc"].base for name in "qkv"}
    with warnings.catch_warnings():
        # A backend that does not take the shape says why.
        warnings.simplefilter("ignore")
        run = fastest(lambda: lambda: attend(given, bool(causal)), given["q"].device)
    yield "SDPA", run
    if plain:
        more = {"causal": bool(causal), "vendor": False, "gluon": False}
        yield "plain", lambda: attention.attention(**given, **more)
    for config in _hopper_attention.space().configs(D=extents[-1]):
        yield str(config), partial(launch, _hopper_attention, arguments, config)


def backward_rows(number: int, plain: bool) -> Iterator[Row]:
    """Yield SDPA's fastest backward, the plain ones if they are wanted, and each config."""
    *extents, causal = ATTENTIONS[number]
    names = dict(zip(("B", "H", "KV", "M", "N", "D"), extents, strict=True))
    given = attention_backward.inputs({**names, "causal": causal}, "fp16", "cuda")
    heads = {name: x for name, x in given.items() if name != "causal"}
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        run = gradients({**heads, "how": Attending(bool(causal))})
    yield "SDPA", run
    if plain:
        more = {"causal": bool(causal), "vendor": False, "gluon": False}
        yield "plain", lambda: attention_backward.attention_backward(**heads, **more)
    scale, module = extents[-1] ** -0.5, _hopper_attention_backward
    results = [torch.empty_like(heads[name]) for name in "qkv"]

    def whole(config: Config) -> None:
        sums, delta = module.prepared_sums(heads["dy"], heads["y"])
        made = {"dq": sums, "dk": results[1], "dv": results[2]}
        arguments = module.arguments(
            {**heads, "delta": delta}, made, causal=bool(causal), scale=scale
        )
        launch(module, arguments, config)
        torch.mul(sums, scale, out=results[0])

    for config in module.space().configs(D=extents[-1]):
        yield str(config), partial(whole, config)


def scaled_rows(number: int, plain: bool) -> Iterator[Row]:
    """Yield `torch._scaled_mm`, the plain kernel if it is wanted, and each config."""
    *extents, groups = SCALED[number]
    given = scaled_inputs({"shape": extents, "groups": groups, "fast": groups != "block"})
    launched = scaled_matmul._arguments(**given)
    if scaled_matmul.has_vendor(launched):
        yield "torch._scaled_mm", lambda: scaled_matmul.by_torch(**given)
    if plain:
        more = {"vendor": False, "gluon": False}
        yield "plain", lambda: scaled_matmul.scaled_matmul(**given, **more)
    arguments = _hopper_scaled.arguments(launched)
    for config in _hopper_scaled.space().configs(**numbers(arguments)):
        yield str(config), partial(launch, _hopper_scaled, arguments, config)


ROWS = {
    "gemm": gemm_rows,
    "attention": attention_rows,
    "scaled": scaled_rows,
    "backward": backward_rows,
}


def operations(kernel: str, shape: tuple[Any, ...]) -> float:
    """Count the floating-point operations of a shape; a causal mask leaves half."""
    if kernel in ("gemm", "scaled"):
        M, N, K = shape[:3]
        return 2.0 * M * N * K
    B, H, _, M, N, D, causal = shape
    products = {"attention": 2, "backward": 5}[kernel]
    return products * 2.0 * B * H * M * N * D / (2 if causal else 1)


def print_rows(rows: Iterator[Row], flops: float) -> None:
    """Print each row's name, then time, share of the vendor's speed, and TFLOP/s."""
    vendor = 0.0
    for name, run in rows:
        print(name, end="", flush=True)  # before a launch that may never end
        with torch.no_grad():
            run()
            time = microseconds(run)
        vendor = vendor or time
        share, speed = vendor / time, flops / time / 1e6
        print(f"  {time:.1f} us  {share:.3f}  {speed:.0f} TFLOP/s", flush=True)


def main() -> None:
    """Time one shape here, or each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", choices=SHAPES)
    parser.add_argument("--shape", type=int, help="number of one shape; all if left out")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--limit", type=int, default=300)
    options = parser.parse_args()
    shapes = SHAPES[options.kernel]
    if options.shape is None:
        for number in range(len(shapes)):
            command = [*sys.argv[1:], "--shape", str(number)]
            try:
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.hopper", *command],
                    timeout=options.limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                print(f"\nshape {number}: no end after {options.limit} s")
        return
    shape = shapes[options.shape]
    print(f"{options.kernel} {' '.join(map(str, shape))}", flush=True)
    rows = ROWS[options.kernel](options.shape, options.plain)
    print_rows(rows, operations(options.kernel, shape))


if __name__ == "__main__":
    main()
