"""A kernel with its shape, dtype and axes, as commands take it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from asmtune.base.errors import InputError
from asmtune.core.inputs.plain_functions import assumptions_of, plain_function, with_patterns
from asmtune.core.inputs.shapes import check_inputs, parse_assignments, parse_axis, unique
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.runtime.offline.kernel_sources import LoadedKernel, load_kernel


@dataclass(frozen=True)
class KernelArguments:
    """A kernel as the command line names it.

    Attributes:
        kernel: a shipped kernel's name, a file, or `file.py:function`.
        shape: "M=4096,N=4096,K=4096"; None, like `dtype`, for the module's first.
        axes: "NAME=v1,v2" each; they replace the space's own.
        values: "name=value" each, of a plain function; "name=pattern" of index tensors.
        grid: "cdiv(n, BLOCK)", of a plain function.
    """

    kernel: str
    shape: str | None = None
    dtype: str | None = None
    axes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    grid: str | None = None

    def load(self) -> tuple[Problem, Space]:
        """Make the problem, on meta tensors, and its space.

        Raises:
            InputError: an argument is malformed or does not fit the kernel.
        """
        loaded = self.load_all()
        return loaded.problem, loaded.space

    def load_all(self) -> LoadedKernel:
        """Make both, with the module that they come from.

        Raises:
            InputError: as `load`.
        """
        axes = unique("--axis", map(parse_axis, self.axes))
        Space(axes)  # refuses malformed values before the kernel's file is imported
        if ":" in self.kernel:
            if self.shape is not None or self.dtype is not None:
                raise InputError(
                    "--shape and --dtype are for kernel modules; give a function --arg"
                )
            return LoadedKernel(*plain_function(self.kernel, self.values, self.grid, axes))
        if self.grid is not None:
            raise InputError("--grid is for a plain function, named as file.py:function")
        check_inputs((), self.dtype)
        shape = None if self.shape is None else parse_assignments(self.shape, "--shape")
        module = load_kernel_module(self.kernel)
        loaded = load_kernel(module, shape=shape, dtype=self.dtype, axes=axes)
        return replace(loaded, problem=with_patterns(loaded.problem, self.values))

    def assumptions(self) -> tuple[str, ...]:
        """List what a report of a plain function assumes, a sentence each."""
        return assumptions_of(self.load()[0]) if ":" in self.kernel else ()
