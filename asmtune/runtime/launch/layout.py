"""What the parameters of a Triton function are to a launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

RUNTIME: Final = 0
CONSTEXPR: Final = 1
KEYED: Final = 2
"""What a parameter is: its class matters, or its value; as `native/words.c` has them."""

MOST_PARAMETERS: Final = 64
MOST_FUNCTIONS: Final = 16
"""Launches of kernels with more take the slow path; as `native/words.c` has them."""


@dataclass(frozen=True)
class ParameterLayout:
    """A function's parameters as a launcher takes them.

    Attributes:
        names: of the parameters, interned: call sites' names are the same objects.
        modes: RUNTIME or CONSTEXPR of each, plus KEYED where its value is in the key.
        functions: functions of the key, each with the indices of its arguments.
    """

    names: tuple[str, ...]
    modes: bytes
    functions: tuple[tuple[Callable[..., Any], tuple[int, ...]], ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a launcher has room for it."""
        return len(self.names) <= MOST_PARAMETERS and len(self.functions) <= MOST_FUNCTIONS


def layout_of(
    params: Sequence[Any],
    keyed: Iterable[str] = (),
    functions: Iterable[tuple[Callable[..., Any], Sequence[str]]] = (),
) -> ParameterLayout:
    """The layout of a `JITFunction`'s `params`.

    Args:
        params: Triton's `KernelParam` of each.
        keyed: names of those whose values are in the key.
        functions: of the key, each with the names of its arguments.
    """
    names = tuple(sys.intern(param.name) for param in params)
    in_key = set(keyed)
    modes = bytes(
        (CONSTEXPR if param.is_constexpr else RUNTIME) | (KEYED if param.name in in_key else 0)
        for param in params
    )
    places = {name: index for index, name in enumerate(names)}
    made = tuple((function, tuple(places[name] for name in needs)) for function, needs in functions)
    return ParameterLayout(names, modes, made)
