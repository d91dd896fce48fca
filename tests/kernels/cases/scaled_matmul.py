"""Products of FP8 with scales, at every granularity; more variants in `test_scaled.py`."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of

TILE = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2}
WALK = Config({"LOADS": "pointers", "PERSISTENT": True, "SPLIT_K": 1, **TILE})
DESCRIBED = Config({"LOADS": "descriptors", "PERSISTENT": False, "SPLIT_K": 1, **TILE})


def _shape(*numbers: int) -> dict[str, int]:
    return dict(zip(("M", "N", "K", "GROUP_A", "GROUP_B", "GROUP_K"), numbers, strict=True))


def granularities(device: str) -> dict[str, float]:
    """Scales of all pairs of granularities, dtypes of C with a bias, NaN, and B by row."""
    module, found = module_of("scaled_matmul"), {}
    M, N, K = 40, 48, 192
    a = torch.randn(M, K, device=device).to(torch.float8_e4m3fn)
    b = torch.randn(N, K, device=device).to(torch.float8_e4m3fn).mT

    def scales(*counts: int) -> torch.Tensor:
        return torch.rand(counts, device=device) + 0.5

    pairs = {
        "one number": (scales(), scales(1)),
        "by row": (scales(M, 1), scales(1, N)),
        "by row and tensor": (scales(M, 1), scales(1, 1)),
        "groups of A alone": (scales(M, 6), scales(1, N)),
        "short groups of 128": (scales(M, 2), scales(2, 1)),
        "groups of 48, which no block divides": (scales(4, 4), scales(4, 3)),
        "groups of 16": (scales(1, 12), scales(12, N)),
    }
    configs = [module.DEFAULT, WALK] + [DESCRIBED] * (device == "cpu")
    for what, (one, other) in pairs.items():
        for nth, config in enumerate(configs):
            if config is DESCRIBED and ("48" in what or "16" in what):
                continue
            out, right = ((torch.float32, b), (torch.float16, b.contiguous()))[nth % 2]
            bias = torch.randn(N, device=device).to(out)
            given = (a, right, one, other, out, bias)
            with launched_with(config, "scaled_matmul"):
                got = module.scaled_matmul(*given)
            exact = (*(x.double() for x in given[:4]), out, bias.double())
            rows = CASE.rows(device, "fp8e4nv")
            found[f"{what} by {config}"] = excess(got, module.baseline(*exact), rows)
    a = a.clone()
    a[3, 5] = float("nan")
    with launched_with(module.DEFAULT, "scaled_matmul"):
        got = module.scaled_matmul(a, b, scales(M, 1), scales(1, N))
    found["NaN stays in its row"] = 2.0 * (got.isnan().any(1).nonzero().tolist() != [[3]])
    return found


CASE = Case(
    shapes=(
        _shape(17, 33, 65, 1, 1, 0),
        _shape(1, 1, 1, 0, 0, 0),
        _shape(20, 130, 260, 1, 128, 128),
        _shape(64, 48, 96, 1, 1, 32),
        _shape(130, 29, 97, 0, 0, 0),
    ),
    configs=(WALK,),
    varied=("a", "b", "scale_a", "scale_b"),
    keywords=({"out_dtype": torch.float32}, {"fast_accum": False}),
    on_gpu={"bf16": "bf16 fp8 sums", "fp16": "fp8 sums", "fp32": "fp8 sums"},
    extras=(granularities,),
)
