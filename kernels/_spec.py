"""Parts of a kernel's module that follow from others: inputs, problem, reference and tuners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import torch

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.runtime.decorator import asm_autotune

T = TypeVar("T")

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
) -> Callable[[Mapping[str, Any], str, str], Problem]:
    """Return a module's `problem`, which makes a launch on random inputs.

    Args:
        kernel: the kernel.
        name: its name in reports and in the store.
        inputs: the module's.
        arguments: gives a launch's arguments by name, of what `inputs` has made.
        grid: the launch's.
        known: arguments that the space's constraints name besides the shape's sizes.
    """

    def problem(shape: Mapping[str, Any], dtype: str, device: str) -> Problem:
        """Make a launch on random inputs; device "meta" makes tensors without memory."""
        with torch.no_grad():
            given = arguments(**inputs(shape, dtype, device))
        return Problem(kernel, given, grid, {**shape, **{n: given[n] for n in known}}, name)

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
    """Return an alternative to a launch, which gives a function the arguments by name."""
    return lambda *values: function(dict(zip(kernel.arg_names, values, strict=False)))


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
    ours: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Decorate a kernel once for each set of alternatives that a call may want.

    Args:
        kernel: the kernel.
        vendor: the vendor's functions of a launch, by name.
        gluon: the Gluon kernel for Hopper, by name, if there is one.
        ours: functions that are always candidates.
        options: of `asm_autotune`.

    Returns:
        As `beside` takes them: with `ours` alone, with the Gluon kernel, with the vendor's, with
        both; without a Gluon kernel the first and the third.
    """
    own = ours or {}
    sets = [own, {**own, **vendor}]
    if gluon is not None:
        sets = [own, {**own, **gluon}, {**own, **vendor}, {**own, **vendor, **gluon}]
    given = ({"alternatives": names} if names else {} for names in sets)
    return tuple(asm_autotune(**options, **more)(kernel) for more in given)


def beside(tuners: Sequence[T], vendor: bool, gluon: bool) -> T:
    """Return a kernel's tuner by the alternatives that are wanted.

    Args:
        tuners: with no alternatives, with the Gluon kernel, with the vendor's, with both.
        vendor: the vendor's function is wanted.
        gluon: the Gluon kernel for Hopper is wanted, and takes the launch.
    """
    return tuners[2 * vendor + gluon]
