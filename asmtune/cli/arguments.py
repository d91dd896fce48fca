"""What the commands share: reading a kernel, its shape, dtype and axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.plain_functions import assumptions_of, plain_function
from asmtune.core.inputs.shapes import parse_assignments, parse_axis, unique
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.store.lookup import StoreLookup
from asmtune.studies.stored import StoredLaunch, existing_store, tuner_of


@dataclass(frozen=True)
class LoadedKernel:
    """What a command line names, on meta tensors.

    Attributes:
        problem: the launch.
        space: its configs.
        module: the kernel module; None of a plain function.
    """

    problem: Problem
    space: Space
    module: KernelModule | None = None


@dataclass(frozen=True)
class KernelArguments:
    """A kernel as the command line names it.

    Attributes:
        kernel: a shipped kernel's name, a file, or `file.py:function`.
        shape: "M=4096,N=4096,K=4096", or None for the module's first.
        dtype: of the module's, or None for its first.
        axes: "NAME=v1,v2" each; they replace the space's own.
        values: "name=value" each, arguments of a plain function.
        grid: "cdiv(n, BLOCK)", of a plain function; None for one program.
    """

    kernel: str
    shape: str | None = None
    dtype: str | None = None
    axes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    grid: str | None = None

    def load(self) -> tuple[Problem, Space]:
        """The problem, on meta tensors, and its space.

        Raises:
            InputError: anything that does not fit; one line each.
        """
        loaded = self.load_all()
        return loaded.problem, loaded.space

    def load_all(self) -> LoadedKernel:
        """As `load`, with the module that they come from.

        Raises:
            InputError: as `load`.
        """
        axes = unique("--axis", map(parse_axis, self.axes))
        if ":" in self.kernel:
            if self.shape is not None or self.dtype is not None:
                raise InputError(
                    "--shape and --dtype are for kernel modules; give a function --arg"
                )
            return LoadedKernel(*plain_function(self.kernel, self.values, self.grid, axes))
        if self.values:
            raise InputError("--arg is for a plain function, named as file.py:function")
        if self.grid is not None:
            raise InputError("--grid is for a plain function, named as file.py:function")
        module = load_kernel_module(self.kernel)
        shape = module.shapes[0] if self.shape is None else parse_assignments(self.shape, "--shape")
        dtype = module.check_dtype(self.dtype)
        checked = module.check_shape(shape)
        problem = required(
            f"kernel {module.name} on {_words(checked)}",
            lambda: module.problem(checked, dtype, "meta"),
        )
        space = required(f"space of kernel {module.name}", module.space)
        return LoadedKernel(problem, space.replace(**axes) if axes else space, module)

    def assumptions(self) -> tuple[str, ...]:
        """What a report takes for granted, a sentence each; nothing for a kernel module.

        Raises:
            InputError: as `load`.
        """
        return assumptions_of(self.load()[0]) if ":" in self.kernel else ()


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def tuned_of(loaded: LoadedKernel, target: Target, settings: Settings) -> StoreLookup:
    """What the user's store, or else the shipped files, hold of a problem on a target's device.

    Raises:
        StoreError: the store's folder cannot be looked into.
        InputError: a shipped file is malformed.
    """
    tuner = None if loaded.module is None else tuner_of(loaded.module)
    return StoredLaunch(loaded.problem, loaded.space, tuner).found_on(
        target, existing_store(settings)
    )
