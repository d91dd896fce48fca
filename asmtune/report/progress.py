"""A progress bar for long commands, on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from asmtune.core.progress import ProgressListener


class ProgressBar(ProgressListener):
    """A bar with a rate and an estimate; silent where stderr is no terminal.

    Use as a context manager.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
        # Without a terminal rich would still end with an empty line.
        self._shown = console.is_interactive
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        if self._shown:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._progress.stop()

    def start(self, stage: str, total: int) -> None:
        """Begin a stage of `total` steps."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(stage, total=total, rate="")

    def advance(self) -> None:
        """Advance the bar by one step."""
        if self._task is None:
            return
        task = self._progress.tasks[self._progress.task_ids.index(self._task)]
        rate = f"{task.speed:.1f}/s" if task.speed else ""
        self._progress.update(self._task, advance=1, rate=rate)
