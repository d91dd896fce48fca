"""Corrects how Triton's interpreter computes with bf16 and FP8, and makes it quicker.

Triton 3.6 interprets neither as a GPU does: a cast to FP8 loses the carry of a rounding (124.3
becomes 64), FP8's NaN and infinities become numbers, a cast to bf16 cuts digits off, and arithmetic
in bf16 is that of its bits as whole numbers. A right kernel then seems wrong.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

INTERPRET: Final = "TRITON_INTERPRET"

_FLOATS: Final = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
"""PyTorch's names of Triton's floating-point types."""

_ARITHMETIC: Final = (
    *("binary_op", "ternary_op", "unary_op"),
    *("create_fma", "create_rsqrt", "create_erf", "create_dot"),
)
"""Methods of the interpreter's builder; the last tensor of the operands has the result's dtype."""

_REDUCTIONS: Final = {"ReduceOps": ("sum", "min_max"), "ScanOps": ("cumsum", "cumprod")}
"""Methods of the interpreter that reduce or scan a tensor."""


def is_interpreting() -> bool:
    """Return whether Triton's interpreter runs kernels, on tensors of any device."""
    return os.environ.get(INTERPRET, "0") not in ("", "0")


@contextmanager
def exact_floats() -> Iterator[None]:
    """Let Triton's interpreter compute with bf16 and FP8 as a GPU does; else do nothing.

    Casts round to nearest, ties to even, and saturate in FP8. What is computed in bf16 is computed
    in fp32, and rounded after each operation; a reduction or scan over an axis is one. NumPy warns
    of nothing. Kernels run as under `quick_interpreter`.
    """
    with quick_interpreter(), ExitStack() as undo:
        if is_interpreting():
            _correct(undo)
        yield


@contextmanager
def quick_interpreter() -> Iterator[None]:
    """Let Triton's interpreter leave out what it repeats and what changes no result.

    Kernels take about 40 % of the time that they take without it. It is for launches of one
    thread at a time.
    """
    with ExitStack() as undo:
        if is_interpreting():
            _hasten(undo)
        yield


