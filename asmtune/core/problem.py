"""`Problem`: a kernel with bound arguments and a grid; with a config it is a launch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from asmtune.base.errors import USER_CODE_ERRORS, ProblemError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.config import AMD_OPTIONS, Config
from asmtune.core.dtypes import dtype_of
from asmtune.core.failures import of_one_config
from asmtune.core.index_values import IndexValues, checked_values, is_index, values_of
from asmtune.core.records.artifacts import Failure
from asmtune.triton_api.jit_functions import (
    defaults,
    heuristic_rules,
    is_kernel,
    jit_function,
    parameters,
    plain_name,
)
from asmtune.triton_api.user_state import inside

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
GRID_LIMITS: Final = (2**31 - 1, 65535, 65535)
"""The largest number of programs along each axis of a grid, on every NVIDIA GPU."""

_NO_VALUES: Final = "no values are given; name a function that makes the tensor and launches"

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


class UnknownGrid(tuple[int, ...]):
    """Stands for the grid of a launch that is only described, as PyTorch's compiler does."""


class _Watched(dict[str, Any]):
    """A mapping that notes the names that are asked for: all where it is read as a whole."""

    def __init__(self, values: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self._read.update(super().keys())
        return super().__iter__()

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __getattribute__(self, name: str) -> Any:
        if name in ("keys", "values", "items", "copy", "pop", "popitem", "setdefault"):
            iter(self)
        return super().__getattribute__(name)


@dataclass(frozen=True)
class Problem:
    """A launch without its config.

    Attributes:
        kernel: a `@triton.jit` function, or one wrapped by `@triton.heuristics`.
        arguments: values by parameter name, without the tuned ones: tensors (meta tensors where
            there is no GPU), numbers, fixed constexprs.
        grid: programs along up to three axes, or a function of the arguments and the config's
            values by name.
        shape: the sizes that identify the problem (`{"M": 4096}`); constraints may name them.
        name: the kernel's name in reports and in the store.
        options: names of arguments, or of the config's values, that are not parameters but
            options of Triton's compiler (`launch_pdl`).
        index_values: elements of index tensors that are without (meta tensors), for predictions
            alone: an integer tensor on the CPU.
    """

    kernel: Any
    arguments: Mapping[str, Any]
    grid: Grid
    shape: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    options: frozenset[str] = frozenset()
    index_values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    _copied: dict[str, tuple[Any, IndexValues | str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.name:
            # An interpreted kernel has a name as well.
            named = self.kernel if is_kernel(self.kernel) else jit_function(self.kernel)
            object.__setattr__(self, "name", plain_name(named))
        if self.index_values:
            values = checked_values(self.name, self.index_values, self.arguments)
            object.__setattr__(self, "index_values", values)

    @classmethod
    def of_launch(
        cls,
        kernel: Any,
        values: Mapping[str, Any],
        grid: Grid,
        sizes: Iterable[str] | None = None,
        index_values: Mapping[str, Any] | None = None,
    ) -> Problem:
        """Make the problem of a launch's values by name, options of Triton's compiler among them.

        The numbers among `sizes`, by default among all parameters, identify it.
        """
        names = kernel.arg_names
        numbers = {n: values[n] for n in sizes or names if isinstance(values.get(n), int | float)}
        options = frozenset(values.keys() - set(names))
        return cls(kernel, values, grid, numbers, options=options, index_values=index_values or {})

    def index_table(self, name: str) -> IndexValues | str:
        """Return what an index tensor holds, or say why that is not known.

        What was given as `index_values` comes first, then the tensor itself, which is copied once
        to the host until PyTorch writes to it.
        """
        if name in self.index_values:
            return cast("IndexValues", self.index_values[name])
        tensor: Any = self.arguments.get(name)
        if not hasattr(tensor, "is_inference") or not is_index(tensor):
            return _NO_VALUES
        from asmtune.triton_api.tensors import writes  # there is a tensor, so PyTorch is loaded

        version = writes(tensor)
        known = self._copied.get(name)
        if known is not None and known[0] == version:
            return known[1]
        table = values_of(tensor, "the launch's own tensor")
        if not isinstance(table, str):
            self._copied[name] = (version, table)
        return _NO_VALUES if tensor.is_meta else table

    @property
    def full_name(self) -> str:
        """Return the kernel's module and name, by which the store knows it."""
        function = jit_function(self.kernel)
        return f"{function.__module__}.{function.__qualname__}"

    @property
    def dtypes(self) -> dict[str, str]:
        """Return the canonical dtype of every tensor argument, by parameter name."""
        dtypes = {name: dtype_of(value) for name, value in self.arguments.items()}
        return {name: dtype for name, dtype in dtypes.items() if dtype is not None}

    @property
    def tensor_bytes(self) -> dict[str, int]:
        """Return the bytes of memory of every tensor and tensor descriptor, by parameter name."""
        sizes = {name: _memory_bytes(value) for name, value in self.arguments.items()}
        return {name: size for name, size in sizes.items() if size is not None}

    def bind(self, config: Config) -> dict[str, Any]:
        """Return all keywords of a launch with `config`, with heuristics evaluated.

        Raises:
            ProblemError: a tuned name is bound already, a parameter is missing or
                unknown, or a heuristic raised; names it.
        """
        values = {**self.arguments, **config.all_kwargs()}
        clash = self.arguments.keys() & config.kwargs.keys()
        if clash:
            raise ProblemError(
                f"kernel {self.name}: {min(clash)} is both an argument and an axis of the space; "
                "take it out of one"
            )
        for name, rule in heuristic_rules(self.kernel):
            try:
                with inside():
                    values[name] = rule(dict(values))
            except USER_CODE_ERRORS as error:
                raise self._failed(f"@triton.heuristics {name!r}", config, error) from error
        self._check_names(values, config)
        return values

    def programs(self, config: Config) -> tuple[int, int, int]:
        """Return the grid of a launch with `config`, padded to three axes.

        Raises:
            ProblemError: it is not one to three whole numbers above 0 and within `GRID_LIMITS`,
                or its function asks for an unknown name.
        """
        return self._sizes_at(config, self.bind(config))

    def grid_of(self, config: Config) -> tuple[int, int, int] | Failure:
        """Return the grid as `programs` does, or why this config cannot be launched."""
        return self.watched_grid(config)[0]

    def _sizes_at(
        self, config: Config, values: Mapping[str, Any], read: set[str] | None = None
    ) -> tuple[int, int, int]:
        return self.grid_sizes(self.grid_at(config, values, read), config)

    def watched_grid(
        self, config: Config
    ) -> tuple[tuple[int, int, int] | Failure, Collection[str]]:
        """Return the grid as `grid_of` does, and the names that it may depend on."""
        values = of_one_config("rules", "arguments", lambda: self.bind(config))
        if isinstance(values, Failure):
            return values, config.all_kwargs().keys()
        read = set[str]()
        sizes = of_one_config("rules", "grid", partial(self._sizes_at, config, values, read))
        return sizes, values.keys() if any(heuristic_rules(self.kernel)) else read

    def grid_at(
        self, config: Config, values: Mapping[str, Any], read: set[str] | None = None
    ) -> Any:
        """Evaluate the grid for `values` and the kernel's defaults, unchecked.

        The names that its function asks for are added to `read`.

        Raises:
            ProblemError: its function asks for a name that is not among them, or raised.
        """
        if not callable(self.grid):
            return self.grid
        known = {**defaults(self.kernel), **values}
        asked = known if read is None else _Watched(known, read)
        try:
            with inside():
                return self.grid(asked)
        except USER_CODE_ERRORS as error:
            missing = error.args[0] if isinstance(error, KeyError) and error.args else None
            if not isinstance(missing, str) or missing in known:  # or a KeyError of another mapping
                raise self._failed("the grid's function", config, error) from error
            raise ProblemError(
                f"kernel {self.name}: the grid's function asks for {missing!r} at {config}: "
                f"there are {', '.join(known)}{did_you_mean(missing, known)}"
            ) from error

    def _failed(self, what: str, config: Config, error: Exception) -> ProblemError:
        cause = f"{type(error).__name__}: {error}"
        return ProblemError(f"kernel {self.name}: {what} failed at {config}: {cause}")

    def grid_sizes(self, grid: Any, config: Config) -> tuple[int, int, int]:
        """Check a grid and pad it to three axes.

        Raises:
            ProblemError: it is not one to three whole numbers above 0, each within its limit.
        """
        sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
        counts = [_count(size) for size in sizes]
        text = shortened(" ".join(repr(grid).split()), 80)
        where = f"kernel {self.name}: grid {text} at {config}: "
        if not 1 <= len(counts) <= 3 or not all(n is not None and n > 0 for n in counts):
            fractions = any(isinstance(size, float) for size in sizes)
            hint = "; a division of sizes needs // or triton.cdiv" if fractions else ""
            if 0 in counts:
                hint = "; there is nothing to launch, so return before it"
            raise ProblemError(f"{where}expected one to three whole numbers above 0{hint}")
        x, y, z = (*(n for n in counts if n is not None), 1, 1)[:3]
        for axis, n, limit in zip("xyz", (x, y, z), GRID_LIMITS, strict=True):
            if n > limit:
                raise ProblemError(
                    f"{where}axis {axis} has {n} programs, and the limit is {limit}; "
                    "put them on axis x, or give each program more work"
                )
        return x, y, z

    def _check_names(self, values: Mapping[str, Any], config: Config) -> None:
        function = jit_function(self.kernel)
        options = config.all_kwargs().keys() - config.kwargs.keys()
        options |= config.kwargs.keys() & AMD_OPTIONS.keys()
        unknown = values.keys() - set(function.arg_names) - options - self.options
        if unknown:
            raise unknown_parameter(self.name, min(unknown), function.arg_names)
        needed = [p.name for p in parameters(self.kernel) if not p.has_default]
        missing = [name for name in needed if name not in values]
        if missing:
            raise ProblemError(
                f"kernel {self.name}: no value for {', '.join(missing)}; "
                "give it as an argument, or make it an axis of the space"
            )


def no_launch(failures: Sequence[Failure]) -> ProblemError:
    """Build the error of a problem that no config can be launched for: why the first cannot."""
    first, count = failures[0], len(failures)
    if count == 1:
        return ProblemError(first.detail)
    alike = sum(failure.kind == first.kind for failure in failures)
    return ProblemError(
        f"{first.detail}; no config of {count} can be launched: {alike} fail by their {first.kind}"
    )


def unknown_parameter(
    kernel: str, name: str, arg_names: Iterable[str], options: Iterable[str] = ()
) -> ProblemError:
    """Build the error of a name that is neither a parameter nor an option of a launch."""
    known = list(arg_names)
    return ProblemError(
        f"kernel {kernel} has no parameter {name!r}: "
        f"its parameters are {', '.join(known)}{did_you_mean(name, (*known, *options))}"
    )


def _memory_bytes(value: Any) -> int | None:
    """Count the bytes of a tensor, or of the part that a descriptor names; None for a number."""
    tensor: Any = value if hasattr(value, "numel") else getattr(value, "base", None)
    if not hasattr(tensor, "numel") or not hasattr(tensor, "element_size"):
        return None
    whole = int(tensor.numel() * tensor.element_size())
    shape = () if tensor is value else value.shape
    return min(whole, math.prod(shape) * int(tensor.element_size())) if shape else whole


def is_count(size: Any) -> bool:
    """Return whether a size of a grid is a whole number for Triton's launcher."""
    return _count(size) is not None


def _count(size: Any) -> int | None:
    """Read a size of a grid as Triton's launcher does; None if it is not a whole number."""
    try:
        return None if isinstance(size, bool) else operator.index(size)
    except TypeError:
        return None
