"""Host side of the matrix product: layouts, contracts, copies, room for split sums, cuBLAS."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton

from asmtune.core.dtypes import dtype_of
from asmtune.kernels._common import (
    are_apart,
    beside,
    check_tensors,
    forward_only,
    is_expanded,
    is_hopper,
    processors,
)
from asmtune.kernels._copies import MOST_ELEMENTS, framed
from asmtune.kernels._split import SUMS_BYTES, workspace
from asmtune.triton_api.launching import allocating

DTYPES = ("fp16", "bf16", "fp32", "fp8e4nv", "i8")

ACTIVATIONS = ("none", "relu", "silu", "gelu")

MOST_PARTS = 32
"""Most parts that the sum of one tile is split into."""

LEAST_OF_A_PART = 128
"""Least extent along K of one part."""

MOST_BATCH = (1 << 16) - 1
"""Most programs along the second axis of a grid."""

MOST_BLOCK = 256
"""Largest extent of a block of the space, whose offsets are of 32 bits."""

_LEAST_ROWS, _MOST_COLS = 64, 256
_VECTOR = 16
_WORTH_A_COPY = 1 << 26
_WORTH_BESIDE_CUBLAS = 1 << 29
"""Multiplications from which operands are copied: alone, and where cuBLAS may be called.

