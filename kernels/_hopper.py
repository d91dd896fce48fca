"""Parts of all Gluon kernels for Hopper: stages of a ring, and descriptors of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from asmtune.kernels._common import is_hopper

# Their names in newer versions of Triton, and in 3.6.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@builtin
def _add_tile(tensor_desc: Any, coord: Any, src: Any, _semantic: Any = None) -> None:
    """Add a tile of shared memory to memory by the copy engine: a name that Triton 3.6 lacks."""
    at = _semantic._convert_to_ir_values(coord, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, tensor_desc.handle, at, src.handle)


add_tile = getattr(tma, "async_atomic_add", None) or _add_tile

DTYPES = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.float8_e5m2: gl.float8e5,
}
HALVES = (torch.float16, torch.bfloat16)


@gluon.jit
def ring_of(desc, SIZE: gl.constexpr):
    """Allocate SIZE tiles of a descriptor in shared memory."""
    shape: gl.constexpr = [SIZE] + desc.block_type.shape  # noqa: RUF005 (Gluon has no stars)
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


# `reinterpret` in newer versions of Triton, `_reinterpret` in 3.6.
_IS_PUBLIC = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))


@gluon.jit
def shaped(memory, SHAPE: gl.constexpr, LAYOUT: gl.constexpr):
    """Return shared memory as one of another shape and layout: the same bytes."""
    return (
        memory.reinterpret(memory.dtype, SHAPE, LAYOUT)
        if _IS_PUBLIC
        else memory._reinterpret(memory.dtype, SHAPE, LAYOUT)
    )


@gluon.jit
def tile_of(ring, place):
    """Return a tile of a ring as a matrix."""
    RANK: gl.constexpr = len(ring.shape)
    SHAPE: gl.constexpr = [ring.shape[RANK - 2], ring.shape[RANK - 1]]
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(SHAPE, ring.dtype)
    return shaped(ring.index(place), SHAPE, LAYOUT)


@gluon.jit
def barriers_of(SIZE: gl.constexpr, ARRIVALS: gl.constexpr):
    """Make barriers, each of which completes a phase by so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [SIZE, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SIZE):
        mbarrier.init(barriers.index(i), count=ARRIVALS)
    return barriers


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """Return the stage after this one and its parity, which changes where the ring begins anew."""
    wraps = stage + 1 == STAGES
    return gl.where(wraps, 0, stage + 1), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """Return the stage before this one.

    A variable that lags one iteration behind would not do. Set to the first stage before a loop, it
    has the value that the loop's first iteration gives it, and Triton takes it to be constant.
    """
    return gl.where(stage == 0, STAGES, stage) - 1


def described(tensor: torch.Tensor) -> TensorDescriptor:
    """Describe a tensor for the copy engine, with a block of 64 x 64 until `set_block` is called.

    An axis of extent 1 is never stepped over. Its stride is replaced by one that the engine takes.
    """
    block = [1] * (tensor.ndim - 2) + [64, 64]
    step = 16 // tensor.element_size()
    strides = [
        step if extent == 1 else stride
        for extent, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    ]
    layout = _layout(block, tensor.dtype)
    return TensorDescriptor(tensor, list(tensor.shape), [*strides, 1], block, layout)


def set_block(descriptor: TensorDescriptor, rows: int, columns: int) -> None:
    """Set the extents that a descriptor copies at a time, along its last two axes."""
    descriptor.block_shape = [1] * (len(descriptor.shape) - 2) + [rows, columns]
    descriptor.layout = _layout(descriptor.block_shape, descriptor.base.dtype)


def refuse_others(
    what: str, tensors: Mapping[str, torch.Tensor], dtypes: Sequence[torch.dtype] = HALVES
) -> None:
    """Refuse tensors that the copy engine cannot address, of other dtypes, or on other GPUs.

    Args:
        what: the function's name.
        tensors: arguments by name.
        dtypes: those that they may have, of DTYPES.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in dtypes:
            names = " or ".join(str(DTYPES[dtype]) for dtype in dtypes)
            raise ValueError(f"{what}: {name} is {tensor.dtype}; it must be {names}")
        step = 16 // tensor.element_size()
        strides = zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
        apart = all(
            extent == 1 or (stride > 0 and stride % step == 0) for extent, stride in strides
        )
        if tensor.stride(-1) != 1 or not apart or tensor.data_ptr() % 16 or not tensor.numel():
            raise ValueError(
                f"{what}: {name} is {tuple(tensor.shape)} with strides {tensor.stride()}; "
                "it must have dense rows at multiples of 16 bytes, and no axis of 0 or expanded"
            )
        if not is_hopper(tensor.device):
            raise ValueError(f"{what}: {name} is on {tensor.device}; it must be on a Hopper GPU")


def _layout(block: Sequence[int], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[dtype])
