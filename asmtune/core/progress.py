"""The listener that hears how far long work is."""

from __future__ import annotations


class ProgressListener:
    """Base class of listeners: each method does nothing, and a subclass defines those it needs."""

    def start(self, stage: str, total: int) -> None:
        """Note that a stage of `total` steps begins."""

    def advance(self) -> None:
        """Note that one step of the stage is done."""
