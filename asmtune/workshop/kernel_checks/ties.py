"""Tells the sizes among a plain function's numbers from those that follow from them.

A stride is what a launch makes of a shape: it is never varied by itself, whatever its name.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from asmtune.base.errors import InputError
from asmtune.core.inputs.plain_functions import POINTER, TENSOR_LIMITS
from asmtune.core.inputs.sizes import LARGEST, Sizes
from asmtune.workshop.kernel_checks.evidence import KernelEvidence

LEAST_SIZE: Final = 16
"""Smaller numbers stay as they are."""

_MOST_READINGS: Final = 16
_MOST_MEANINGS: Final = 4
_CONSTANT: Final = ""


class Ties:
    """The numbers of a launch, by what they are made of.

    Numbers that name a part of a tensor's shape are sizes, and so are numbers in its place. Others
    that equal a stride, a size or a product of sizes follow it: of the tensors whose addresses they
    are part of, if there are any. Where several fit, each is a reading of its own.

    Args:
        arguments: as the user gives them, "name=value" each.
        grid: programs as expressions of names.
        numbers: whole numbers by name, those of axes with one value included.
        axes: names and values that a config gives.
        evidence: what the code tells of numbers and tensors.

    Attributes:
        numbers: as given, and sizes that have got a name.
        sizes: that may be varied, with the user's own values.
        grid: the grid, with names in the place of sizes.
        readings: expression by number, best first; "" for a number that stays as it is.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        grid: str,
        numbers: Mapping[str, int],
        axes: Mapping[str, Collection[object]],
        evidence: KernelEvidence,
    ) -> None:
        self.numbers, self._evidence = dict(numbers), evidence
        self._values = dict(_split(text) for text in arguments)
        matches = {name: POINTER.fullmatch(value) for name, value in self._values.items()}
        shaped = {n: m for n, m in matches.items() if m and m["sizes"]}
        self._dtypes = {name: match["dtype"] for name, match in shaped.items()}
        self._shapes = {name: _parts(name, match["sizes"]) for name, match in shaped.items()}
        taken = {one for values in axes.values() for one in values if type(one) is int}
        self.grid = self._name_literals(grid, taken)
        self._pad()
        named = self._named() - axes.keys()
        self.sizes = {n: v for n, v in self.numbers.items() if n in named}
        self._followers = self._values.keys() & numbers.keys() - self.sizes.keys() - axes.keys()
        large = (n for n in self._values if n in self._followers and numbers[n] >= LEAST_SIZE)
        meanings = {name: self._meanings(name) for name in large}
        combinations = itertools.product(*meanings.values())
        self.readings = [
            dict(zip(meanings, one, strict=True))
            for one in itertools.islice(combinations, _MOST_READINGS)
        ]

    def arguments(
        self, shape: Mapping[str, int], reading: Mapping[str, str], dtypes: Mapping[str, str]
    ) -> list[str]:
        """Return the arguments at other sizes, with tensors of other dtypes, as a user would."""
        numbers = {**self.numbers, **shape}
        made = {n: str(_value(text, numbers)) for n, text in reading.items() if text}
        made |= {name: str(numbers[name]) for name in self.sizes}
        for name, parts in self._shapes.items():
            dtype = self._dtypes[name]
            made[name] = f"{dtypes.get(dtype, dtype)}[{', '.join(parts)}]"
        return [f"{name}={value}" for name, value in {**self._values, **made}.items()]

    def constants(self, reading: Mapping[str, str]) -> set[str]:
        """Return the numbers that stay as they are in a reading."""
        return self._followers - {name for name, text in reading.items() if text}

    def moves_grid(self, reading: Mapping[str, str]) -> bool:
        """Return whether the grid names a size, or a number that follows one."""
        return bool(_names([self.grid]) & {*self.sizes, *(n for n, t in reading.items() if t)})

    def _name_literals(self, grid: str, taken: set[int]) -> str:
        """Give sizes that are written as numbers a name, that of a number as large if there is one.

        In the grid, a number that is also an axis' value is a block.
        """
        parts = [part for parts in self._shapes.values() for part in parts]
        named = _names(parts)
        for text in dict.fromkeys(part for part in parts if part.isdecimal()):
            if (value := int(text)) < LEAST_SIZE:
                continue
            equal = [n for n, v in self.numbers.items() if v == value and n not in named]
            equal.sort(key=lambda name: name in self._evidence.addressing)
            name = next(iter(equal), f"size_{value}")
            self.numbers[name] = value
            for tensor, own in self._shapes.items():
                self._shapes[tensor] = [name if part == text else part for part in own]
            if value not in taken:
                grid = re.sub(rf"(?<!\w){text}(?!\w)", name, grid)
        return grid

    def _pad(self) -> None:
        """Let rows that are padded, or cut from longer ones, stay so much longer than their data.

        Nothing bounds accesses by the length of such rows, but by a size of other tensors.
        """
        bounding = self._evidence.bounding
        for tensor, parts in {**self._shapes}.items():
            inner, length = parts[-1], self.numbers.get(parts[-1])
            bounds = [n for n, tensors in bounding.items() if tensor in tensors]
            others = [n for n in bounds if n in self.numbers and n not in _names(parts)]
            if length is None or inner in bounding or len(others) != 1:
                continue
            more, is_named = length - self.numbers[others[0]], others[0] in self._named()
            if more > 0 or (more == 0 and is_named):
                padded = rf"(?<!\w){inner}(?!\w)", f"({others[0]} + {more})"
                self.grid = re.sub(*padded, self.grid)
                for name, own in self._shapes.items():
                    self._shapes[name] = [re.sub(*padded, part) for part in own]

    def _named(self) -> set[str]:
        return _names(part for parts in self._shapes.values() for part in parts)

    def bounded(self, number: str) -> set[str]:
        """Return the sizes of the tensors whose accesses a number bounds."""
        tensors = self._evidence.bounding.get(number, frozenset())
        return _names(part for name in tensors & self._shapes.keys() for part in self._shapes[name])

    def _meanings(self, name: str) -> list[str]:
        """Return what a number may be made of, the most likely first."""
        skewed = dict(zip(self.sizes, _primes(), strict=False))
        known: dict[int, str] = {}
        for text in self._expressions(self._evidence.addressing.get(name, frozenset())):
            with suppress(InputError):  # some sizes have no such expression
                if _value(text, self.numbers) == self.numbers[name]:
                    known.setdefault(_value(text, {**self.numbers, **skewed}), text)
        return [*known.values(), _CONSTANT][:_MOST_MEANINGS]

    def _expressions(self, addressed: frozenset[str]) -> Iterator[str]:
        """Yield strides of the tensors whose addresses the number is part of, then all others."""
        own = [parts for name, parts in self._shapes.items() if name in addressed]
        others = [parts for name, parts in self._shapes.items() if name not in addressed]
        for parts in own:
            yield from (_product(parts[axis:]) for axis in range(1, len(parts)))
        for tensors in own, others:
            for count in range(1, max(map(len, tensors), default=0) + 1):
                for parts in tensors:
                    yield from map(_product, itertools.combinations(parts, count))
        yield from self.sizes


def _split(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    return name, value


def _parts(name: str, sizes: str) -> list[str]:
    Sizes(f"--arg {name}", sizes, TENSOR_LIMITS)  # refuses what is no size
    body = ast.parse(sizes.strip(), mode="eval").body
    return [ast.unparse(one) for one in (body.elts if isinstance(body, ast.Tuple) else [body])]


def _names(texts: Iterator[str] | Sequence[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text)}


def _product(parts: Sequence[str]) -> str:
    return " * ".join(part if part.isalnum() else f"({part})" for part in parts)


def _value(text: str, numbers: Mapping[str, int]) -> int:
    return Sizes("--arg", text, (LARGEST,))(numbers)[0]


def _primes() -> Iterator[int]:
    """Yield numbers of which no two products are equal."""
    numbers = itertools.count(LEAST_SIZE + 1)
    return (n for n in numbers if all(n % other for other in range(2, math.isqrt(n) + 1)))
