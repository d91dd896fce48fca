"""Launches of tensor descriptors on a GPU: what the copy engine reads and writes."""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune import asm_autotune
from asmtune.core.config import Config
from asmtune.runtime.autotuner import AsmAutotuner

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="the copy engine needs sm_90",
)


def product(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Multiply a by the transpose of b."""
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, sums)
    c_desc.store([m, n], sums.to(c_desc.dtype))


def set_blocks(values: dict[str, Any]) -> None:
    """Set what the descriptors copy at a time, as Triton's tutorial does."""
    m, n, k = (values[f"BLOCK_{axis}"] for axis in "MNK")
    values["a_desc"].block_shape, values["b_desc"].block_shape = [m, k], [n, k]
    values["c_desc"].block_shape = [m, n]


def grid(values: dict[str, Any]) -> tuple[int, int]:
    """Give the grid."""
    sizes = zip(("M", "N"), ("BLOCK_M", "BLOCK_N"), strict=True)
    rows, columns = (triton.cdiv(values[size], values[block]) for size, block in sizes)
    return rows, columns


def tuned() -> AsmAutotuner:
    """`product` with a config whose hook sets the blocks; nothing is tuned."""
    blocks = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
    config = Config(blocks, num_warps=4, pre_hook=set_blocks)
    return asm_autotune([config], ["M", "N", "K"])(triton.jit(product))


def described(tensor: torch.Tensor) -> Any:
    """Describe a tensor; the hook sets its block."""
    return TensorDescriptor.from_tensor(tensor, [1, 16])


def multiplied(kernel: AsmAutotuner, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply by a kernel."""
    (M, K), N = a.shape, b.shape[0]
    c = torch.full((M, N), 7.0, dtype=a.dtype, device="cuda")
    kernel[grid](described(a), described(b), described(c), M, N, K)
    return c


def random(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Draw a tensor."""
    return (torch.randn(*shape, device="cuda") / 8).to(dtype)


def is_native(kernel: AsmAutotuner) -> bool:
    """Tell whether the last launch was the launcher's own."""
    return kernel._launcher.last is not None and kernel._launcher.last.function != 0


def test_products_of_tensors_that_change() -> None:
    """New addresses, views and shapes of one key are read where they are, in planned launches."""
    kernel = tuned()
    whole = random(3, 512, 1024)
    for trial in range(12):
        a = whole[trial % 3, 8 * (trial % 5) :][:300, 64 * (trial % 2) :][:, :256]
        b = random(200, 256)
        torch.testing.assert_close(
            multiplied(kernel, a, b), (a.float() @ b.float().T).half(), rtol=2e-2, atol=2e-2
        )
        assert is_native(kernel) == (trial > 0)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_copies_of_every_rank(rank: int, dtype: torch.dtype, padding: str) -> None:
    """Tiles beyond the tensor hold what the padding says; maps are Triton's own in their effect."""

    @triton.jit
    def copied(source, target, n, RANK: tl.constexpr):
        at = [n - n]
        if RANK == 1:
            target.store(at, source.load(at))
        elif RANK == 2:
            target.store([0, 0], source.load([0, 0]))
        elif RANK == 3:
            target.store([0, 0, 0], source.load([0, 0, 0]))
        else:
            target.store([0, 0, 0, 0, 0], source.load([0, 0, 0, 0, 0]))

    kernel = asm_autotune([Config({})], ["n"])(copied)
    block = [64] if rank == 1 else [2] * (rank - 2) + [8, 32]
    filled = float("nan") if padding == "nan" else 0.0
    for _ in range(2):
        shape = [extent - extent // 4 if extent > 2 else extent for extent in block]
        source = random(*shape, dtype=dtype)
        target = torch.ones(*block, dtype=dtype, device="cuda")
        descriptors = [
            TensorDescriptor.from_tensor(source, block, padding=padding),
            TensorDescriptor.from_tensor(target, block),
        ]
        kernel[(1,)](*descriptors, 16, RANK=rank)
        expected = torch.full_like(target, filled)
        expected[tuple(slice(extent) for extent in shape)] = source
        torch.testing.assert_close(target, expected, rtol=0, atol=0, equal_nan=True)
    assert is_native(kernel)


def test_a_million_launches_keep_no_memory() -> None:
    """Descriptors over tensors that come and go leave nothing behind."""
    kernel, b = tuned(), random(64, 64)
    tensors = [random(128, 64) for _ in range(16)]
    c = torch.empty(128, 64, dtype=torch.float16, device="cuda")
    outer = [described(one) for one in tensors]
    b_desc, c_desc = described(b), described(c)

    def launch(count: int) -> None:
        for number in range(count):
            kernel[(1, 1)](outer[number % 16], b_desc, c_desc, 128, 64, 64)
        torch.cuda.synchronize()

    launch(1000)
    assert is_native(kernel)
    used, resident = torch.cuda.memory_allocated(), _resident_kib()
    launch(1_000_000)
    assert torch.cuda.memory_allocated() == used
    assert _resident_kib() - resident < 8 * 1024
    torch.testing.assert_close(c, (tensors[15].float() @ b.float().T).half(), rtol=2e-2, atol=2e-2)


def _resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
