"""A second kernel of the same form; its barriers stand in a function that it calls."""

import torch
import triton
import triton.language as tl


@triton.jit
def _wait(BARRIERS: tl.constexpr):
    for _ in tl.static_range(BARRIERS):
        tl.debug_barrier()


@triton.jit
def kernel(x_ptr, BARRIERS: tl.constexpr):
    """Wait at as many barriers as the config says."""
    _wait(BARRIERS)
    tl.store(x_ptr + tl.arange(0, 128), 2.0)


def space():
    """By barriers."""
    for barriers in range(20):
        yield {"BARRIERS": barriers, "num_warps": 4, "num_stages": 1}


SHAPES = [{"n": 128}]
DTYPE = torch.float32


def make(shape, device="cuda"):
    """One launch."""
    x = torch.empty(shape["n"], device=device, dtype=DTYPE)
    return {"args": (x,), "fixed": {}, "grid": lambda _: (1,), "out": x}
