"""What of a kernel's control could not be evaluated, and what stands for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CONTROL: Final = {"scf.for": "a loop", "scf.while": "a while loop"}


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that decides about control and cannot be evaluated.

    As text: `line 9: a while loop that cannot be evaluated (computed by tt.reduce): 16 trips
    assumed`.

    Attributes:
        operation: "scf.for", "scf.while" for a loop, "scf.if" or "cf.cond_br" for a branch.
        loop: the loop's id, or None for a branch.
        reason: why, in words.
        assumed: what stands for it, in words.
        file: source file, or "".
        line: line of the source, 0 if unknown.
    """

    operation: str
    loop: int | None
    reason: str
    assumed: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        what = _CONTROL.get(self.operation, "a branch")
        return f"{where}{what} that cannot be evaluated ({self.reason}): {self.assumed} assumed"
