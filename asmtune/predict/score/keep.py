"""The number of ranked configs to keep or compile: a number, a share, or by measured error."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from asmtune.base.errors import InputError
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Selection
from asmtune.predict.score.error import ErrorTable, shipped_errors

AIM: Final = 0.99
"""Share of the best speed that `auto` keeps on average; the rest is within a timing's noise."""

UNMEASURED: Final = 20
"""Configs kept by default if a scorer's error was not measured, so that `auto` cannot choose."""

_FORM: Final = re.compile(r"(?P<count>[0-9]{1,9})|(?P<percent>[0-9]{1,9}(\.[0-9]{1,9})?)%")
_FORMS: Final = "give auto, a number such as 20, or a share such as 5%"


@dataclass(frozen=True)
class Keep:
    """A number of configs to keep; without a count or a percentage, `auto`.

    Attributes:
        count: configs, at least 1.
        percent: of those that can run, above 0 and up to 100; rounded up.
        option: name of the option for messages: "keep" or "compile".
    """

    count: int | None = None
    percent: float | None = None
    option: str = field(default="keep", compare=False)

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(f"{self.option} {self.count}: the least is 1; {_FORMS}")
        if self.percent is not None and not 0 < self.percent <= 100:
            raise InputError(f"{self.option} {self.percent:g}%: above 0% and up to 100%; {_FORMS}")

    def __str__(self) -> str:
        if self.count is not None:
            return str(self.count)
        return "auto" if self.percent is None else f"{self.percent:g}%"

    @classmethod
    def of(cls, value: Keep | str | int, option: str = "keep") -> Keep:
        """Parse "auto", a number of configs, or a share such as "5%"; `option` is for messages.

        Raises:
            InputError: the value has none of these forms, or keeps nothing.
        """
        if isinstance(value, Keep):
            return value
        text = str(value).strip()
        if text == "auto":
            return cls(option=option)
        match = _FORM.fullmatch(text)
        if match is None:
            raise InputError(f"{option} {text!r} is not a number of configs; {_FORMS}")
        if match["percent"]:
            return cls(percent=float(match["percent"]), option=option)
        return cls(count=int(match["count"]), option=option)

    @classmethod
    def default(cls, scorer: str) -> Keep:
        """Return `auto` if the error of a scorer, by its name, was measured; else `UNMEASURED`."""
        return cls() if table_of(scorer) else cls(count=UNMEASURED)

    @property
    def is_auto(self) -> bool:
        """Return whether the scorer's error decides."""
        return self.count is None and self.percent is None

    def takes_all(self, count: int, scorer: str, moment: str) -> bool:
        """Say whether `auto` has so few configs to choose from that its rank leaves none out.

        Its gap might still: what it saves of so few is less than what ranking them costs.
        """
        table = table_of(scorer, moment) if self.is_auto else None
        return table is not None and count <= table.cut_for(AIM).count

    def check(self, scorer: str, moment: str = "assembly") -> None:
        """Refuse `auto` for a scorer, by its name, whose error is not known.

        Raises:
            InputError: the error is not known; the message names scorers with a known one.
        """
        if self.is_auto and table_of(scorer, moment) is None:
            known = " or ".join(name for name, at in shipped_errors().tables if at == moment)
            when = "" if moment == "assembly" else " before compiling"
            other = f", or rank by {known}" if known else ""
            raise InputError(
                f"{self.option} auto: the error of {scorer}{when} was never measured, so that it "
                f"cannot choose; give a number, such as {UNMEASURED}{other}"
            )

    def select(
        self,
        gaps: Sequence[float],
        scorer: str,
        moment: str = "assembly",
        target: Target | None = None,
    ) -> Selection:
        """Choose how many of a ranking to keep.

        Args:
            gaps: of each config, best first: how far its score is below the best.
            scorer: name of the scorer whose scores they are.
            moment: "assembly" or "sketch", the moment of the ranking.
            target: the device that is ranked for, to say where the error was measured elsewhere.

        Raises:
            InputError: `auto`, and the scorer's error is not known.
        """
        self.check(scorer, moment)
        table = table_of(scorer, moment)
        cut = table.cut_for(AIM) if table and self.is_auto else None
        if cut is not None:
            size = cut.size(gaps)
        else:
            size = min(len(gaps), self.count or math.ceil(len(gaps) * (self.percent or 0) / 100))
            # By rank alone: on unseen kernels this states 0.988 for 20 configs, which kept
            # 0.988; with the gap of the twentieth it states 0.968 (`learned`).
            cut = table.cut(count=size) if table else None
        source = shipped_errors().source(scorer, moment) if table else None
        if size == len(gaps):
            return Selection(str(self), size, 1.0, 0.0, source, low_share=1.0)
        if cut is None:
            return Selection(str(self), size)
        other = shipped_errors().other_device(target)
        return Selection(str(self), size, cut.share, cut.dropped, source, other, cut.low)


MOST_LOST: Final = {
    "quarter": ((0.021, 0.019, 0.133), (0.009, 0.048, 0.133)),
    "tenth": ((0.018, 0.019, 0.133), (0.026, 0.046, 0.267)),
}
"""Largest losses seen where a part was sketched, against all sketched, by that part: for cuts below
10, then from 10 on. Each is the loss of the mean share, of the share that nine in ten tasks keep,
and the rise of the chance that the best is dropped; the largest over scorers and cuts, on 15 tasks
(benchmarks/results/first_stage.json)."""


def of_whole_space(
    selection: Selection, sketched: int, unsketched: int, target: Target
) -> Selection:
    """Widen a choice among sketched configs by what was lost where a part was sketched.

    Args:
        selection: the choice.
        sketched: how many configs were sketched.
        unsketched: how many were not.
        target: the device that is ranked for.
    """
    if selection.expected_share is None or selection.chance_dropped is None:
        return selection
    part = "quarter" if 4 * sketched >= sketched + unsketched else "tenth"
    share, low, dropped = MOST_LOST[part][selection.ranks >= 10]
    low_share = selection.low_share
    return replace(
        selection,
        expected_share=max(0.0, selection.expected_share - share),
        low_share=None if low_share is None else max(0.0, low_share - low),
        chance_dropped=min(1.0, selection.chance_dropped + dropped),
        source=f"{selection.source}; widened by {share} for {unsketched:,} configs that were not "
        f"sketched, as was lost on 15 tasks of which a {part} was sketched",
        other_device=shipped_errors().other_device(target),
    )


def table_of(scorer: str, moment: str = "assembly") -> ErrorTable | None:
    """Return the measured error of a scorer by its name; None if it was not measured.

    Raises:
        ParseError: the tables that ship are missing or damaged.
    """
    return shipped_errors().tables.get((scorer, moment))
