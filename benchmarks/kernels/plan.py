"""Plans: the rows that the table has, and the order in which they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.kernels import wide
from benchmarks.kernels.entries import ENTRIES
from tests.kernels.accuracy import module_of

PLANS = ("quick", "full", "wide")


@dataclass(frozen=True)
class Place:
    """A row of the table.

    Attributes:
        kernel: the kernel's name.
        shape: a shape of its module's SHAPES, or of the plan "wide".
        dtype: canonical name.
    """

    kernel: str
    shape: Mapping[str, Any]
    dtype: str

    @property
    def name(self) -> str:
        """Name the row on one line; no two rows have the same name."""
        sizes = ",".join(f"{name}={size}" for name, size in self.shape.items())
        return f"{self.kernel} {sizes} {self.dtype}"

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Place:
        """Read the place of a row of the file."""
        return cls(row["kernel"], row["shape"], row["dtype"])


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Choice of the rows to measure.

    Attributes:
        name: "full" for every shape with every dtype, "quick" for every shape with a kernel's
            first dtype, and its first shape with the others; "wide" for the shapes of
            `benchmarks.kernels.wide` with a kernel's first dtype, or those of `dtypes`.
        dtypes: dtypes to measure; all if empty.
    """

    name: str = "full"
    dtypes: Sequence[str] = ()

    def places(self, kernels: Sequence[str]) -> list[Place]:
        """List the rows: the first of each kernel, then the others, a kernel after the other.

        A run that is cut off has something of every kernel then.
        """
        by_kernel = [list(self._of(name)) for name in kernels]
        firsts = [places[0] for places in by_kernel if places]
        return [*firsts, *(place for places in by_kernel for place in places[1:])]

    def _of(self, name: str) -> Iterator[Place]:
        module = module_of(name)
        dtypes = ENTRIES[name].dtypes or module.DTYPES
        every = module.SHAPES
        if self.name == "wide":
            every = wide.SHAPES[name]() if name in wide.SHAPES else ()
        for nth, dtype in enumerate(dtypes):
            if self.dtypes and dtype not in self.dtypes:
                continue
            shapes = every
            if nth and self.name == "quick":
                shapes = shapes[:1]
            elif nth and self.name == "wide" and not self.dtypes:
                shapes = ()
            for shape in shapes:
                yield Place(name, dict(shape), dtype)
