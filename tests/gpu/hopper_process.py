"""Launches a Gluon kernel for Hopper by each config in a process of its own, and prints errors.

    python -m tests.gpu.hopper_process gemm NUMBER [CONFIGS]

The number chooses a case; CONFIGS limits how many configs, spread over all, where a tool makes each
launch a thousand times as long. Each is launched REPEATS times, with outputs poisoned before: the
first result is compared with float64, the others with the first, bit by bit. What atomic additions
make, which come in any order, is compared with float64 each time. A config is named before it is
compiled, so that one that never ends is known.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.dtypes import dtype_of
from asmtune.kernels import (
    _hopper_attention,
    _hopper_attention_backward,
    _hopper_gemm,
    _hopper_scaled,
    scaled_matmul,
)
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_spec import attend
from asmtune.runtime.options import numbers
from asmtune.workshop.kernel_checks.tolerances import excess

REPEATS = 5

GEMMS: tuple[dict[str, Any], ...] = (
    {"shape": (1, 128, 256, 64), "dense": "n"},
    {"shape": (1, 128, 256, 64), "dense": "k"},
    {"shape": (1, 4096, 4096, 4096), "dense": "k"},
    {"shape": (1, 1000, 1000, 1000), "dense": "n", "dtype": torch.bfloat16},
    {"shape": (3, 300, 520, 200), "dense": "k", "bias": True, "activation": "gelu"},
    {"shape": (1, 1, 8, 8), "dense": "n"},
    {"shape": (1, 8192, 1024, 72), "dense": "k", "activation": "relu"},
    {"shape": (2, 257, 264, 2048), "dense": "n", "apart": 24},
    {"shape": (1, 100, 1544, 4104), "dense": "k", "bias": True, "activation": "silu"},
)


def _heads(*extents: int, causal: bool, **more: Any) -> dict[str, Any]:
    return {"shape": extents, "causal": causal, **more}


ATTENTIONS: tuple[dict[str, Any], ...] = (
    _heads(1, 1, 1, 128, 128, 64, causal=False),
    _heads(1, 1, 1, 128, 128, 128, causal=True),
    _heads(2, 8, 8, 1024, 1024, 64, causal=False),
    _heads(2, 8, 2, 1024, 1024, 128, causal=True),
    _heads(1, 16, 4, 4096, 4096, 128, causal=True, dtype=torch.bfloat16),
    _heads(3, 5, 5, 333, 517, 64, causal=False),
    _heads(3, 6, 2, 517, 333, 128, causal=True),
    _heads(1, 3, 1, 1, 1, 64, causal=True),
    _heads(2, 4, 4, 700, 700, 64, causal=True, inside=True),
    _heads(1, 2, 2, 300, 5000, 128, causal=False, scale=0.3),
)


BACKWARDS = (
    *(case for case in ATTENTIONS if case["shape"][4] > 1),
    _heads(1, 3, 1, 1, 2, 64, causal=False),
)
"""Gradients of the weight of a single key are 0: what is left is noise, which has no scale."""


def _scaled(*extents: int, groups: str, **more: Any) -> dict[str, Any]:
    return {"shape": extents, "groups": groups, **more}


SCALED: tuple[dict[str, Any], ...] = (
    _scaled(128, 256, 256, groups="block"),
    _scaled(64, 128, 128, groups="tensor", fast=True),
    _scaled(1024, 1024, 4096, groups="block", out=torch.float32),
    _scaled(4096, 4096, 4096, groups="tensor", fast=True),
    _scaled(1000, 2000, 1008, groups="row", fast=True, bias=True),
    _scaled(300, 520, 400, groups="row", bias=True, out=torch.float16),
    _scaled(257, 264, 2064, groups="block", dtype="fp8e5"),
    _scaled(1, 4096, 4096, groups="block"),
    _scaled(64, 2112, 7168, groups="row", fast=True),
    _scaled(1, 8, 16, groups="tensor", dtype="fp8e5"),
)


def gemm_case(case: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any], Callable[[], Any]]:
    """Return a launch's arguments, its outputs, and what computes these in float64."""
    batch, M, N, K = case["shape"]
    kinds = {"device": "cuda", "dtype": case.get("dtype", torch.float16)}
    apart = case.get("apart", 0)
    a = torch.randn(batch, M, K + apart, **kinds)[..., :K]
    rows, columns = (K, N) if case["dense"] == "n" else (N, K)
    b = torch.randn(batch, rows, columns + apart, **kinds)[..., :columns]
    b = b if case["dense"] == "n" else b.mT
    bias = torch.randn(N, **kinds) if case.get("bias") else None
    c = torch.empty(batch, M, N, **kinds)
    activation = case.get("activation", "none")

    def exact() -> Any:
        product = a.double() @ b.double()
        product = product if bias is None else product + bias.double()
        function = getattr(torch.nn.functional, activation, lambda x: x)
        return [function(product)]

    return _hopper_gemm.arguments(a, b, c, bias, activation), [c], exact


