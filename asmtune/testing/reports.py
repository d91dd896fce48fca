"""Reports of checks: every comparison with its excess over the tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from asmtune.testing.tolerances import Rows, excess, worst_element


class WrongResultError(AssertionError):
    """A kernel's result is wrong; the message is the report of what was compared."""


@dataclass(frozen=True)
class ResultComparison:
    """One comparison of a kernel's results with what they should be.

    Attributes:
        check: one of `checks.KINDS`, or what a pipeline calls it.
        name: the inputs, the config, and the stage of a pipeline.
        excess: the largest error by what is allowed: up to 1 is right, inf for a wrong shape, a
            wrong NaN, a changed input or an exception.
        detail: the worst element, or what happened; "" if the result is right.
    """

    check: str
    name: str
    excess: float
    detail: str = ""

    @property
    def right(self) -> bool:
        """Return whether the error is allowed."""
        return self.excess <= 1

    def __str__(self) -> str:
        verdict = "ok   " if self.right else "WRONG"
        tail = f"  {self.detail}" if self.detail else ""
        return f"{verdict} {self.excess:8.3g}  {self.check}: {self.name}{tail}"


@dataclass(frozen=True)
class TestReport:
    """What a check has compared.

    Attributes:
        subject: the kernel's name.
        comparisons: all of them, in the order in which they ran.
        notes: what was not compared, and why.
    """

    __test__ = False  # not a class of tests, whatever pytest takes from its name

    subject: str
    comparisons: tuple[ResultComparison, ...]
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[ResultComparison, ...]:
        """Return the comparisons that are not right."""
        return tuple(one for one in self.comparisons if not one.right)

    @property
    def excesses(self) -> dict[str, float]:
        """Return the excess of each comparison by its name."""
        return {one.name: one.excess for one in self.comparisons}

    def raise_if_wrong(self) -> None:
        """Raise if anything is wrong.

        Raises:
            WrongResultError: lists each wrong comparison in a line.
        """
        if self.wrong:
            raise WrongResultError(self.text(only_wrong=True))

    def text(self, *, only_wrong: bool = False) -> str:
        """Return a line in all, a line for each comparison, and the notes."""
        lines = self.wrong if only_wrong else self.comparisons
        head = f"{self.subject}: {len(self.wrong)} of {len(self.comparisons)} comparisons are wrong"
        return "\n".join([head, *map(str, lines), *(f"note: {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.text()


def compared(
    check: str,
    name: str,
    got: Sequence[torch.Tensor],
    want: Sequence[torch.Tensor],
    rows: Rows,
) -> ResultComparison:
    """Compare results with exact ones, and keep the worst of them."""
    if len(got) != len(want):
        detail = f"{len(got)} results; the reference has {len(want)}"
        return ResultComparison(check, name, float("inf"), detail)
    errors = [excess(mine, exact, rows) for mine, exact in zip(got, want, strict=True)]
    worst = max(range(len(errors)), key=errors.__getitem__)
    detail = "" if errors[worst] <= 1 else worst_element(got[worst], want[worst])
    if detail and len(got) > 1:
        detail = f"result {worst}: {detail}"
    return ResultComparison(check, name, errors[worst], detail)


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """Return a function's results, also where it is one."""
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)
