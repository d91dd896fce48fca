"""What the Gluon kernels for Hopper share: stages of a ring, and descriptors of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Their names in newer versions of Triton, and in 3.6.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """Returns the stage after this one and its parity, which changes where the ring begins anew."""
    wraps = stage + 1 == STAGES
    return gl.where(wraps, 0, stage + 1), gl.where(wraps, phase ^ 1, phase)


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


def can_be_described(tensor: torch.Tensor) -> bool:
    """Say if the copy engine can address a tensor: dense rows at multiples of 16 bytes."""
    step = 16 // tensor.element_size()
    strides = zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    placed = all(extent == 1 or (stride > 0 and stride % step == 0) for extent, stride in strides)
    start = 0 if tensor.is_meta else tensor.data_ptr()
    return tensor.stride(-1) == 1 and placed and start % 16 == 0 and tensor.numel() > 0


def _layout(block: Sequence[int], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[dtype])
