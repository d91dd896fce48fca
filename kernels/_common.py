"""Helpers of several kernels: checks of arguments, views, contracts, and parts of a module.

A contract is what the caller vouches for by a constexpr: here `MULTIPLE`, a power of two
that divides the width of a row and the strides between rows. Triton itself only knows
whether a number is a multiple of 16, so that rows of 1000 halves, which lie at multiples
of 16 bytes, would be loaded element by element. Where blocks divide `MULTIPLE`, masks go.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from asmtune.core.config import Config
from asmtune.core.dtypes import dtype_of, torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.runtime.call_trace import needs_gradient
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import refuse_second

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

FLOATS = ("fp32", "fp16", "bf16")
"""Dtypes of kernels that compute in fp32."""

_ANY = tl.constexpr("")
_MOST = 1 << 15
_MOST_ROWS = (1 << 31) - _MOST
_LEAST_WALK = 24
_OTHER_SMS = {"meta": 132, "cpu": 2}


def multiple(*numbers: int) -> int:
    """Give the largest power of two that divides all the numbers, at most 32768."""
    return math.gcd(_MOST, *numbers)


def row_sizes(**matrices: torch.Tensor) -> dict[str, int]:
    """Give sizes, strides and contract of kernels over rows, by kernel parameter."""
    rows, cols = next(iter(matrices.values())).shape
    strides = {f"stride_{name}": matrix.stride(0) for name, matrix in matrices.items()}
    return {"rows": rows, "cols": cols, **strides, "MULTIPLE": multiple(cols, *strides.values())}


@triton.jit
def vouched(number, MULTIPLE: tl.constexpr):
    """Return the number, written so that the compiler sees that MULTIPLE divides it."""
    return number // MULTIPLE * MULTIPLE


@triton.jit
def columns_from(start, MULTIPLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return columns of a ROWS x BLOCK tile, to load what all rows share as the rows are loaded.

    A load is laid out over the threads by what it may take at once. A single row, or one whose
    address is aligned better than those of a matrix of odd width, is laid out in another way
    than the tile, and goes through shared memory to meet it. So it is loaded for every row of
    the tile, out of L1, and in vectors no wider than the matrix has them.
    """
    column = (start + tl.arange(0, BLOCK))[None, :]
    if MULTIPLE < 8:  # 8 halves are 16 bytes, the most that a thread loads at once
        column = tl.max_contiguous(column, (1, MULTIPLE))
    return tl.broadcast_to(column, (ROWS, BLOCK))


@triton.jit
def load_columns(
    ptr, column, width, other: tl.constexpr, FULL: tl.constexpr, EVICT: tl.constexpr = _ANY
):
    """Load values in fp32 at the columns of rows that begin at `ptr`; FULL: all are within them.

    EVICT: "evict_last" for what will be read again, "evict_first" for what will not.
    """
    if FULL:
        values = tl.load(ptr + column, eviction_policy=EVICT)
    else:
        values = tl.load(ptr + column, mask=column < width, other=other, eviction_policy=EVICT)
    return values.to(tl.float32)


@triton.jit
def store_columns(ptr, column, width, values, FULL: tl.constexpr, EVICT: tl.constexpr = _ANY):
    """Store values, rounded to the tensor's dtype, where `load_columns` would load them."""
    values = values.to(ptr.dtype.element_ty)
    if FULL:
        tl.store(ptr + column, values, eviction_policy=EVICT)
    else:
        tl.store(ptr + column, values, mask=column < width, eviction_policy=EVICT)


def check_tensors(
    what: str, tensors: Mapping[str, torch.Tensor], dtypes: Sequence[str] = FLOATS
) -> None:
    """Refuse tensors on several devices, or of a dtype that is not in `dtypes`.

    Args:
        what: the public function's name.
        tensors: arguments by name; all are to have one dtype.
        dtypes: canonical names.

    Raises:
        ValueError: a tensor does not fit; the message names it, what it is and what it must be.
        TypeError: an argument is no tensor.
    """
    for name, tensor in tensors.items():
        check_plain(what, name, tensor)
    first_name, first = next(iter(tensors.items()))
    if dtype_of(first) not in dtypes:
        raise ValueError(
            f"{what}: {first_name} is {first.dtype}; it must be one of {', '.join(dtypes)}"
        )
    for name, tensor in tensors.items():
        if tensor.dtype != first.dtype or tensor.device != first.device:
            raise ValueError(
                f"{what}: {name} is {tensor.dtype} on {tensor.device}, and {first_name} is "
                f"{first.dtype} on {first.device}; convert one of them"
            )


