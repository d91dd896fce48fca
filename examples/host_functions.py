r"""Kernels with the Python functions that launch them, as Triton's tutorials write them.

The file asks for the GPU while it is imported, and no command below needs one:

    asmtune prune-report examples/host_functions.py:matmul \\
        --arg 'a=fp16[4096,4096]' --arg 'b=fp16[4096,4096]'
    asmtune prune-report examples/host_functions.py:softmax --arg 'x=fp32[4096,2000]'
    asmtune prune-report examples/host_functions.py:grouped_matmul \\
        --arg 'a=[fp16[1024,512],fp16[512,512]]' --arg 'b=[fp16[512,1024],fp16[512,512]]'
    asmtune prune-report examples/host_functions.py:layer_norm \\
        --arg 'x=bf16[4096,4096]' --arg 'weight=bf16[4096]'
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()
SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
WIDE = torch.cuda.get_device_capability()[0] >= 9


def set_blocks(launch):
    """Give the descriptors of a launch the blocks of its config."""
    block_m, block_n, block_k = (launch[f"BLOCK_{axis}"] for axis in "MNK")
    launch["a"].block_shape = [block_m, block_k]
    launch["b"].block_shape = [block_k, block_n]
    launch["c"].block_shape = [block_m, block_n]


def configs():
    """List the configs: wide tiles from Hopper on."""
    sizes = (64, 128, 256) if WIDE else (64, 128)
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64},
            num_warps=8 if m * n > 8192 else 4,
            num_stages=3,
            pre_hook=set_blocks,
        )
        for m in sizes
        for n in sizes
    ]


def fitting(configs, arguments, **_):
    """Keep configs whose tiles are no taller than the product."""
    return [one for one in configs if one.kwargs["BLOCK_M"] <= arguments["M"]]


@triton.autotune(configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(c.dtype))


def matmul(a, b):
    """Multiply two matrices, by tensor descriptors."""
    assert a.is_cuda, "the matrices lie on the GPU"
    assert a.device == b.device == DEVICE
    c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
    described = [TensorDescriptor.from_tensor(matrix, [1, 1]) for matrix in (a, b, c)]

    def grid(values):
        tiles = zip(c.shape, (values["BLOCK_M"], values["BLOCK_N"]), strict=True)
        return tuple(triton.cdiv(size, block) for size, block in tiles)

    matmul_kernel[grid](*described, *c.shape, a.shape[1])
    return c


@triton.jit
def softmax_kernel(out, x, stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * stride + at, mask=at < columns, other=float("-inf"))
        weights = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * stride + at, weights / tl.sum(weights, 0), mask=at < columns)


def softmax(x):
    """Normalise rows, by as many programs as the registers let run at once."""
    limits = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    arguments = (out, x, x.stride(0), rows, columns)
    compiled = softmax_kernel.warmup(*arguments, BLOCK=block, STAGES=2, num_warps=8, grid=(1,))
    compiled._init_handles()
    threads = 8 * limits["warpSize"]
    at_once = limits["max_num_regs"] // (compiled.n_regs * threads)
    if compiled.metadata.shared:
        at_once = min(at_once, limits["max_shared_mem"] // compiled.metadata.shared)
    compiled[(min(SMS * at_once, rows), 1, 1)](*arguments, block, 2)
    return out


@triton.autotune([triton.Config({"BLOCK": size, "PROGRAMS": SMS}) for size in (64, 128)], key=["n"])
@triton.jit
def grouped_kernel(
    addresses, sizes, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr, DTYPE: tl.constexpr
):
    tile, done = tl.program_id(0), 0
    for product in range(n):
        rows = tl.load(sizes + product * 3)
        columns = tl.load(sizes + product * 3 + 1)
        depth = tl.load(sizes + product * 3 + 2)
        a = tl.load(addresses + product * 3).to(tl.pointer_type(DTYPE))
        b = tl.load(addresses + product * 3 + 1).to(tl.pointer_type(DTYPE))
        c = tl.load(addresses + product * 3 + 2).to(tl.pointer_type(DTYPE))
        tiles = tl.cdiv(columns, BLOCK)
        count = tl.cdiv(rows, BLOCK) * tiles
        while tile >= done and tile < done + count:
            m = (tile - done) // tiles * BLOCK + tl.arange(0, BLOCK)
            k = (tile - done) % tiles * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), tl.float32)
            for at in range(0, depth, 32):
                j = at + tl.arange(0, 32)
                left = tl.load(a + m[:, None] * depth + j[None, :])
                total = tl.dot(left, tl.load(b + j[:, None] * columns + k[None, :]), total)
            tl.store(c + m[:, None] * columns + k[None, :], total.to(DTYPE))
            tile += PROGRAMS
        done += count


def grouped_matmul(a, b):
    """Multiply pairs of matrices of several sizes in one launch, by tables of their addresses."""
    c = [a_i.new_empty(a_i.shape[0], b_i.shape[1]) for a_i, b_i in zip(a, b, strict=True)]
    triples = [*zip(a, b, c, strict=True)]
    addresses = torch.tensor(
        [[one.data_ptr() for one in three] for three in triples], device=DEVICE
    )
    sizes = [[a_i.shape[0], b_i.shape[1], a_i.shape[1]] for a_i, b_i, _ in triples]
    table = torch.tensor(sizes, dtype=torch.int32, device=DEVICE)
    grid = lambda values: (values["PROGRAMS"],)  # noqa: E731
    grouped_kernel[grid](addresses, table, len(triples), DTYPE=tl.float16)
    return c


@triton.jit
def layer_norm_kernel(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * columns
    values = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
    centred = tl.where(at < columns, values - tl.sum(values, 0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    scaled = centred * scale * tl.load(weight + at, mask=at < columns, other=0.0)
    tl.store(out + row + at, scaled.to(out.dtype.element_ty), mask=at < columns)


class LayerNorm(torch.autograd.Function):
    """Normalisation of rows."""

    @staticmethod
    def forward(ctx, x, weight, eps=1e-5):
        """Launch a program a row."""
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[-1])
        layer_norm_kernel[(x.shape[0],)](x, weight, out, x.shape[-1], eps, BLOCK=block, num_warps=8)
        ctx.save_for_backward(x, weight)
        return out


layer_norm = LayerNorm.apply

# A test at the end, as tutorials have: without a GPU the import goes on behind it.
left, right = (torch.randn(512, 512, device=DEVICE, dtype=torch.float16) for _ in range(2))
torch.testing.assert_close(matmul(left, right), left @ right, atol=1e-2, rtol=0)
print(f"ms: {triton.testing.do_bench(lambda: matmul(left, right)):.3f}")
