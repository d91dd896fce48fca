"""Names of element types: Triton's, PyTorch's and common aliases.

The canonical name is Triton's (`fp16`, `bf16`, `fp8e4nv`, `i32`).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from asmtune.base.errors import ProblemError
from asmtune.base.text import did_you_mean

TORCH_NAMES: Final = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "i1": "bool",
}
"""PyTorch's name of each canonical dtype."""

_ALIASES: Final = {torch_name: name for name, torch_name in TORCH_NAMES.items()} | {
    "half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "int": "i32",
    "long": "i64",
    "fp8": "fp8e4nv",
}


def canonical_dtype(text: str) -> str:
    """Return the canonical name of a dtype: `float16`, `torch.float16` and `fp16` give `fp16`.

    Raises:
        ProblemError: the dtype is unknown; suggests the nearest.
    """
    name = text.removeprefix("torch.").removeprefix("tl.")
    name = _ALIASES.get(name, name)
    if name not in TORCH_NAMES:
        hint = did_you_mean(name, [*TORCH_NAMES, *_ALIASES])
        raise ProblemError(f"unknown dtype {text!r}: one of {', '.join(TORCH_NAMES)}{hint}")
    return name


def element_type(value: Any) -> Any:
    """Return the dtype object of a tensor or of a tensor descriptor; None for a scalar."""
    # A reinterpreted tensor has a dtype of its own, a descriptor only its tensor's.
    dtype = getattr(value, "dtype", None)
    return getattr(getattr(value, "base", None), "dtype", None) if dtype is None else dtype


def dtype_of(value: Any) -> str | None:
    """Return the canonical dtype of a tensor, a tensor descriptor or anything with a `dtype`.

    It is None for a scalar. A dtype without a name in Triton keeps PyTorch's name.
    """
    dtype = element_type(value)
    return None if dtype is None else _canonical(dtype)


def dtype_name(value: Any) -> str | None:
    """Return the canonical name of a PyTorch or Triton dtype object; None for anything else."""
    for module in ("torch", "triton.language"):
        # While a module is not loaded, no value can be one of its dtypes.
        kind = getattr(sys.modules.get(module), "dtype", None)
        if kind is not None and isinstance(value, kind):
            return _canonical(value)
    return None


def _canonical(dtype: object) -> str:
    name = str(dtype).removeprefix("torch.")
    return _ALIASES.get(name, name)


def torch_dtype(name: str) -> Any:
    """Return the `torch.dtype` of a name."""
    import torch

    return getattr(torch, TORCH_NAMES[canonical_dtype(name)])