def _drawn(case: Mapping[str, Any], heads: int, rows: int) -> torch.Tensor:
    B, D = case["shape"][0], case["shape"][-1]
    kinds = {"device": "cuda", "dtype": case.get("dtype", torch.float16)}
    if case.get("inside"):
        return torch.randn(B, rows, heads, D, **kinds).transpose(1, 2)
    return torch.randn(B, heads, rows, D, **kinds)


def attention_case(case: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any], Callable[[], Any]]:
    """Return a launch's arguments, its outputs, and what computes these in float64."""
    B, H, KV, M, N, D = case["shape"]
    drawn = functools.partial(_drawn, case)
    q, k, v = drawn(H, M), drawn(KV, N), drawn(KV, N)
    y, lse = torch.empty_like(q), torch.empty(B, H, M, device="cuda")
    how = Attending(case["causal"], scale=case.get("scale", D**-0.5))
    arguments = _hopper_attention.arguments(
        q, k, v, y, lse, causal=how.causal, scale=how.scale or 0.0
    )
    return arguments, [y, lse], lambda: attend(q.double(), k.double(), v.double(), how)


def backward_case(case: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any], Callable[[], Any]]:
    """Return a launch's arguments, its outputs, and what computes these in float64."""
    _, H, KV, M, N, D = case["shape"]
    drawn = functools.partial(_drawn, case)
    given = {"q": drawn(H, M), "dy": drawn(H, M), "k": drawn(KV, N), "v": drawn(KV, N)}
    how = Attending(case["causal"], scale=case.get("scale", D**-0.5))
    y, lse = attend(*(given[name].double() for name in "qkv"), how)
    given["lse"] = lse.float()
    dq, delta = _hopper_attention_backward.prepared_sums(given["dy"], y.to(given["dy"].dtype))
    results = {"dk": torch.empty_like(given["k"]), "dv": torch.empty_like(given["v"]), "dq": dq}
    arguments = _hopper_attention_backward.arguments(
        {**given, "delta": delta}, results, causal=how.causal, scale=how.scale or 0.0
    )
    exact = functools.partial(_hopper_attention_backward.reference, arguments)
    return arguments, [*results.values()], exact


