"""Kernel modules: Python files that define a kernel, its configs and its problems.

A module of asmtune's own form (kernels/tiled_matmul.py is the template) defines

    kernel                            the @triton.jit function
    space() -> Space                  its configs
    SHAPES                            shapes it is measured on, as mappings
    DTYPES                            dtypes by name, the default first
    OPTIONAL                          values of dimensions that a shape may leave out, if any
    problem(shape, dtype, device)     the Problem; device "meta" needs no GPU

Two other forms are read as well: a module with `kernel`, `space()`, `SHAPES`, `DTYPE` and
`make(shape, device)`, as the recorded timings have, and any Triton function of any file,
`file.py:name`. A failing import is reported in one line with the line of the file.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from asmtune.base.errors import ProblemError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.assumed_import import left_out
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.failures import required
from asmtune.core.index_values import is_index, values_of
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.core.user_modules import (
    check_file,
    file_mode,
    find_module,
    import_dotted,
    import_file,
    user_code,
)
from asmtune.triton_api.jit_functions import (
    is_jit_function,
    is_kernel,
    jit_function,
    python_function,
)


def kernel_names() -> tuple[str, ...]:
    """Return the names of the kernels that ship with asmtune."""
    package = importlib.import_module("asmtune.kernels")
    names = (m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in names if not name.startswith("_")))


def import_module(reference: str) -> ModuleType:
    """Import a shipped kernel by name, a file by path, or a module by dotted name.

    See `core.user_modules` for what a file or module may import.

    Raises:
        ProblemError: it does not exist, or its code raised; names the line.
    """
    return _importer(reference)()


def check_reference(reference: str) -> None:
    """Make sure that the file or module of a kernel's reference is there; import nothing of it.

    Raises:
        ProblemError: it is not.
    """
    where, colon, _ = reference.rpartition(":")
    _importer(where if colon else reference)


def _importer(reference: str) -> Callable[[], ModuleType]:
    path = Path(reference)
    if path.suffix == ".py" or "/" in reference:
        check_file(path)
        return partial(import_file, path)
    if reference in kernel_names():
        return partial(importlib.import_module, f"asmtune.kernels.{reference}")
    if find_module(reference) is not None:
        return partial(import_dotted, reference)
    if reference and file_mode(path):
        return partial(import_file, path)
    hint = did_you_mean(reference, kernel_names())
    if file_mode(Path(f"{reference}.py")):
        hint = f"; did you mean {reference}.py?"
    raise ProblemError(
        f"unknown kernel {shortened(reference, 200)!r}: the kernels are "
        f"{', '.join(kernel_names())}{hint}; give a file as path/to/kernel.py"
    )


Shape = Mapping[str, Any]


@dataclass(frozen=True)
class KernelModule:
    """A kernel with its space and a way to make problems.

    Attributes:
        name: the module's name in reports.
        kernel: the Triton function.
        space: makes the space of configs.
        problem: makes a problem from (shape, dtype, device).
        shapes: shapes it is measured on; the first is the default.
        dtypes: canonical names; the first is the default.
        python: the module that it was read from.
        optional: values of dimensions that a shape may leave out.
    """

    name: str
    kernel: Any
    space: Callable[[], Space]
    problem: Callable[[Shape, str, str], Problem]
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    python: ModuleType | None = None
    optional: Mapping[str, Any] = field(default_factory=dict)

    def check_shape(self, shape: Shape) -> Shape:
        """Check a shape against the dimensions of the module's own, and add optional ones.

        Raises:
            ProblemError: a dimension is missing or unknown, or has a value unlike those of the
                module's own shapes; names it.
        """
        if not isinstance(shape, Mapping):
            raise ProblemError(f"kernel {self.name}: shape {shape!r} is no mapping of sizes")
        shape = {**self.optional, **shape}
        wanted = self.shapes[0].keys() if self.shapes else shape.keys()
        missing = [name for name in wanted if name not in shape]
        unknown = [name for name in shape if name not in wanted]
        example = ",".join(f"{k}={v}" for k, v in self.shapes[0].items()) if self.shapes else ""
        if missing:
            raise ProblemError(
                f"kernel {self.name}: the shape lacks {', '.join(missing)}; write --shape {example}"
            )
        if unknown:
            raise ProblemError(
                f"kernel {self.name} has no dimension {unknown[0]!r}; write --shape {example}"
            )
        for name, value in shape.items():
            own = [one[name] for one in (self.optional, *self.shapes) if name in one]
            if (expected := _expected(value, own)) is not None:
                text = shortened(repr(value))
                raise ProblemError(f"kernel {self.name}: {name} is {text}; expected {expected}")
        return shape

    def check_dtype(self, dtype: str | None) -> str:
        """Return the canonical name of a supported dtype (default: the module's first).

        Raises:
            ProblemError: the module does not support it; lists those it does.
        """
        if dtype is None:
            return self.dtypes[0]
        name = canonical_dtype(dtype)
        if name not in self.dtypes:
            raise ProblemError(
                f"kernel {self.name} does not support {name}: one of {', '.join(self.dtypes)}"
            )
        return name


_LARGEST: Final = 2**48  # bytes that a GPU can address


def _expected(value: Any, own: Sequence[Any]) -> str | None:
    """Say what a dimension's value is expected to be; None if it is alike to a module's own."""
    kinds = {type(one) for one in own}
    is_flag = type(value) in (int, bool) and value in (0, 1)
    if not own or type(value) in kinds - {int, float} or (is_flag and set(own) <= {0, 1}):
        return None
    if kinds == {int} and isinstance(value, float) and value.is_integer():
        return f"a whole number, written as {shortened(f'{value:.0f}')}"
    if int in kinds:
        least = min(1, *(one for one in own if type(one) is int), 1)
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        is_whole = is_whole and least <= value <= _LARGEST
        return None if is_whole else f"a whole number from {least} to {_LARGEST}"
    if float in kinds:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and abs(value) <= sys.float_info.max else "a finite number"
    return "true or false" if kinds == {bool} else f"a value such as {own[0]!r}"


def load_kernel_module(reference: str) -> KernelModule:
    """Load the kernel module of a shipped kernel's name or of a file's path.

    Raises:
        ProblemError: it is unknown, cannot be imported, or lacks a part.
    """
    return from_python_module(import_module(reference))


def load_named(reference: str) -> Any:
    """Load what `file.py:name`, `file.py:Class.name` or `package.module:name` names.

    Raises:
        ProblemError: there is no such file or name.
    """
    where, _, name = reference.rpartition(":")
    module = import_module(where)
    try:
        value = operator.attrgetter(name)(module)
    except AttributeError:
        value = None
    if value is None:
        names = kernels_in(module)
        listed = f"; its Triton functions are {', '.join(names)}" if names else ""
        missed = left_out(module)
        listed += f"; {missed}" if missed else ""
        raise ProblemError(f"{where} defines no {name!r}{did_you_mean(name, vars(module))}{listed}")
    return value


def load_function(reference: str) -> Any:
    """Load the Triton function that `file.py:name` or `package.module:name` names.

    A plain Python function is decorated with `triton.jit`.

    Raises:
        ProblemError: there is no such file or name, or it is not a function.
    """
    function = load_named(reference)
    if inspect.isfunction(function):
        import triton

        where, _, name = reference.rpartition(":")
        function = required(f"{where}: triton.jit of {name}", lambda: triton.jit(function))
    jit_function(function)
    return function


def kernels_in(module: ModuleType) -> list[str]:
    """List the names of the Triton functions that a module itself defines, in its order."""
    functions = {n: python_function(v) for n, v in vars(module).items() if is_kernel(v)}
    return [n for n, f in functions.items() if getattr(f, "__module__", "") == module.__name__]


def from_python_module(module: ModuleType) -> KernelModule:
    """Read a module of either form.

    Raises:
        ProblemError: a part is missing; names it.
    """
    where = Path(module.__file__ or module.__name__).stem
    for part in ("kernel", "space", "SHAPES"):
        if not hasattr(module, part):
            names = kernels_in(module)
            owner = module.__name__ if "." in module.__name__ else f"{where}.py"
            listed = f"; its Triton functions are {', '.join(names)}" if len(names) > 1 else ""
            raise ProblemError(
                f"kernel module {where} defines no {part!r}; kernels/tiled_matmul.py shows the "
                f"form, and a single function is named as {owner}:{(*names, 'FUNCTION')[0]}{listed}"
            )
    if hasattr(module, "problem"):
        problem, dtypes = _own_problem(module, where), _dtypes(module, where)
    elif hasattr(module, "make"):
        if not hasattr(module, "DTYPE"):
            raise ProblemError(f"kernel module {where} defines 'make' but no 'DTYPE'")
        dtypes = (canonical_dtype(str(module.DTYPE)),)
        problem = _oracle_problem(module, where)
    else:
        raise ProblemError(f"kernel module {where} defines neither 'problem' nor 'make'")

    def any_problem(shape: Shape, dtype: str, device: str) -> Problem:
        make = partial(problem, shape, dtype, device)
        return _with_index_values(make) if device == "meta" else make()

    return KernelModule(
        name=where,
        kernel=module.kernel,
        space=lambda: _space_of(module),
        problem=any_problem,
        shapes=tuple(module.SHAPES),
        dtypes=dtypes,
        python=module,
        optional=dict(getattr(module, "OPTIONAL", {})),
    )


def _space_of(module: ModuleType) -> Space:
    with user_code(module):
        return Space.of(module.space())


def _dtypes(module: ModuleType, where: str) -> tuple[str, ...]:
    dtypes = tuple(map(canonical_dtype, getattr(module, "DTYPES", ())))
    if not dtypes:
        raise ProblemError(f"kernel module {where} defines no 'DTYPES', or an empty one")
    return dtypes


def _own_problem(module: ModuleType, name: str) -> Callable[[Shape, str, str], Problem]:
    def problem(shape: Shape, dtype: str, device: str) -> Problem:
        with user_code(module):
            result = module.problem(shape, dtype, device)
        if not isinstance(result, Problem):
            kind = type(result).__name__
            raise ProblemError(f"kernel module {name}: problem() gave {kind}, not a Problem")
        return result

    return problem


def _oracle_problem(module: ModuleType, name: str) -> Callable[[Shape, str, str], Problem]:
    def problem(shape: Shape, dtype: str, device: str) -> Problem:  # noqa: ARG001
        with user_code(module):
            launch = module.make(shape, device=device)
        names = jit_function(module.kernel).arg_names
        arguments = {**dict(zip(names, launch["args"], strict=False)), **launch["fixed"]}
        return Problem(module.kernel, arguments, launch["grid"], shape, name)

    return problem


def _with_index_values(make: Callable[[], Problem]) -> Problem:
    """Make a problem on meta tensors, with what its index tensors would hold."""
    from asmtune.core.assumed_tensors import MetaValues

    with MetaValues() as known:
        problem = make()
    values = {
        name: replace(table, source="the kernel module's values")
        for name, tensor in problem.arguments.items()
        if is_index(tensor) and name not in problem.index_values
        if not isinstance(table := values_of(known.values(tensor), ""), str)
    }
    return replace(problem, index_values={**values, **problem.index_values}) if values else problem


def space_of(kernel: Any) -> Space | None:
    """Return the space of a kernel under `@asm_autotune` or `@triton.autotune`; None without."""
    layer = kernel
    while layer is not None and not is_jit_function(layer):
        own = getattr(layer, "space", None)
        if isinstance(own, Space):
            return own
        if configs := getattr(layer, "configs", None):
            return Space.from_configs(configs)
        layer = getattr(layer, "fn", None)
    return None
