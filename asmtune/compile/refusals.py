"""Names the argument of a launch that Triton does not take, and what to pass instead."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asmtune.base.text import shortened
from asmtune.core.dtypes import dtype_of

if TYPE_CHECKING:
    from asmtune.triton_api.compiler import Toolchain


def refusal(toolchain: Toolchain, function: Any, values: Mapping[str, Any]) -> str | None:
    """Return which argument Triton refuses, and what to pass instead; None if it takes each.

    Triton's own binder is asked: its versions differ.
    """
    name = toolchain.refused_argument(function, values)
    return name and f"argument {name} is {_shown(values[name])}: {_advice(name, values[name])}"


def foreign_value(values: Mapping[str, Any]) -> str | None:
    """Return which argument is a number or dtype of another library, and what to pass instead.

    As a tl.constexpr it reaches the kernel's source as it is, where most uses of it fail.
    """
    numpy: Any = sys.modules.get("numpy")
    for name, value in values.items():
        if _is_dtype(value) or (numpy is not None and isinstance(value, numpy.generic)):
            return f"argument {name} is {_shown(value)}: {_advice(name, value)}"
    return None


def _is_dtype(value: Any) -> bool:
    """Return whether a value is a dtype of NumPy's or PyTorch's, which is none of Triton's."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, type) and issubclass(value, numpy.generic):
        return True
    kinds = [kind for kind in (getattr(module, "dtype", None) for module in (numpy, torch)) if kind]
    return isinstance(value, tuple(kinds))


def _shown(value: Any) -> str:
    if hasattr(value, "data_ptr"):
        return f"a tensor of {dtype_of(value)}, a dtype that Triton lacks"
    kind = type(value)
    return f"{shortened(ascii(value))} ({kind.__module__}.{kind.__qualname__})"


def _advice(name: str, value: Any) -> str:
    if hasattr(value, "data_ptr"):
        is_complex = getattr(value.dtype, "is_complex", False)
        view = f"torch.view_as_real({name})" if is_complex else f"{name}.view(torch.uint8)"
        return f"pass a view of a dtype that it has, such as {view}"
    if _is_dtype(value):
        return "pass a dtype of Triton's, such as tl.float16, to a tl.constexpr"
    if getattr(value, "shape", ()):
        return f"pass a tensor, such as torch.from_numpy({name}) on the GPU"
    number = "bool" if getattr(getattr(value, "dtype", None), "kind", "") == "b" else "float"
    if hasattr(value, "__index__") and number != "bool":
        number = "int"
    if hasattr(value, "dtype") or isinstance(value, numbers.Real):
        return f"pass {number}({name})"
    return "pass a number, a tensor, None or a tuple of them; a tl.constexpr takes other values"
