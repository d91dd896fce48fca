"""Kernels as a user names them, and what the stores hold of them.

`load_kernel` makes a problem and a space of a kernel's name, file, module or problem.
`StoredLaunch` finds the tuned config of a launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import shortened
from asmtune.core.failures import required
from asmtune.core.kernel_module import KernelModule, Shape, load_kernel_module, space_of
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.core.space.space import AUTO, Space
from asmtune.triton_api.jit_functions import jit_function

if TYPE_CHECKING:
    from asmtune.runtime.autotuner import AsmAutotuner


KernelSource = str | Path | KernelModule
"""A kernel module: a shipped kernel's name, a dotted name, a file, or the module itself."""


@dataclass(frozen=True)
class LoadedKernel:
    """A launch on meta tensors, and its configs; no module if the problem is the user's own.

    Attributes:
        notes: what a reader of its report must know, a sentence each.
    """

    problem: Problem
    space: Space
    module: KernelModule | None = None
    notes: tuple[str, ...] = ()


def kernel_module(kernel: KernelSource) -> KernelModule:
    """Return a kernel module, loaded if it is given by name or file.

    Raises:
        InputError: it is unknown, cannot be imported, or is a plain function.
    """
    if isinstance(kernel, KernelModule):
        return kernel
    if not isinstance(kernel, str | Path):
        raise ArgumentTypeError(
            f"{shortened(repr(kernel))} is no kernel module: give a module's name or file, or to "
            "prune_report a Problem and a Space: Problem(kernel, {'n': 4096, ...}, grid)"
        )
    if ":" in str(kernel):
        raise InputError(
            f"{str(kernel)!r} is a plain function: give a Problem and a Space, or write a kernel "
            "module (kernels/tiled_matmul.py is the template)"
        )
    return load_kernel_module(str(kernel))


def listed(values: Any) -> list[Any]:
    """Return a list, also of a single text, path, mapping or kernel module."""
    is_many = isinstance(values, Sequence) and not isinstance(values, str)
    return list(values) if is_many else [values]


def reference_of(kernel: KernelSource) -> str:
    """Return the name or absolute path by which another process can load a kernel module."""
    if isinstance(kernel, KernelModule):
        if kernel.python is None:
            return kernel.name
        name, file = kernel.python.__name__, kernel.python.__file__
        is_package = name.startswith("asmtune.kernels.")
        kernel = kernel.name if is_package else file if file and "." not in name else name
    path = Path(kernel)
    named_by_path = path.suffix == ".py" or "/" in str(kernel)
    return str(path.resolve()) if named_by_path else str(kernel)


def load_kernel(
    kernel: KernelSource | Problem,
    space: Any = None,
    *,
    shape: Shape | None = None,
    dtype: str | None = None,
    axes: Mapping[str, Iterable[Any]] | None = None,
) -> LoadedKernel:
    """Make the problem and the space of a kernel module, or of a problem with a `space`.

    By default space, first shape and first dtype are the module's; `axes` replace the space's.
    "auto" is the space that a problem's kernel proposes.

    Raises:
        InputError: the kernel is unknown, or shape, dtype, axes or space do not fit it.
    """
    module: KernelModule | None = None
    notes: tuple[str, ...] = ()
    if isinstance(kernel, Problem):
        if space is None or shape is not None or dtype is not None:
            raise InputError(
                f"problem {kernel.name}: give its space, and neither shape nor dtype, "
                "which the problem holds"
            )
        if isinstance(space, str) and space == AUTO:
            from asmtune.core.space.proposal import proposal_for

            problem, proposal = proposal_for(kernel, space_of(kernel.kernel))
            searched, notes = proposal.space, proposal.notes
        else:
            problem, searched = kernel, Space.of(space)
    else:
        module = kernel_module(kernel)
        problem = _problem(module, shape, dtype)
        own = f"space of kernel {module.name}"
        searched = required(own, module.space) if space is None else Space.of(space)
    return LoadedKernel(problem, searched.replace(**axes) if axes else searched, module, notes)


def _problem(module: KernelModule, shape: Shape | None, dtype: str | None) -> Problem:
    if shape is None:
        shape = module.shapes[0] if module.shapes else {}
    name, sizes = module.check_dtype(dtype), module.check_shape(shape)
    words = " ".join(f"{key}={value}" for key, value in sizes.items())
    return required(f"kernel {module.name} on {words}", lambda: module.problem(sizes, name, "meta"))


@dataclass(frozen=True)
class StoredLaunch:
    """A launch whose config a store may hold; a tuner, if its module decorates the kernel."""

    problem: Problem
    space: Space
    tuner: AsmAutotuner | None

    def identity(self, device: str) -> tuple[TuneKey, Provenance]:
        """Return the key of its launches, else one of its shape; and the provenance to expect."""
        if self.tuner is not None:
            request = self.tuner.request({}, self.problem.arguments, (1,), device)
            return request.key, request.expected
        from asmtune.tuning.request import key_of, provenance

        return key_of(self.problem, device), provenance(self.problem, self.space)


def tuner_of(module: KernelModule) -> AsmAutotuner | None:
    """Find the autotuner of a module's kernel, if the module decorates it."""
    from asmtune.runtime.decorator import autotuners

    tuners = autotuners(module.python) if module.python is not None else []
    own = jit_function(module.kernel)
    return next((tuner for tuner in tuners if jit_function(tuner.fn) is own), None)
