"""Reports: comparisons with their excess over the tolerance, and findings about a cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import torch

from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.workshop.kernel_checks.tolerances import Rows, excess, worst_element

Outcome = Literal["cause", "risk", "fine", "untested"]

_TRIED: Final = {
    "mask": "sizes that blocks divide ({even}), and each one more{less}; memory around the "
    "arguments marked with NaN, then with a number each",
    "accumulator": "inputs in fp32, and each size four times as large",
    "race": "{runs}, other configs",
    "alignment": "all arguments one element behind an aligned address",
    "bounds": "marked memory around the arguments at {even}",
}
_FINE: Final = {
    "mask": "no size differs from the others",
    "accumulator": "errors are those of fp32 sums",
    "race": "all agree",
    "alignment": "the result is as it was",
    "bounds": "nothing around the arguments has a part in it",
}
_ADVICE: Final = {
    "mask": "mask loads and stores along {size}: mask=offsets < {size}, with an other= that "
    "changes no sum, maximum or minimum",
    "accumulator": "add up in fp32: tl.zeros(..., tl.float32), .to(tl.float32) before tl.sum, "
    "out_dtype=tl.float32 in tl.dot; round once, at the store",
    "rounding": "no sum of the code is in {dtype}, but a value before the last store is rounded to "
    "it, such as an operand of tl.dot: keep it in fp32, or name a row of the tolerances that has "
    'this error by --tolerance, such as "{dtype} weights"',
    "race": "let one program write each element; or use tl.atomic_add; or write partial results "
    "and add them in a second kernel",
    "alignment": "take out what vouches for the address: tl.multiple_of on pointers, casts to "
    "wider types; Triton specialises on aligned pointers by itself",
    "bounds": "check the grid, strides and the order of sizes: offsets leave the tensor",
    "unwritten": "check the grid (cdiv in place of //), strides, the order of sizes, and masks: no "
    "program writes these elements",
}


class WrongResultError(AssertionError):
    """A kernel's result is wrong; the message is the report of what was compared."""


@dataclass(frozen=True)
class ResultComparison:
    """Comparison of a kernel's results with what they should be.

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
    """Comparisons that a check has made.

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


def called(function: Callable[..., Any], *given: Any, **named: Any) -> Sequence[Any] | Failure:
    """Return copies of a function's results, or the exception that it raises."""
    with torch.no_grad():
        return guarded(
            "call", lambda: tuple(one.clone() for one in as_tuple(function(*given, **named)))
        )


def compared(
    check: str,
    name: str,
    got: Sequence[torch.Tensor] | Failure,
    want: Sequence[torch.Tensor],
    rows: Rows,
) -> ResultComparison:
    """Compare results with exact ones, and keep the worst of them; no results are wrong."""
    if isinstance(got, Failure):
        return ResultComparison(check, name, float("inf"), got.detail.splitlines()[0])
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
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for one in results or (None,):
        if not isinstance(one, torch.Tensor):
            raise TypeError(f"the function returns {type(one).__name__}; return its output tensors")
    return results


@dataclass(frozen=True)
class CauseFinding:
    """Finding of the experiments about a cause.

    Attributes:
        cause: "mask", "accumulator", "race", "alignment" or "bounds".
        outcome: "cause" if it explains a wrong result, "risk" if only the code speaks for it.
        tried, seen, advice: sentences.
    """

    cause: str
    outcome: Outcome
    tried: str
    seen: str
    advice: str = ""


def finding(
    cause: str,
    outcome: Outcome,
    seen: Sequence[str],
    tried: Mapping[str, str],
    advice: str,
    **names: str,
) -> CauseFinding:
    """Return a finding in words, with what was tried and what the advice names."""
    text = "; ".join(filter(None, seen)) or _FINE[cause]
    what = _ADVICE[advice].format(**names) if outcome in ("cause", "risk") else ""
    return CauseFinding(cause, outcome, _TRIED[cause].format(**tried), text, what)


@dataclass(frozen=True)
class Diagnosis:
    """The findings about a kernel, in the order of the experiments.

    Attributes:
        kernel: its name, with dtype, device and config.
        wrong: whether any launch gave a wrong result, or wrote where it must not.
        findings: one for each cause; none where no launch gives a result.
        notes: what could not be tried.
        seen: what is wrong at sizes that blocks divide; "" if nothing is.
    """

    kernel: str
    wrong: bool
    findings: tuple[CauseFinding, ...]
    notes: tuple[str, ...] = ()
    seen: str = ""

    @property
    def cause(self) -> CauseFinding | None:
        """Return the first finding that explains the wrong result."""
        return next((one for one in self.findings if one.outcome == "cause"), None)

    @property
    def conclusion(self) -> str:
        """Say in a sentence what is wrong."""
        if self.cause is not None:
            return f"cause: {self.cause.cause}: {self.cause.advice}"
        if not self.findings:
            return f"{self.seen}: mend this first, there is no result to compare"
        if self.wrong:
            return (
                f"{self.seen or 'the result is wrong'}, and none of these explains it: compare the "
                "formula with the reference's, on an input of one element; if it rounds more by "
                "design, name a row by --tolerance"
            )
        risk = next((one for one in self.findings if one.outcome == "risk"), None)
        if risk is not None:
            return f"no wrong result was seen; risk: {risk.cause}: {risk.advice}"
        return "no wrong result was seen, and no cause is named"

    def text(self) -> str:
        """Return the findings as lines."""
        lines = [self.kernel]
        for one in self.findings:
            parts = {"tried": one.tried, "saw": one.seen, "do": one.advice}
            lines.append(f"{one.cause}: {one.outcome}")
            lines += [f"  {label}: {text}" for label, text in parts.items() if text]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, self.conclusion])

    def document(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {**asdict(self), "conclusion": self.conclusion}
