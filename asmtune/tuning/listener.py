"""The listener that hears what a tuning run does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from asmtune.core.progress import ProgressListener

if TYPE_CHECKING:
    from asmtune.core.records.tuned import Outcome
    from asmtune.core.records.verdicts import Verdict
    from asmtune.store.trace.run import Header
    from asmtune.tuning.search.state import SearchState


class TuningListener(ProgressListener):
    """Hears a tuner, its runs and their searches; each method does nothing.

    A subclass defines the methods that it needs. Those from `search_started` on are called by a
    search.
    """

    def waiting(self, holder: str) -> None:
        """Note that another process, named `holder`, tunes the key and is waited for."""

    def begin(self, header: Header) -> None:
        """Note that a tuning run begins."""

    def stage(self, name: str) -> None:
        """Note that a stage of a run begins."""

    def progress(self, state: SearchState) -> None:
        """Note that more is compiled or timed."""

    def search_started(self, state: SearchState) -> None:
        """Note that a search begins, with what is known before anything is compiled."""

    def ranked_again(self, state: SearchState) -> None:
        """Note that more of the space is sketched, and all of it ranked again."""

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Note that a batch is compiled, and that the search waited `seconds` for it."""

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Note that configs are timed; `gain` is expected of the batch compiled meanwhile."""
