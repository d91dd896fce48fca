"""Kernels as the command line names them: by module, function, or host function."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from asmtune.base.errors import InputError
from asmtune.core.assumed_import import importing_for
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.plain_functions import plain_function
from asmtune.core.inputs.shapes import (
    check_inputs,
    named_text,
    parse_assignments,
    parse_axis,
    unique,
)
from asmtune.core.kernel_module import (
    check_reference,
    import_module,
    kernel_names,
    load_kernel_module,
    load_named,
)
from asmtune.core.space.space import AUTO, Space
from asmtune.runtime.offline.kernel_sources import LoadedKernel, load_kernel

if TYPE_CHECKING:
    from asmtune.triton_api.assumed_gpu import AssumedGpu

Shape = Annotated[str | None, typer.Option(help="Sizes: M=4096,N=4096,K=4096.")]
Dtype = Annotated[str | None, typer.Option(help="One of the kernel's dtypes; default its first.")]
Axes = Annotated[list[str], typer.Option(help="NAME=V1,V2: replaces an axis of the space.")]
Arguments = Annotated[
    list[str],
    typer.Option(
        help="NAME=VALUE, for a function: a number, a text, a dtype, fp16[M,K] or fp16[K,N].T for "
        "a tensor, [A, B] for a list."
    ),
]
Grid = Annotated[
    str | None, typer.Option(help='Programs of a function\'s kernel: "cdiv(n, BLOCK), batch".')
]
SpaceOption = Annotated[
    str | None,
    typer.Option(help="auto: axes from the source of a function's kernel, by its block sizes."),
]
Only = Annotated[
    str | None,
    typer.Option("--kernel", metavar="NAME", help="A kernel of those that the function launches."),
]


@dataclass(frozen=True)
class KernelArguments:
    """A kernel as the command line names it.

    Attributes:
        kernel: a shipped kernel's name, a file, or `file.py:function`: a kernel, or a host
            function that launches some.
        shape: "M=4096,N=4096,K=4096"; None, like `dtype`, for the module's first.
        axes: "NAME=v1,v2" each; they replace the space's own.
        values: "name=value" each, of a function.
        grid: "cdiv(n, BLOCK)", of a kernel's function.
        only: name of a kernel, of those that a host function launches.
        space: "auto" for a space that is proposed from the source of a function's kernel.
    """

    kernel: str
    shape: str | None = None
    dtype: str | None = None
    axes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    grid: str | None = None
    only: str | None = None
    space: str | None = None

    def load(self, target: Target, place: str = "meta") -> list[LoadedKernel]:
        """Make problems, on meta tensors, and their spaces: one for each launch.

        A file is imported, and a host function called, as on the target, on tensors of a place.

        Raises:
            InputError: an argument is malformed or does not fit the kernel.
        """
        axes = unique("--axis", map(parse_axis, self.axes))
        Space(axes)  # all of this is refused before PyTorch and the kernel's file are imported
        unique("--arg", map(named_text, self.values))
        is_shaped = bool(self.shape or self.dtype)
        with_functions([self.kernel], replace(self, axes=()), is_shaped=is_shaped)
        if self.space not in (None, AUTO):
            raise InputError(
                f"--space {self.space}: expected auto; --axis NAME=V1,V2 gives an axis"
            )
        if ":" in self.kernel:
            return self._function(target, axes, place)
        check_inputs((), self.dtype)
        shape = None if self.shape is None else parse_assignments(self.shape, "--shape")
        with nullcontext() if self.kernel in kernel_names() else importing_for(_gpu(target)):
            module = load_kernel_module(self.kernel)
        return [load_kernel(module, shape=shape, dtype=self.dtype, axes=axes)]

    def one(self, target: Target, place: str = "meta") -> LoadedKernel:
        """Load as `load` does, for a command that takes one kernel.

        Raises:
            InputError: a host function launches several.
        """
        loaded = self.load(target, place)
        if len(loaded) > 1:
            names = ", ".join(dict.fromkeys(one.problem.name for one in loaded))
            raise InputError(
                f"{self.kernel} makes {len(loaded)} launches, of {names}: "
                "name a kernel that it launches once, as --kernel NAME"
            )
        return loaded[0]

    def _function(
        self, target: Target, axes: dict[str, list[object]], place: str
    ) -> list[LoadedKernel]:
        from asmtune.runtime.offline.host_arguments import parse_arguments
        from asmtune.runtime.offline.host_functions import (
            host_launches,
            is_host_function,
            with_options,
        )

        where, gpu = self.kernel.rpartition(":")[0], _gpu(target)
        with importing_for(gpu):
            function, module = load_named(self.kernel), import_module(where)
            if is_host_function(function):
                given = parse_arguments(function, self.values, self.kernel)
                loaded = host_launches(function, given, gpu, self.kernel, module, place)
                chosen = map(self._proposed, self._chosen(loaded))
                return [with_options(one, axes, self.grid) for one in chosen]
            if self.only is not None:
                raise InputError(f"--kernel is for a host function, and {self.kernel} is a kernel")
            problem, space = plain_function(self.kernel, self.values, self.grid, axes)
        plain = LoadedKernel(problem, space)
        proposed = self._proposed(plain)
        return [replace(proposed, space=proposed.space.replace(**axes)) if self.space else plain]

    def _proposed(self, loaded: LoadedKernel) -> LoadedKernel:
        """Give a launch the space that its kernel's source proposes, if that was asked for."""
        if self.space is None:
            return loaded
        from asmtune.core.space.proposal import proposal_for

        problem, proposal = proposal_for(loaded.problem, loaded.space)
        notes = (*loaded.notes, *proposal.notes)
        return replace(loaded, problem=problem, space=proposal.space, notes=notes)

    def _chosen(self, loaded: list[LoadedKernel]) -> list[LoadedKernel]:
        chosen = [one for one in loaded if self.only in (None, one.problem.name)]
        if not chosen:
            names = ", ".join(dict.fromkeys(one.problem.name for one in loaded))
            raise InputError(f"--kernel {self.only}: {self.kernel} launches {names}")
        return chosen


def with_functions(
    kernels: Sequence[str], options: KernelArguments, *, is_shaped: bool
) -> list[str | KernelArguments]:
    """Give the functions among kernels their options; names of modules stay.

    Raises:
        InputError: there is no such kernel, or an option is for functions or modules alone.
    """
    for kernel in kernels:
        check_reference(kernel)
    functions = [kernel for kernel in kernels if ":" in kernel]
    names = ("--axis", "--arg", "--grid", "--kernel", "--space")
    values = (options.axes, options.values, options.grid, options.only, options.space)
    given = [name for name, value in zip(names, values, strict=True) if value]
    if given and not functions:
        raise InputError(f"{given[0]} is for a function, named as file.py:function")
    if functions and is_shaped and len(functions) == len(kernels):
        raise InputError("--shape and --dtype are for kernel modules; give a function --arg")
    return [replace(options, kernel=one) if one in functions else one for one in kernels]


def _gpu(target: Target) -> AssumedGpu:
    from asmtune.runtime.offline.host_functions import assumed_gpu  # loads PyTorch

    return assumed_gpu(target)
