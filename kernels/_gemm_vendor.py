"""Products and activations by PyTorch and cuBLAS, in the place of the tuned kernel."""

from __future__ import annotations

import functools
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from asmtune.kernels._common import are_apart


def by_cublas(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor, activation: str
) -> None:
    """Write the product of (batch, M, K) and (batch, K, N) by cuBLAS; 8 bits in one product alone.

    Bias and activation come after rounding to C's dtype. Sums of fp8 are the tensor cores' own, and
    fp32 is multiplied as tf32, as by our kernel.
    """
    with as_tf32(a.dtype):
        _multiply_by_cublas(a, b, bias, c)
    if bias is not None and (a.shape[0] > 1 or a.element_size() == 1):
        c.add_(bias)
    if activation != "none":
        c.copy_(activate(c, activation))


def _multiply_by_cublas(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor
) -> None:
    """Write the product to C, with the bias if it is one of 16 or 32 bits and not of a batch."""
    if a.dtype == torch.float8_e4m3fn:
        one = _one(a.device)
        how: dict[str, Any] = {"out_dtype": c.dtype, "use_fast_accum": True, "out": c.squeeze(0)}
        a, b = _rows_apart(a.squeeze(0)), _rows_apart(b.squeeze(0).mT).mT
        torch._scaled_mm(a, b, one, one, **how)
    elif a.dtype == torch.int8:
        torch._int_mm(a.squeeze(0), b.squeeze(0), out=c.squeeze(0))
    elif a.shape[0] == 1 and bias is not None:
        torch.addmm(bias, a[0], b[0], out=c[0])
    elif a.shape[0] == 1:
        # For a batch of one cuBLAS takes other kernels: 482 us in place of 350 on an H100 for 4096
        # cubed in fp32.
        torch.mm(a[0], b[0], out=c[0])
    else:
        torch.matmul(a, b, out=c)


class _Tf32(AbstractContextManager[None]):
    """A setting of the process, made by the first thread that enters and undone by the last."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, ""

    def __enter__(self) -> None:
        products = torch.backends.cuda.matmul
        with self._lock:
            if not self._inside:
                self._before, products.fp32_precision = products.fp32_precision, "tf32"
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.backends.cuda.matmul.fp32_precision = self._before


_TF32, _AS_SET = _Tf32(), nullcontext()


def as_tf32(dtype: torch.dtype) -> AbstractContextManager[None]:
    """Let PyTorch multiply fp32 as tf32, as our kernels do, whatever it is set to.

    PyTorch has one setting for all threads: what others multiply meanwhile is tf32 too, and what
    they set meanwhile is undone.
    """
    return _TF32 if dtype == torch.float32 else _AS_SET


def activate(x: torch.Tensor, activation: str) -> torch.Tensor:
    """Apply an activation in PyTorch, by name."""
    return x if activation == "none" else getattr(torch.nn.functional, activation)(x)


def _rows_apart(x: torch.Tensor) -> torch.Tensor:
    """Copy a matrix whose rows overlap: `_scaled_mm` refuses it, and a tuning key tells none."""
    return x if are_apart(x) else x.clone(memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=64)
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)
