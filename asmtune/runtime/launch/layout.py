"""`ParameterLayout` of a Triton function, and the types and streams that launchers know."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import triton
import triton.language as tl

RUNTIME: Final = 0
CONSTEXPR: Final = 1
KEYED: Final = 2
COMPUTED: Final = 4
"""Modes of a parameter: its class counts, or its value; the same numbers as `native/words.c`.

A rule of `@triton.heuristics` gives the value of a computed one, whatever the launch gives.
"""

MOST_PARAMETERS: Final = 64
MOST_FUNCTIONS: Final = 16
MOST_RULES: Final = 16
"""Launches of kernels with more take the slow path; the same numbers as `native/words.c`."""


@dataclass(frozen=True)
class ParameterLayout:
    """A function's parameters as a launcher takes them.

    Attributes:
        names: names of the parameters, interned: call sites' names are the same objects.
        modes: RUNTIME or CONSTEXPR of each, plus KEYED where its value is in the key, and COMPUTED
            where a rule gives it.
        functions: functions of the key, each with the indices of its arguments.
        rules: names and functions of `@triton.heuristics`, in the order in which Triton calls them.
    """

    names: tuple[str, ...]
    modes: bytes
    functions: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...] = ()
    rules: tuple[tuple[str, Callable[..., Any]], ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether a launcher has room for all parameters, functions and rules."""
        parts = (self.names, self.functions, self.rules)
        limits = (MOST_PARAMETERS, MOST_FUNCTIONS, MOST_RULES)
        return all(len(part) <= most for part, most in zip(parts, limits, strict=True))


def layout_of(
    params: Sequence[Any],
    keyed: Iterable[str] = (),
    functions: Iterable[tuple[Callable[..., Any], Sequence[str]]] = (),
    rules: Iterable[tuple[str, Callable[..., Any]]] = (),
) -> ParameterLayout:
    """Make the layout of a `JITFunction`'s parameters."""
    names = tuple(sys.intern(param.name) for param in params)
    in_key, computed = set(keyed), tuple((sys.intern(name), rule) for name, rule in rules)
    modes = bytes(
        (CONSTEXPR if param.is_constexpr else RUNTIME)
        | (KEYED if param.name in in_key else 0)
        | (COMPUTED if param.name in dict(computed) else 0)
        for param in params
    )
    places = {name: index for index, name in enumerate(names)}
    key_functions = tuple(
        (function, tuple(places[name] for name in needs)) for function, needs in functions
    )
    return ParameterLayout(names, modes, key_functions, computed)


class Kinds(NamedTuple):
    """Types whose values can be part of a launch key.

    Attributes:
        tensors: exact types that are read by the descriptors below; subclasses may do
            anything, and take the slow path.
        frozen: immutable types, compared by identity.
        dtype, data_ptr, get_device: `torch.Tensor`'s, called without a lookup by name.
    """

    tensors: tuple[type, ...]
    frozen: tuple[type, ...]
    dtype: Any
    data_ptr: Callable[[Any], int]
    get_device: Callable[[Any], int]


def kinds() -> Kinds:
    """Return the types of PyTorch and Triton."""
    import torch

    frozen = (tl.dtype, torch.dtype, triton.JITFunction)
    tensor = torch.Tensor
    return Kinds(
        (tensor, torch.nn.Parameter), frozen, tensor.dtype, tensor.data_ptr, tensor.get_device
    )