def scaled_inputs(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `scaled_matmul`."""
    names = ("M", "N", "K", "GROUP_A", "GROUP_B", "GROUP_K")
    groups = scaled_matmul.GRANULARITIES[case["groups"]]
    shape = dict(zip(names, (*case["shape"], *groups), strict=True))
    out = case.get("out", torch.bfloat16)
    given = scaled_matmul.inputs(shape, case.get("dtype", "fp8e4nv"), "cuda")
    given["fast_accum"] = case.get("fast", False)
    bias = torch.randn(shape["N"], device="cuda", dtype=out) if case.get("bias") else None
    return {**given, "out_dtype": out, "bias": bias}


def scaled_case(case: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any], Callable[[], Any]]:
    """Return a launch's arguments, its outputs, and what computes these in float64."""
    plain = scaled_matmul._arguments(**scaled_inputs(case))
    c, exact = plain["c_ptr"], lambda: [scaled_matmul.reference(plain)[0]]
    return _hopper_scaled.arguments(plain), [c[0]], exact


CASES = {
    "gemm": (_hopper_gemm, GEMMS, gemm_case),
    "attention": (_hopper_attention, ATTENTIONS, attention_case),
    "scaled": (_hopper_scaled, SCALED, scaled_case),
    "backward": (_hopper_attention_backward, BACKWARDS, backward_case),
}
"""Modules by name, each with its cases, and what makes a launch of one."""

TOLERANCES = {
    "attention": {"fp16": "fp16 weights", "bf16": "bf16 weights"},
    "scaled": {"bf16": "bf16 fp8 sums", "fp16": "fp8 sums", "fp32": "fp8 sums"},
    "backward": {"fp16": "fp16 weights", "bf16": "bf16 weights"},
}

ADDED = {"backward": 1}
"""How many of the last outputs a kernel adds to in memory, in any order."""


def launch(module: ModuleType, arguments: Mapping[str, Any], config: Config) -> None:
    """Launch a kernel by a config, without the tuner."""
    values = {**arguments, **config.kwargs}
    assert config.pre_hook is not None
    config.pre_hook(values)
    options = {"num_warps": config.num_warps, "maxnreg": config.maxnreg}
    module.kernel[module.grid(values)](**values, **options)


def configs_of(module: ModuleType, arguments: Mapping[str, Any]) -> list[Config]:
    """List a launch's configs, and of a product those for larger ones too."""
    space, context = module.space(), numbers(arguments)
    if module is not _hopper_gemm:
        return list(space.configs(**context))
    split = [c for c in space.configs(**context) if c.kwargs["SPLIT_K"] > 1]
    return [*space.configs(**{**context, "M": 4096, "N": 4096}), *split]


def spread(configs: Sequence[Config], most: int | None) -> list[Config]:
    """Pick so many configs at equal distances, the first among them; all for None."""
    count = len(configs) if most is None else min(most, len(configs))
    return [configs[place * len(configs) // count] for place in range(count)]


def errors(which: str, case: Mapping[str, Any], most: int | None = None) -> dict[str, float]:
    """Return the error of each config over its tolerance; infinity where results do not repeat."""
    torch.manual_seed(0)
    module, _, make = CASES[which]
    arguments, outputs, exact = make(case)
    wanted, tolerances = exact(), dict(TOLERANCES.get(which, {}))
    fixed = len(outputs) - ADDED.get(which, 0)
    if fixed < len(outputs):
        # Sums in fp32 of weights that are rounded to the inputs' dtype.
        tolerances["fp32"] = tolerances[dtype_of(outputs[0])]
    found = {}
    # GROUP_M is the order of tiles alone.
    configs = [c for c in configs_of(module, arguments) if c.kwargs.get("GROUP_M", 8) == 8]
    for config in spread(configs, most):
        _say(f"{config}: compile")
        runs = []
        for _ in range(REPEATS):
            for at, output in enumerate(outputs):
                output.fill_(float("nan") if at < fixed else 0.0)
            launch(module, arguments, config)
            if not runs:
                _say(f"{config}: wait")
            torch.cuda.synchronize()
            runs.append([output.clone() for output in outputs])
        pairs = [*zip(runs[0], wanted, strict=True)]
        for run in runs[1:]:
            pairs += zip(run[fixed:], wanted[fixed:], strict=True)
        error = max(excess(got, want, tolerances) for got, want in pairs)
        same = all(
            torch.equal(x, y)
            for run in runs
            for x, y in zip(run[:fixed], runs[0][:fixed], strict=True)
        )
        found[str(config)] = error if same else float("inf")
        _say(f"{config}: {error} {same}")
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(which: str, number: int, most: int | None = None) -> None:
    """Launch one case, and print the errors as JSON."""
    found = errors(which, CASES[which][1][number], most)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