def check_plain(what: str, name: str, tensor: Any) -> None:
    """Refuse what is no tensor, or whose values are not those in memory."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what}: {name} is {type(tensor).__name__}; it must be a torch.Tensor")
    if is_dynamo_compiling():  # it has neither
        return
    if tensor.is_neg():
        raise ValueError(
            f"{what}: {name} is a negated view, as the imaginary part of a conjugate; "
            "call its resolve_neg()"
        )
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise ValueError(f"{what}: {name} has a tangent, which the kernel does not carry on")


def check_shape(what: str, name: str, tensor: torch.Tensor, wanted: Sequence[int]) -> None:
    """Refuse a tensor of another shape."""
    if tuple(tensor.shape) != tuple(wanted):
        raise ValueError(f"{what}: {name} is {tuple(tensor.shape)}; it must be {tuple(wanted)}")


def check_rows(what: str, x: torch.Tensor) -> None:
    """Refuse a tensor whose last axis is missing or empty, or of more rows than 32 bits count."""
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"{what}: x is {tuple(x.shape)}; it must have one element or more a row")
    if x.numel() // x.shape[-1] > _MOST_ROWS:  # a program's last rows are counted past the end
        raise ValueError(f"{what}: x is {tuple(x.shape)}; it must have {_MOST_ROWS} rows at most")


def forward_only(what: str, *tensors: torch.Tensor) -> None:
    """Refuse tensors that require a gradient, which autograd would miss."""
    if torch.is_grad_enabled() and any(map(needs_gradient, tensors)):
        raise ValueError(
            f"{what} has no backward: call it under torch.no_grad(), or detach its arguments"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the backward of an autograd function, which autograd may not differentiate.

    PyTorch's function of this name gives results without a graph where the gradients that come
    in have none, as those of a sum. A second differentiation then misses what was saved.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *gradients: Any) -> Any:
        with torch.no_grad():
            results = backward(ctx, *gradients)
        name = type(ctx).__name__.removesuffix("Backward").strip("_").lower()
        return refuse_second(name, results, (*gradients, *ctx.saved_tensors))

    return once


def of_own_dtype(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function of tensors so that autocast leaves the dtype of its products alone.

    What it computes is of the dtype of its arguments.
    """

    @functools.wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> R:
        kind = next(value.device.type for value in args if isinstance(value, torch.Tensor))
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return function(*args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(*args, **kwargs)

    return apart


def flat_space(default: Config, blocks: Sequence[int], most: int) -> Space:
    """Build the space of kernels that treat all elements alike: BLOCK elements a program, warps."""
    axes = {"BLOCK": blocks, "num_warps": (1, 2, 4, 8, 16)}
    return Space(axes, default=default).where(
        f"a thread has 4 to {most} elements",
        lambda BLOCK, num_warps: 4 <= BLOCK // (num_warps * 32) <= most,
    )


def flat_grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid of kernels that treat all elements alike: BLOCK of n elements a program."""
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def dense(*tensors: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Allocate a result laid out as the tensors, and return them without gaps.

    Tensors that differ in layout or have gaps are copied. Kernels that treat all elements alike
    take the others as they lie in memory, transposed ones as well.
    """
    out = torch.empty_like(tensors[0])
    if all(tensor.stride() == out.stride() for tensor in tensors):
        return out, tensors
    copies = tuple(tensor.contiguous() for tensor in tensors)
    return torch.empty_like(copies[0]), copies


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """View x as a matrix of the rows along its last axis; copy it where rows have gaps."""
    return dense_rows(x.reshape(-1, x.shape[-1]))


def dense_rows(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose last axis has no gaps; copy any other."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def walkers(x: torch.Tensor) -> int:
    """Give how many programs walk the rows of a matrix and leave sums: one to eight an SM.

    More of them wait for memory in turn. Each writes sums in fp32 that are read again, which
    costs as much as two or three rows do, so that it is given 24 rows or more.
    """
    sms = processors(x.device)
    return min(x.shape[0], sms * max(1, min(x.shape[0] // (_LEAST_WALK * sms), 8)))


def is_hopper(device: torch.device) -> bool:
    """Return whether a device has the instructions of the Gluon kernels for Hopper."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


def is_expanded(x: torch.Tensor) -> bool:
    """Return whether elements of a tensor share memory, as an expanded one's do."""
    steps = zip(x.shape, x.stride(), strict=True)
    return any(extent > 1 and step == 0 for extent, step in steps)


def are_apart(x: torch.Tensor) -> bool:
    """Return whether rows of a matrix are dense, and begin no nearer than they are long."""
    return x.stride(1) == 1 and x.stride(0) >= x.shape[1]


def processors(device: torch.device) -> int:
    """Count streaming multiprocessors; an H200's for meta tensors, two for the interpreter."""
    if device.type in _OTHER_SMS:
        return _OTHER_SMS[device.type]
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


Inputs = Callable[[Mapping[str, Any], str, str], dict[str, Any]]


def draws(**extents: Sequence[str]) -> Inputs:
    """Return a module's `inputs`, which draws normal values.

    Args:
        extents: names of the extents in a shape, by argument of the public function.
    """

    def inputs(shape: Mapping[str, Any], dtype: str, device: str) -> dict[str, Any]:
        """Make random arguments of the public function by name."""
        kind = torch_dtype(dtype)
        sizes = {name: [shape[extent] for extent in names] for name, names in extents.items()}
        return {name: torch.randn(size, device=device).to(kind) for name, size in sizes.items()}

    return inputs


def problems(
    kernel: Any,
    name: str,
    inputs: Inputs,
    arguments: Callable[..., dict[str, Any]],
    grid: Any,
    known: Sequence[str] = (),
    options: Collection[str] = (),
) -> Callable[[Mapping[str, Any], str, str], Problem]:
    """Return a module's `problem`, which makes a launch on random inputs.

    Args:
        kernel: the kernel.
        name: its name in reports and in the store.
        inputs: the module's.
        arguments: gives a launch's arguments by name, of what `inputs` has made.
        grid: the launch's.
        known: arguments that the space's constraints name besides the shape's sizes.
        options: arguments that are options of Triton's.
    """

    def problem(shape: Mapping[str, Any], dtype: str, device: str) -> Problem:
        """Make a launch on random inputs; device "meta" makes tensors without memory."""
        with torch.no_grad():
            given = arguments(**inputs(shape, dtype, device))
        named = {**shape, **{n: given[n] for n in known}}
        return Problem(kernel, given, grid, named, name, frozenset(options))

    return problem


def exact(baseline: Callable[..., T], *names: str) -> Callable[[Mapping[str, Any]], T]:
    """Return a module's `reference`: its baseline in float64, of a launch's arguments by name."""

    def reference(arguments: Mapping[str, Any]) -> T:
        """Compute the result in float64 from a problem's arguments."""
        return baseline(*doubled(arguments, *names))

    return reference


def doubled(arguments: Mapping[str, Any], *names: str) -> list[Any]:
    """Return some of a launch's arguments, floating-point tensors in float64."""
    values = [arguments[name] for name in names]
    floats = [isinstance(v, torch.Tensor) and v.is_floating_point() for v in values]
    return [v.double() if wide else v for v, wide in zip(values, floats, strict=True)]


def by_name(kernel: Any, function: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """Return an alternative to a launch, which gives a function the arguments by name.

    It holds no kernel, which cannot be sent to the process that times.
    """
    names = tuple(kernel.arg_names)
    return lambda *values: function(dict(zip(names, values, strict=False)))


def gluon_in_place(kernel: Any, module: str) -> Callable[..., Any]:
    """Return the alternative by a Gluon kernel, whose module is loaded at the first call.

    Its `in_place_of_plain` gets the arguments of a launch of the plain kernel by name.
    """

    def launch(given: dict[str, Any]) -> None:
        import_module(f"asmtune.kernels.{module}").in_place_of_plain(given)

    return by_name(kernel, launch)


def tuners(
    kernel: Any,
    *,
    vendor: Mapping[str, Any],
    gluon: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Decorate a kernel once for each set of alternatives that a call may want.

    Args:
        kernel: the kernel.
        vendor: the vendor's functions of a launch, by name.
        gluon: the Gluon kernel for Hopper, by name, if there is one.
        options: of `asm_autotune`.

    Returns:
        As `beside` takes them: without alternatives, with the Gluon kernel, with the vendor's, with
        both; without a Gluon kernel the first and the third.
    """
    sets = [{}, vendor] if gluon is None else [{}, gluon, vendor, {**vendor, **gluon}]
    given: list[dict[str, Any]] = [{"alternatives": names} if names else {} for names in sets]
    if gluon is not None:
        given[1]["on_miss"] = "tune"  # the Gluon kernel has configs of its own to tune first
    return tuple(asm_autotune(**options, **more)(kernel) for more in given)


def beside(tuners: Sequence[T], vendor: bool, gluon: bool) -> T:
    """Return a kernel's tuner by the alternatives that are wanted.

    Args:
        tuners: with no alternatives, with the Gluon kernel, with the vendor's, with both.
        vendor: the vendor's function is wanted.
        gluon: the Gluon kernel for Hopper is wanted, and takes the launch.
    """
    return tuners[2 * vendor + gluon]
