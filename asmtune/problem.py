"""`Problem`: a kernel with bound arguments and a grid; what a config completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asmtune.config import Config
from asmtune.dtypes import dtype_of
from asmtune.errors import ProblemError

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


@dataclass(frozen=True)
class Problem:
    """One launch, but for its config.

    Attributes:
        kernel: a `@triton.jit` function, or one wrapped by `@triton.heuristics`.
        arguments: values by parameter name, without the tuned ones: tensors
            (meta tensors where there is no GPU), numbers, fixed constexprs.
        grid: programs along up to three axes, or a function of the arguments
            and the config's values by name.
        shape: the sizes that the problem is known by (`{"M": 4096}`);
            constraints of the space may name them.
        name: the kernel's name in reports and in the store.
    """

    kernel: Any
    arguments: Mapping[str, Any]
    grid: Grid
    shape: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", jit_function(self.kernel).__name__)

    @property
    def dtypes(self) -> dict[str, str]:
        """Canonical dtype of every tensor argument, by parameter name."""
        found = {name: dtype_of(value) for name, value in self.arguments.items()}
        return {name: dtype for name, dtype in found.items() if dtype is not None}

    def bind(self, config: Config) -> dict[str, Any]:
        """All keywords of a launch with `config`, heuristics evaluated.

        Raises:
            ProblemError: a tuned name is bound already, or a parameter is
                missing or unknown; names it.
        """
        values = {**self.arguments, **config.all_kwargs()}
        clash = self.arguments.keys() & config.kwargs.keys()
        if clash:
            raise ProblemError(
                f"kernel {self.name}: {min(clash)} is both an argument and an axis of the space; "
                "take it out of one"
            )
        values |= heuristic_values(self.kernel, values)
        self._check_names(values, config)
        return values

    def programs(self, config: Config) -> tuple[int, int, int]:
        """The grid of a launch with `config`, filled up to three axes.

        Raises:
            ProblemError: the grid is not one to three whole numbers above 0.
        """
        grid = self.grid(self.bind(config)) if callable(self.grid) else self.grid
        sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
        if not 1 <= len(sizes) <= 3 or not all(type(n) is int and n > 0 for n in sizes):
            raise ProblemError(
                f"kernel {self.name}: grid {grid!r} at {config}: "
                "expected one to three whole numbers above 0"
            )
        return (*sizes, 1, 1)[:3]  # type: ignore[return-value]

    def _check_names(self, values: Mapping[str, Any], config: Config) -> None:
        function = jit_function(self.kernel)
        options = config.all_kwargs().keys() - config.kwargs.keys()
        unknown = values.keys() - set(function.arg_names) - options
        if unknown:
            raise ProblemError(
                f"kernel {self.name} has no parameter {min(unknown)!r}: "
                f"its parameters are {', '.join(function.arg_names)}"
            )
        missing = [p.name for p in function.params if p.name not in values and not p.has_default]
        if missing:
            raise ProblemError(
                f"kernel {self.name}: no value for {', '.join(missing)}; "
                "bind it in the problem, or make it an axis of the space"
            )


def jit_function(kernel: Any) -> Any:
    """The `JITFunction` under a kernel's decorators.

    Raises:
        ProblemError: it is no Triton kernel.
    """
    function = kernel
    while not hasattr(function, "params") and hasattr(function, "fn"):
        function = function.fn
    if not hasattr(function, "params") or not hasattr(function, "arg_names"):
        raise ProblemError(
            f"{getattr(kernel, '__name__', kernel)!r} is not a Triton kernel: "
            "decorate it with @triton.jit"
        )
    return function


def heuristic_values(kernel: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the `@triton.heuristics` around a kernel add to a launch's keywords."""
    added: dict[str, Any] = {}
    layer = kernel
    while not hasattr(layer, "params") and hasattr(layer, "fn"):
        rules = getattr(layer, "values", None)
        if isinstance(rules, Mapping):
            for name, rule in rules.items():
                added[name] = rule({**values, **added})
        layer = layer.fn
    return added
