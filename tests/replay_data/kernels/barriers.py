"""A kernel in the recorded form whose PTX has as many bar.sync as its config says."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, n, BARRIERS: tl.constexpr):
    """Wait at as many barriers as the config says."""
    at = tl.arange(0, 128)
    tl.store(x_ptr + at, 1.0, mask=at < n)
    for _ in tl.static_range(BARRIERS):
        tl.debug_barrier()


def space():
    """By barriers."""
    for barriers in range(4):
        yield {"BARRIERS": barriers, "num_warps": 4, "num_stages": 1}


SHAPES = [{"n": 64}, {"n": 128}]
DTYPE = torch.float16


def make(shape, device="cuda"):
    """One launch."""
    x = torch.empty(shape["n"], device=device, dtype=DTYPE)
    return {"args": (x, shape["n"]), "fixed": {}, "grid": lambda _: (1,), "out": x}