It reads halves from odd rows as fast as from others. On an H200 192 x 3132 x 150 takes it 8 us,
and our kernel with both copies 18; 2001 x 1999 x 2003 takes it 134 us, and ours 59.
"""


@dataclass(frozen=True)
class Product:
    """C = activation(A B + bias), in the kernel's layout.

    Attributes:
        a: (batch, M, K).
        b: (batch, K, N).
        bias: (N,), or None.
        activation: one of ACTIVATIONS.
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    activation: str

    def result(self) -> torch.Tensor:
        """Allocate the product, (batch, M, N)."""
        extents = (*self.a.shape[:2], self.b.shape[2])
        return torch.empty(extents, dtype=result_dtype(self.a.dtype), device=self.a.device)

    def arguments(self, c: torch.Tensor) -> dict[str, Any]:
        """Give a launch's arguments without the tuned ones; `c` is (batch, M, N)."""
        (batch, M, K), N, device = self.a.shape, self.b.shape[2], self.a.device
        sums, counts = workspace(device, sums_bytes(batch, M, N, K))
        return {
            "a_ptr": self.a,
            "b_ptr": self.b,
            "bias_ptr": self.bias,
            "c_ptr": c,
            "sums_ptr": sums,
            "count_ptr": counts,
            **_numbers(_place(self.a), _place(self.b), self.a.element_size()),
            "MULTIPLE_C": math.gcd(_VECTOR, N * c.element_size()),
            "ACTIVATION": self.activation,
            "SMS": processors(device),
        }


Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""Extents, strides, and the address by _VECTOR."""


def _place(matrices: torch.Tensor) -> Place:
    address = 0 if matrices.is_meta else matrices.data_ptr() % _VECTOR
    return tuple(matrices.shape), matrices.stride(), address


# Launches repeat their sizes, and this takes longer than all else on the way to them.
@functools.lru_cache(maxsize=4096)
def _numbers(a: Place, b: Place, size: int) -> dict[str, Any]:
    """Give sizes, strides, dense axes, and the bytes that divide strides, addresses and extents."""
    (batch, M, K), N = a[0], b[0][2]
    strides = {f"stride_a{axis}": stride for axis, stride in zip("zmk", a[1], strict=True)}
    strides |= {f"stride_b{axis}": stride for axis, stride in zip("zkn", b[1], strict=True)}
    _check_reach(a, b)
    layout, apart, extents = "", [], []
    for (shape, steps, address), axes in ((a, "mk"), (b, "kn")):
        dense = next((place for place in (2, 1) if steps[place] == 1), None)
        layout += "." if dense is None else axes[dense - 1]
        far = 1 if dense is None else 3 - dense
        # A batch of one is never stepped over.
        apart += [size * steps[far], size * steps[0] if shape[0] > 1 else 0, address]
        extents += [size * shape[3 - far]]
    aligned = size if "." in layout else math.gcd(_VECTOR, *apart)
    multiple = math.gcd(aligned, *extents)
    sizes = {"batch": batch, "M": M, "N": N, "K": K, "SIZE": size}
    contract = {"LAYOUT": layout, "MULTIPLE": multiple, "MULTIPLE_STRIDES": aligned}
    return {**sizes, **strides, **contract}


def _check_reach(a: Place, b: Place) -> None:
    """Refuse matrices whose blocks reach further than the 32 bits of the kernel's offsets.

    A stride of more bits is passed in 64, and so are the offsets along it.
    """
    c = (a[0][0], a[0][1], b[0][2]), (0, b[0][2], 1), 0
    for name, (shape, steps, _) in {"A": a, "B": b, "C": c}.items():
        axes = zip(shape[1:], steps[1:], strict=True)
        reach = [min(extent, MOST_BLOCK) * step for extent, step in axes if step < 1 << 31]
        if sum(reach) >= 1 << 31:
            raise ValueError(
                f"{name} of a product is {shape[1:]} with strides {steps[1:]}; {MOST_BLOCK} of its "
                f"rows or columns must lie within {1 << 31} elements: divide the product"
            )


def product(
    what: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *,
    vendor: bool = False,
) -> Product:
    """Check the arguments of `matmul` or `linear`, and bring them into the kernel's layout.

    Raises:
        ValueError: an argument does not fit; the message says what it is and what it must be.
    """
    given = {"a": a, "b": b} | ({} if bias is None else {"bias": bias})
    check_tensors(what, {"a": a, "b": b}, DTYPES)
    operands = f"{what}: a is {tuple(a.shape)}, b is {tuple(b.shape)}"
    if not {a.ndim, b.ndim} <= {2, 3} or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"{operands}; they must be (.., M, K) and (.., K, N) of two or three axes")
    if a.ndim == b.ndim == 3 and a.shape[0] != b.shape[0]:
        raise ValueError(f"{operands}; a batch of both must be as long")
    if max((len(x) for x in (a, b) if x.ndim == 3), default=1) > MOST_BATCH:
        raise ValueError(f"{operands}; a batch must be {MOST_BATCH} at most: divide it")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"{what}: activation is {activation!r}; it must be one of {', '.join(ACTIVATIONS)}"
        )
    if dtype_of(a) == "i8" and (bias is not None or activation != "none"):
        raise ValueError(f"{what}: a is int8; that has neither bias nor activation")
    kinds = ("fp16",) if dtype_of(a) == "fp8e4nv" else (dtype_of(a),)
    if bias is not None:
        check_tensors(what, {"bias": bias}, [str(kind) for kind in kinds])
        if bias.shape != b.shape[-1:] or bias.device != a.device:
            raise ValueError(
                f"{what}: bias is {tuple(bias.shape)} on {bias.device}; "
                f"it must be {tuple(b.shape[-1:])} on {a.device}"
            )
        bias = bias.contiguous()
    forward_only(what, *given.values())
    return placed(a, b, bias, activation, vendor=vendor)


def placed(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str = "none",
    *,
    vendor: bool = False,
) -> Product:
    """Bring operands that have been checked into the kernel's layout; large ones by copies."""
    batch = next((x.shape[0] for x in (a, b) if x.ndim == 3), 1)
    least = _WORTH_BESIDE_CUBLAS if vendor and a.element_size() == 2 else _WORTH_A_COPY
    if batch * a.shape[-2] * b.shape[-1] * a.shape[-1] < least:
        return Product(_batched(a, batch), _batched(b, batch), bias, activation)
    # Hopper's tensor cores turn round operands of 16 bits alone: fp32 takes twice as long else.
    # cuBLAS takes fp32 as it lies, in 344 us for 4096 cubed on an H100, where the copy and our
    # kernel take 496; of 8 bits it takes this layout alone.
    along_k = a.element_size() == 1 or (a.element_size() == 4 and not vendor)
    a, b = _batched(a, batch), _batched(b, batch)
    return Product(
        _laid_out(a, 2 if along_k else None), _laid_out(b, 1 if along_k else None), bias, activation
    )


def launch(
    tuners: Sequence[Any], operands: Product, grid: Any, *, vendor: bool, gluon: bool
) -> torch.Tensor:
    """Launch a tuned kernel; return the product, (batch, M, N)."""
    c = operands.result()
    if c.numel() and operands.a.shape[2]:
        arguments = operands.arguments(c)
        with allocating():
            beside(tuners, vendor, gluon and _fits_hopper(arguments))[grid](**arguments)
    elif c.numel():
        raise ValueError(f"matmul: a is {tuple(operands.a.shape)}; K must be 1 or more")
    return c


