"""GELU, by erf or by tanh: x times the normal distribution's share below x.

Shapes: any. Dtypes: fp32, fp16, bf16; computed in fp32.
Layout: any. A tensor without gaps is taken as it lies, another is copied.
Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415. The tanh form
is written as x * sigmoid(2 u), which is the same and keeps its digits where tanh is near -1.
The other takes the share beyond |x| as 2 to the power of a polynomial, minimax for the error of
the product, which is 9e-8 before rounding: 14 instructions an element, where libdevice's erf
takes 32, more than the memory leaves time for in halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import (
    FLOATS,
    by_name,
    check_tensors,
    dense,
    flat_grid,
    flat_space,
    forward_only,
    problems,
    tuners,
)
from asmtune.runtime.replay_calls import replay_calls


@triton.jit
def gelu_of(x, TANH: tl.constexpr):
    """Compute GELU of values in fp32."""
    if TANH:
        # 1.5957691216 is 2 sqrt(2 / pi).
        share = 1.0 / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    else:
        # The share beyond |x| is 2 to the power of minus these: 1 at 0, and infinity at infinity.
        a = tl.abs(x)
        bits = 3.38488499e-05 + a * (-9.91908746e-06 + a * 5.74672299e-07)
        bits = -0.00762814702 + a * (0.000536600885 + a * bits)
        bits = 0.459062517 + a * (0.0529155359 + a * bits)
        bits = 1.0 + a * (1.15112209 + a * bits)
        beyond = tl.exp2(-bits)
        share = tl.where(x < 0.0, beyond, 1.0 - beyond)
    return x * share


@triton.jit
def gelu_of_halves(x):
    """Compute GELU by erf, for results of 16 bits: to within 0.15 units of fp16's last place."""
    # As above, by a polynomial of degree 5 in place of 8, with the sign of the exponent: to negate
    # is an instruction of its own.
    a = tl.abs(x)
    bits = -0.0488774221 + a * (0.00599589424 + a * -0.000336576056)
    bits = -1.0 + a * (-1.14990279 + a * (-0.463055789 + a * bits))
    beyond = tl.exp2(bits)
    return x * tl.where(x < 0.0, beyond, 1.0 - beyond)


@triton.jit(do_not_specialize=["n"])
def kernel(x_ptr, y_ptr, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """Compute BLOCK elements a program."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        y = gelu_of(tl.load(x_ptr + at).to(tl.float32), TANH)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty))
    else:
        y = gelu_of(tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32), TANH)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS

SHAPES = (
    {"n": 1 << 26, "tanh": 0},
    {"n": 1 << 26, "tanh": 1},
    {"n": 1 << 20, "tanh": 1},
    {"n": 10_000_019, "tanh": 0},
)

FORMS = ("none", "tanh")
"""The names of `torch.nn.functional.gelu`: by erf, and by tanh."""

DEFAULT = Config({"BLOCK": 1024}, num_warps=4)
"""Eight elements a thread."""

space = partial(flat_space, DEFAULT, (256, 512, 1024, 2048, 4096, 8192), 32)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `gelu` by name; tanh: 1 for that form, 0 for erf."""
    x = torch.randn(shape["n"], device=device).to(torch_dtype(dtype))
    return {"x": x, "approximate": FORMS[shape["tanh"]]}


def baseline(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    if approximate == "tanh":
        cubic = 0.7978845608028654 * (x + 0.044715 * x**3)
        return 0.5 * x * (1.0 + torch.tanh(cubic))
    return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the result in float64 from a problem's arguments."""
    return baseline(arguments["x_ptr"].double(), FORMS[bool(arguments["TANH"])])


def _made(given: dict[str, Any]) -> None:
    """Compute the result of a launch by PyTorch."""
    torch.ops.aten.gelu.out(given["x_ptr"], approximate=FORMS[given["TANH"]], out=given["y_ptr"])


def _torch(x: torch.Tensor, approximate: str = "none", **_: bool) -> torch.Tensor:
    """Compute `gelu` by PyTorch."""
    return torch.nn.functional.gelu(x, approximate=approximate)


@replay_calls(alternatives={"torch": _torch})
def gelu(x: torch.Tensor, approximate: str = "none", *, vendor: bool = True) -> torch.Tensor:
    """Compute GELU by the tuned kernel.

    Args:
        x: tensor of a dtype of DTYPES, on a GPU, of any shape and layout.
        approximate: "none" for erf, "tanh" for that form.
        vendor: call PyTorch's function where tuning has found it faster, and while it has not.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: the dtype or the form is not one of those, or a gradient is asked for.
    """
    forward_only("gelu", x)
    check_tensors("gelu", {"x": x}, DTYPES)
    if approximate not in FORMS:
        raise ValueError(f"gelu: approximate is {approximate!r}; it must be one of {FORMS}")
    arguments = _arguments(x, approximate)
    if x.numel():
        (_tuned if vendor else _alone)[flat_grid](**arguments)
    return arguments["y_ptr"]


def _arguments(x: torch.Tensor, approximate: str) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    y, (x,) = dense(x)
    return {"x_ptr": x, "y_ptr": y, "n": x.numel(), "TANH": approximate == "tanh"}


problem = problems(kernel, "gelu", inputs, _arguments, flat_grid)
_vendor = {"torch": by_name(kernel, _made)}
_alone, _tuned = tuners(kernel, vendor=_vendor, space=space, key=(pow2("n"), "TANH"))
