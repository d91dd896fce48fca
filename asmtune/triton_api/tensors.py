"""PyTorch below its Python: fields of tensors, products, and traces of operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["TorchDispatchMode", "tree_leaves", "tree_map"]

MODES: Final[tuple[Callable[[], Any], ...]] = (
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._are_functorch_transforms_active,
    torch._C._is_any_autocast_enabled,
)
"""Functions that return something true where PyTorch does more with a call than run it."""


class TensorFunctions(NamedTuple):
    """Descriptors and functions that read and make tensors, without a lookup by name.

    Attributes:
        address: of the C++ object of a tensor.
        requires_grad, is_conj, is_neg: facts of a tensor.
        empty: makes a tensor of extents, strides and a dtype, on the GPU if there is one.
    """

    address: Any
    requires_grad: Any
    is_conj: Any
    is_neg: Any
    empty: Callable[..., torch.Tensor]


def tensor_functions() -> TensorFunctions:
    """Return PyTorch's own."""
    tensor: Any = torch._C.TensorBase
    memory: Any = torch._C._dynamo.guards
    empty = memory._empty_strided_cuda if torch.cuda.is_available() else memory._empty_strided_cpu
    return TensorFunctions(
        tensor._cdata, tensor.requires_grad, tensor.is_conj, tensor.is_neg, empty
    )


def forward_level() -> tuple[dict[str, Any], str, int]:
    """Return the dict and the name of forward differentiation's level, and its value outside."""
    from torch.autograd import forward_ad

    return vars(forward_ad), "_current_level", -1


def own_gpu_kernel(op: Any) -> Callable[..., Any] | None:
    """Return what Python has registered for the GPU of an operator; None for PyTorch's own, in C++.

    It takes tensors of any device.
    """
    operators: Any = torch._ops  # without types
    if isinstance(op, operators.OpOverloadPacket) and len(op.overloads()) == 1:
        op = getattr(op, op.overloads()[0])
    if not isinstance(op, operators.OpOverload):
        return None
    name = op.name().replace("::", "/")
    keys = (f"{name}/{key}" for key in ("CUDA", "CompositeExplicitAutograd"))
    if torch.library._impls.isdisjoint(keys):
        return None
    return partial(op.redispatch, torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA))


def apply_of(node: Any) -> Any:
    """Return PyTorch's own `apply` of an autograd function, which looks at no mode."""
    return super(torch.autograd.Function, node).apply


def is_view(tensor: torch.Tensor) -> bool:
    """Return whether autograd takes a tensor for a view of another."""
    return tensor._base is not None


def writes(tensor: torch.Tensor) -> int | None:
    """Return how often PyTorch has written to a tensor; None where it does not count."""
    return None if tensor.is_inference() else tensor._version


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that tensors share if they have one memory."""
    number: int = tensor.untyped_storage()._cdata
    return number


def is_mutating(operation: Any) -> bool:
    """Return whether an operation, as a dispatch mode hears of it, writes to an argument."""
    return bool(operation._schema.is_mutable)


def raising_when_differentiated(
    message: str, tensors: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Return tensors of the same values; to differentiate them raises a RuntimeError."""
    refuse = torch._C._functions.DelayedError(message.encode(), len(tensors))
    refused = refuse(*(tensor.detach().requires_grad_() for tensor in tensors))
    return (refused,) if isinstance(refused, torch.Tensor) else tuple(refused)