def _fits_hopper(arguments: Mapping[str, Any]) -> bool:
    """Return whether the Gluon kernel for Hopper takes a launch's operands.

    The tuning key does not tell an expanded batch from another.
    """
    a, b = arguments["a_ptr"], arguments["b_ptr"]
    rows = arguments["MULTIPLE_STRIDES"], arguments["MULTIPLE_C"]
    return (
        a.dtype in (torch.float16, torch.bfloat16)
        and arguments["LAYOUT"] in ("kn", "kk")
        and rows == (_VECTOR, _VECTOR)
        and not (is_expanded(a) or is_expanded(b))
        and is_hopper(a.device)
    )


def by_gluon(operands: Product) -> torch.Tensor:
    """Compute the product, (batch, M, N), by the Gluon kernel for Hopper."""
    from asmtune.kernels import _hopper_gemm

    c = operands.result()
    _hopper_gemm.multiply(operands.a, operands.b, c, operands.bias, operands.activation)
    return c


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: programs along the tiles and their parts, and along the batch."""
    tiles = triton.cdiv(values["M"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["N"], values["BLOCK_N"])
    if values["PERSISTENT"]:
        return min(tiles, values["SMS"]), values["batch"]
    return tiles * values["SPLIT_K"], values["batch"]


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Give C's dtype for operands of this one."""
    return {torch.float8_e4m3fn: torch.float16, torch.int8: torch.int32}.get(dtype, dtype)


def _batched(x: torch.Tensor, batch: int) -> torch.Tensor:
    return x.expand(batch, *x.shape[-2:])


def _laid_out(x: torch.Tensor, dense: int | None) -> torch.Tensor:
    """Return the matrices with rows at multiples of 16 bytes; a copy where they are not.

    Args:
        x: (batch, rows, columns).
        dense: the axis along which elements are to be neighbours; None for the one that is.
    """
    size = x.element_size()
    if dense is None:
        dense = 1 if x.stride(1) == 1 and x.stride(2) != 1 else 2
    columns = x.mT if dense == 1 else x
    strides = [columns.stride(1), columns.stride(0) if x.shape[0] > 1 else 0]
    places = [size * stride % _VECTOR for stride in strides]
    if columns.stride(2) == 1 and not any(places) and x.data_ptr() % _VECTOR == 0:
        return x
    batch, rows, cols = columns.shape
    width = triton.cdiv(cols * size, _VECTOR) * _VECTOR // size
    if columns.stride(2) == 1 and rows * width <= MOST_ELEMENTS:
        copy = framed(columns[:, None], (rows, width, 1), (0, 0)).view(batch, rows, width)
    else:
        copy = torch.empty((batch, rows, width), dtype=x.dtype, device=x.device)
        copy[..., :cols].copy_(columns)
    return copy[..., :cols] if dense == 2 else copy[..., :cols].mT


@functools.lru_cache(maxsize=4096)
def sums_bytes(batch: int, M: int, N: int, K: int) -> int:
    """Give the bytes that partial sums may take, as far as the space splits any.

    It is kept small, since tuning saves and restores this memory around every launch.
    """
    rows = max(_LEAST_ROWS, triton.next_power_of_2(M))
    part = batch * rows * triton.cdiv(N, _MOST_COLS) * _MOST_COLS * 4
    if part == 0:
        return 4
    parts = min(MOST_PARTS, K // LEAST_OF_A_PART, SUMS_BYTES // part)
    return min(SUMS_BYTES, triton.next_power_of_2(parts * part)) if parts > 1 else 4


def by_cublas(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor, activation: str
) -> None:
    """Write the product of (batch, M, K) and (batch, K, N) by cuBLAS; 8 bits in one product alone.

    Bias and activation come after rounding to C's dtype. Sums of fp8 are the tensor cores' own, and
    fp32 is multiplied as tf32, as by our kernel.
    """
    if bias is not None and a.shape[0] == 1 and has_epilogue(a.dtype, activation):
        torch._addmm_activation(bias, a[0], b[0], out=c[0])
        return
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


def has_epilogue(dtype: torch.dtype, activation: str) -> bool:
    """Return whether cuBLAS applies a bias and the activation in its kernel; its GELU is tanh's."""
    return activation == "relu" and dtype in (torch.float16, torch.bfloat16)


def activate(x: torch.Tensor, activation: str) -> torch.Tensor:
    """Apply an activation in PyTorch, by name."""
    return x if activation == "none" else getattr(torch.nn.functional, activation)(x)


def _rows_apart(x: torch.Tensor) -> torch.Tensor:
    """Copy a matrix whose rows overlap: `_scaled_mm` refuses it, and a tuning key tells none."""
    return x if are_apart(x) else x.clone(memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=64)
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)