def _replace(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    from unittest.mock import patch

    undo.enter_context(patch.object(owner, name, value, create=True))


def _hasten(undo: ExitStack) -> None:
    from triton.language import core
    from triton.runtime import interpreter

    if getattr(interpreter._patch_lang, "__module__", None) == __name__:
        return  # it is nested
    launched, once = _patched_once_a_launch(interpreter)
    _replace(undo, interpreter.GridExecutor, "__call__", launched)
    _replace(undo, interpreter, "_patch_lang", once)
    # Sums and products of int32 are computed again in int64 and compared with the limits; without
    # the option `debug` the outcome is dropped.
    options = interpreter.interpreter_builder.options
    options = replace(options, sanitize_overflow=options.debug)
    _replace(undo, interpreter.interpreter_builder, "options", options)
    _replace(undo, interpreter, "_get_np_dtype", _shared_dtypes(interpreter._get_np_dtype))
    _replace(undo, core.block_type, "__init__", _shared_block_types(core.block_type.__init__))
    _replace(undo, core.tensor, "__init__", _shared_tensors(core.tensor.__init__))


def _patched_once_a_launch(interpreter: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a launch that patches `triton.language` once for each module of its functions.

    Triton's interpreter patches it again at each call of a device function, for each pair of
    elements that `tl.reduce` combines too, which takes up to nine tenths of a launch.
    """
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in patched:
            return interpreter._LangPatchScope()
        patched.add(module)
        return patch(function)

    def launched(self: Any, *arguments: Any, **keywords: Any) -> Any:
        patched.clear()  # the launch before has taken its patches back
        return launch(self, *arguments, **keywords)

    return launched, once


def _shared_dtypes(numpy_dtype: Callable[..., Any]) -> Callable[..., Any]:
    """Let each NumPy dtype be found once."""
    known: dict[str, Any] = {}

    def shared(dtype: Any) -> Any:
        scalar = dtype.scalar
        if scalar.name not in known:
            known[scalar.name] = numpy_dtype(scalar)
        return known[scalar.name]

    return shared


def _shared_block_types(make: Callable[..., None]) -> Callable[..., None]:
    """Let types of one shape share what Triton derives from it: each operation makes several."""
    from triton.language import core

    known: dict[Any, dict[str, Any]] = {}

    def shared(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = [s.value if isinstance(s, core.constexpr) else s for s in shape]
        parts = known.get((element_ty.name, *sizes))
        if parts is None:
            make(self, element_ty, shape)
            known[element_ty.name, *sizes] = dict(vars(self))
        else:
            vars(self).update(parts, element_ty=element_ty)

    return shared


def _shared_tensors(make: Callable[..., None]) -> Callable[..., None]:
    """Let tensors of one shape share what Triton derives from it."""
    known: dict[Any, dict[str, Any]] = {}

    def shared(self: Any, handle: Any, type: Any) -> None:  # noqa: A002 - Triton's keyword
        sizes = (*type.shape,) if type.is_block() else ()
        parts = known.get(sizes)
        if parts is None:
            make(self, handle, type)
            known[sizes] = dict(vars(self))
        else:
            vars(self).update(parts, handle=handle, type=type, dtype=type.scalar)

    return shared


def _correct(undo: ExitStack) -> None:
    import numpy as np
    from triton.runtime import interpreter

    # A GPU does not warn of NaN and infinities, and what NumPy plans is no fault of the kernel's.
    undo.enter_context(np.errstate(all="ignore"))
    undo.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=interpreter.__name__)
    builder: Any = interpreter.InterpreterBuilder
    convert = interpreter._convert_float
    if getattr(convert, "func", None) is _converted:
        return  # it is nested
    _replace(undo, interpreter, "_convert_float", partial(_converted, convert))
    _replace(undo, builder, "get_bf16", _bf16_constant)
    for name in _ARITHMETIC:
        _replace(undo, builder, name, _in_fp32(getattr(builder, name)))
    _replace(undo, builder, "cast_impl", _cast_by_fp32(builder.cast_impl))
    _replace(undo, builder, "create_splat", _splat_of_booleans(builder.create_splat))
    for owner, names in _REDUCTIONS.items():
        for name in names:
            method = getattr(getattr(interpreter, owner), name)
            _replace(undo, getattr(interpreter, owner), name, _reduced_in_fp32(method))


def _converted(own: Callable[..., Any], data: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Cast an array as Triton's own function does, whose place this takes; return its bits."""
    import torch
    from triton._C.libtriton import ir

    kinds = [getattr(torch, _FLOATS.get(str(one), ""), None) for one in (source, target)]
    if None in kinds or not data.size:
        return own(data, source, target, rounding)
    values = torch.frombuffer(bytearray(data.tobytes()), dtype=kinds[0])  # type: ignore[arg-type]
    result = _nearest(values, kinds[1])
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = result.view(whole[result.element_size()])
    if rounding == ir.ROUNDING_MODE.RTZ:
        # Sign and magnitude: one less is the next number towards zero.
        bits = bits - (result.double().abs() > values.double().abs()).to(bits.dtype)
    return bits.numpy().view(f"uint{target.primitive_bitwidth}").reshape(data.shape)


def _nearest(values: Tensor, dtype: Any) -> Tensor:
    """Round to the nearest number of a dtype, ties to even; FP8 saturates, and NaN is positive."""
    import torch

    if dtype.itemsize == 1:
        most = torch.finfo(dtype).max
        values = values.float().clamp(-most, most).masked_fill(values.isnan(), torch.nan)
    return values.to(dtype)


def _bf16_constant(_: Any, value: float) -> Any:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return _rounded(TensorHandle(np.array([value], dtype=np.float32), tl.float32))


def _widened(handle: Any) -> Any:
    """Return bf16 numbers in fp32, and anything else as it is."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if not _is_bf16(handle):
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _rounded(handle: Any) -> Any:
    """Return fp32 numbers in bf16."""
    import triton.language as tl
    from triton.runtime import interpreter

    bits = interpreter._convert_float(handle.data, tl.float32, tl.bfloat16, None)
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _is_bf16(operand: Any) -> bool:
    return str(getattr(operand, "dtype", "")) == "bf16" and hasattr(operand, "data")


def _in_fp32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of the builder compute on bf16 operands in fp32, and round its result."""

    def computed(self: Any, *operands: Any) -> Any:
        if not any(map(_is_bf16, operands)):
            return method(self, *operands)
        result = method(self, *map(_widened, operands))
        last = [one for one in operands if hasattr(one, "data")][-1]
        is_number = result.data.dtype == "float32"  # comparisons give booleans
        return _rounded(result) if is_number and _is_bf16(last) else result

    return computed


def _cast_by_fp32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let whole numbers and booleans become bf16 by way of fp32."""

    def cast(self: Any, source: Any, target: Any) -> Any:
        import triton.language as tl

        # The handle of a comparison keeps the dtype of what it compares.
        is_whole = source.data.dtype == bool or not source.dtype.scalar.is_floating()
        if target.scalar != tl.bfloat16 or not is_whole:
            return method(self, source, target)
        return _rounded(method(self, source, tl.float32))

    return cast


def _splat_of_booleans(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a block of one condition be booleans: Triton 3.9 takes no other masks."""

    def splat(self: Any, type: Any, source: Any) -> Any:  # noqa: A002 - Triton's keyword
        result = method(self, type, source)
        if source.data.dtype == bool:  # the handle's dtype is that of what was compared
            result.data = result.data.astype(bool)
        return result

    return splat


def _reduced_in_fp32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a reduction or scan of bf16 be one of fp32, rounded at its end.

    Triton 3.6 itself widens for all but sums.
    """

    def reduced(self: Any, given: Any, *how: Any, **named: Any) -> Any:
        import triton.language as tl

        def narrowed(result: Any) -> Any:
            if isinstance(result, list | tuple):
                return type(result)(map(narrowed, result))
            if result.dtype != tl.float32:  # indices
                return result
            bits = _rounded(result.handle).data
            return self.to_tensor(bits if result.type.is_block() else bits.item(), tl.bfloat16)

        if given.dtype != tl.bfloat16:
            return method(self, given, *how, **named)
        wide = self.to_tensor(_widened(given.handle).data, tl.float32)
        return narrowed(method(self, wide, *how, **named))

    return reduced


def backwards() -> AbstractContextManager[Any]:
    """Let Triton's interpreter run the programs of a grid from the last to the first."""
    from unittest.mock import patch

    from triton.runtime import interpreter

    builder: Any = interpreter.interpreter_builder
    forwards = builder.set_grid_idx

    def reverse(*place: int) -> None:
        forwards(*(size - 1 - at for size, at in zip(builder.grid_dim, place, strict=True)))

    return patch.object(builder, "set_grid_idx", reverse)
