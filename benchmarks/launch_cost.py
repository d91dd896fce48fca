"""Host cost of a launch: asmtune's against Triton's, in one process.

    python -m benchmarks.launch_cost [--rounds N] [--output FILE]

Needs a GPU. Each way launches a kernel that does next to nothing, with 19 arguments, with none, and
with four tensor descriptors where the GPU has the copy engine. The ways take turns: a round is some
hundred launches of each way after the queue is empty, fewer than the queue holds, so that the host
never waits for the GPU. Given are medians over the rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune import Config, asm_autotune
from asmtune.runtime.launch import plain
from asmtune.runtime.launch.planning import backend
from benchmarks.harness import device_of, empty_caches, host_times, parser, table, write

LAUNCHES = 300
CONFIGS = [{"BLOCK": 64}, {"BLOCK": 128}]


def nineteen(
    a, b, c, bias, residual, M, N, K, am, ak, bk, bn, cm, cn, rm, rn, alpha, beta,
    ACTIVATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Make a GEMM's arguments: 5 tensors, 11 sizes and strides, 2 factors, 1 constexpr."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sizes = M + N + K + am + ak + bk + bn + cm + cn + rm + rn
    if ACTIVATION == "none":  # never: its loads would cost the GPU time
        sizes += tl.load(a).to(tl.int32) + tl.load(b).to(tl.int32)
        sizes += tl.load(bias).to(tl.int32) + tl.load(residual).to(tl.int32)
    tl.store(c + at, (alpha * sizes + beta).to(tl.float16), mask=at < 1)


def none(BLOCK: tl.constexpr):
    """Make no arguments."""


def four(a, b, c, d, M, N, K, BLOCK: tl.constexpr):
    """Take four tensors for the copy engine, and three sizes."""
    if M < 0:  # never: its copies would cost the GPU time
        at = [N * BLOCK, K]
        d.store(at, a.load(at) + b.load(at) + c.load(at))


Ways = dict[str, Callable[[], Any]]


def arguments() -> tuple[Any, ...]:
    """Make the arguments of a GEMM of 4096 x 4096 x 512."""
    tensors = [torch.zeros(4096, dtype=torch.float16, device="cuda") for _ in range(5)]
    return (*tensors, 4096, 4096, 512, 512, 1, 4096, 1, 4096, 1, 4096, 1, 1.0, 0.5, "relu")


def described() -> tuple[Any, ...]:
    """Describe four tensors of 4096 x 512."""
    tensors = [torch.zeros(4096, 512, dtype=torch.float16, device="cuda") for _ in range(4)]
    return (*(TensorDescriptor.from_tensor(one, [64, 64]) for one in tensors), 4096, 512, 64)


def ours(function: Any, key: list[str], how: Any) -> Any:
    """Decorate a kernel over one of the launchers."""
    configs = [Config(values) for values in CONFIGS]
    kernel = asm_autotune(configs, key, effort="quick")(triton.jit(function))
    vars(kernel)["_part"] = how
    return kernel


def by_function(values: Any) -> tuple[int]:
    """Make a grid of a config's values."""
    return (triton.cdiv(64, values["BLOCK"]),)


def ways(function: Any, args: tuple[Any, ...], key: list[str]) -> Ways:
    """List the ways to launch a kernel, each tuned and compiled."""
    plain_jit, grid = triton.jit(function), (1,)
    tuner = triton.autotune([triton.Config(values) for values in CONFIGS], key)(
        triton.jit(function)
    )
    # Without the C part, and for an argument that it has no key for, as a subclass of a tensor.
    native, slow = ours(function, key, backend()), ours(function, key, plain)
    compiled = plain_jit[grid](*args, BLOCK=64)
    stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
    fixed = (1, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None)
    bound = (*args, 64)
    launch, run = compiled[(1, 1, 1)], compiled.run
    return {
        "asm_autotune": lambda: native[grid](*args),
        "asm_autotune, grid of a function": lambda: native[by_function](*args),
        "asm_autotune, in Python": lambda: slow[grid](*args),
        "triton.autotune": lambda: tuner[grid](*args),
        "triton.autotune, grid of a function": lambda: tuner[by_function](*args),
        "triton.jit": lambda: plain_jit[grid](*args, BLOCK=64),
        "compiled[grid]": lambda: launch(*bound),
        "compiled.run": lambda: run(*fixed, *bound),
    }


def results(rounds: int) -> dict[str, Any]:
    """Measure the kernels in all ways; add the ratios that count."""
    many, nothing = arguments(), ()
    cases = {
        "19 arguments": ways(nineteen, many, ["M", "N", "K"]),
        "no arguments": ways(none, nothing, []),
    }
    if torch.cuda.get_device_capability() >= (9, 0):
        cases["4 descriptors"] = ways(four, described(), ["M", "N", "K"])
    by_case = {
        case: host_times(of, rounds, LAUNCHES, before=LAUNCHES) for case, of in cases.items()
    }
    ratios = {}
    for case in by_case:
        mine = by_case[case]["asm_autotune"]["median_us"]
        for other in ("triton.autotune", "triton.jit", "compiled.run"):
            ratios[f"{case}, to {other}"] = round(mine / by_case[case][other]["median_us"], 3)
    native = getattr(backend(), "__name__", "") == "asmtune_launch"
    return {"rounds": rounds, "launches": LAUNCHES, "native": native, "ratios": ratios, **by_case}


def document(*files: dict[str, Any]) -> str:
    """Tabulate microseconds of host time a launch, on the hosts of some devices."""
    cases = ("19 arguments", "no arguments", "4 descriptors")
    columns = [(data, case) for data in files for case in cases if case in data]
    ways_ = [data[case] for data, case in columns]
    lines = (
        [f"`{name}`", *(f"{way[name]['median_us']:.1f} us" for way in ways_)] for name in ways_[0]
    )
    heads = (f"{device_of(data)}, {case}" for data, case in columns)
    return table((f"medians of {files[0]['rounds']} rounds", *heads), lines)


def main() -> None:
    """Measure, write and print."""
    arguments_ = parser(__doc__, "launch_cost.json")
    arguments_.add_argument("--rounds", type=int, default=60)
    chosen = arguments_.parse_args()
    with empty_caches():
        measurements = results(chosen.rounds)
    print(document(write(chosen.output, measurements)))
    print(measurements["ratios"])


if __name__ == "__main__":
    main()
