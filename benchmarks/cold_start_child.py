"""Child of `benchmarks.cold_start`: imports, a first launch, and when each was done.

    python -m benchmarks.cold_start_child plain|tuned|tune CONFIG

It imports nothing of asmtune before it has imported PyTorch and Triton and has a tensor on the
GPU. CONFIG is the plain launch's, as JSON. Prints one line of JSON.
"""

from __future__ import annotations

import time

START = time.perf_counter()

import json  # noqa: E402 - what is timed begins above
import sys  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

IMPORTED = time.perf_counter()

SIZE = 4096
AXES = {
    "BLOCK_M": (32, 64, 128, 256),
    "BLOCK_N": (32, 64, 128, 256),
    "BLOCK_K": (32, 64, 128),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5),
}


@triton.jit
def product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,  # noqa: ARG001 - of the key, as N
    N,  # noqa: ARG001
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one BLOCK_M x BLOCK_N tile of C = A B a program; the tiles divide the sizes."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    c = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c, acc.to(tl.float16))


def grid(values: dict[str, Any]) -> tuple[int, int]:
    """Give the grid: the tiles of C."""
    return SIZE // values["BLOCK_M"], SIZE // values["BLOCK_N"]


def tensors() -> list[torch.Tensor]:
    """Make A, B and C."""
    matrices = [torch.ones(SIZE, SIZE, dtype=torch.float16, device="cuda") for _ in range(3)]
    torch.cuda.synchronize()
    return matrices


def first(variant: str, config: dict[str, Any], matrices: list[torch.Tensor]) -> dict[str, Any]:
    """Decorate and launch; return the config that was launched."""
    a, b, c = matrices
    strides = (*a.stride(), *b.stride(), *c.stride())
    arguments = (a, b, c, SIZE, SIZE, SIZE, *strides)
    if variant == "plain":
        product[grid](*arguments, **config)
        torch.cuda.synchronize()
        return config
    from asmtune import asm_autotune

    options: dict[str, Any] = {"effort": "quick"} if variant == "tune" else {}
    kernel = asm_autotune(space=AXES, key=["M", "N", "K"], **options)(product)
    kernel[grid](*arguments)
    torch.cuda.synchronize()
    return dict(kernel.best_config.all_kwargs())


def main() -> None:
    """Time the phases and print them."""
    variant, config = sys.argv[1], json.loads(sys.argv[2])
    matrices = tensors()
    ready = time.perf_counter()
    launched = first(variant, config, matrices)
    done = time.perf_counter()
    heavy = sorted({"sklearn", "scipy", "joblib", "sqlalchemy"} & sys.modules.keys())
    times = {
        "import_s": IMPORTED - START,
        "context_s": ready - IMPORTED,
        "first_s": done - ready,
        "right": bool((matrices[2] == SIZE).all()),
        "config": launched,
        "heavy": heavy,
    }
    sys.stdout.write(json.dumps(times) + "\n")


if __name__ == "__main__":
    main()
