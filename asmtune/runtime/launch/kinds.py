"""What launchers know of PyTorch and Triton: types, the current device and stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl


class Kinds(NamedTuple):
    """Types whose values have words.

    Attributes:
        tensors: exact types that are read by the descriptors below; subclasses may do
            anything, and take the slow path.
        frozen: immutable types, compared by identity.
        dtype, data_ptr, get_device: of `torch.Tensor`, called without a lookup by name.
    """

    tensors: tuple[type, ...]
    frozen: tuple[type, ...]
    dtype: Any
    data_ptr: Callable[[Any], int]
    get_device: Callable[[Any], int]


class CurrentStream(NamedTuple):
    """Where launches go now.

    Attributes:
        device: gives the index of the current device, -1 without a GPU.
        stream: gives the handle of a device's current stream.
    """

    device: Callable[[], int]
    stream: Callable[[int], int]


def kinds() -> Kinds:
    """The types of the loaded PyTorch and Triton."""
    frozen = (tl.dtype, torch.dtype, triton.JITFunction)
    tensor = torch.Tensor
    return Kinds(
        (tensor, torch.nn.Parameter), frozen, tensor.dtype, tensor.data_ptr, tensor.get_device
    )


def machine() -> CurrentStream:
    """PyTorch's current device and stream, below its Python: 0.1 us in place of 3.

    Without a GPU, or a PyTorch without CUDA, tensors are on "device" -1.
    """
    if not torch.cuda.is_available():
        return CurrentStream(lambda: -1, lambda _: 0)
    return CurrentStream(torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream)
