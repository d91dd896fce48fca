"""What a funnel tells of its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far a stage is."""

    def start(self, stage: str, total: int) -> None:
        """Begins a stage of `total` steps."""

    def advance(self) -> None:
        """One step of the stage is done."""


class NoProgress:
    """Says nothing."""

    def start(self, stage: str, total: int) -> None:
        """Ignores it."""

    def advance(self) -> None:
        """Ignores it."""
