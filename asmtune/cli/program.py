"""The part of `asmtune run` in the program's process: it patches Triton and reports at the end."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmtune.runtime.events import KeyResolved
    from asmtune.runtime.key_recorder import KeyRecorder
    from asmtune.runtime.launch_counts import LaunchCounts


class Program:
    """The user's program, in its own process or one that it forked."""

    def __init__(self, instructions: str, process: int) -> None:
        """Read the JSON of `cli.run.UserProgram.execute`; `process` is the program's first."""
        given: dict[str, Any] = json.loads(instructions)
        self._options: dict[str, Any] = given["options"]
        self._quiet: bool = given["quiet"]
        self._record: str | None = given["record"]
        self._process = process
        self._met: list[KeyResolved] = []
        self._held = ExitStack()
        self._counts: LaunchCounts | None = None
        self._recorder: KeyRecorder | None = None
        self._is_patched = False

    @property
    def _is_first(self) -> bool:
        """Return whether this is the process that the user started."""
        return os.getpid() == self._process

    def patch(self) -> None:
        """Make `triton.autotune` use asmtune, once, until Python ends."""
        if self._is_patched:
            return
        self._is_patched = True
        from asmtune.runtime.events import listening, recording
        from asmtune.runtime.patching.redirect import patch

        self._held.enter_context(listening(self._met.append))
        if not self._quiet:
            from asmtune.runtime.launch_counts import LaunchCounts

            self._counts = LaunchCounts()
            self._held.enter_context(self._counts.counting())
        patching = patch(**self._options)
        patching.tell = _tell
        self._held.enter_context(patching)
        if self._record is not None:
            from asmtune.runtime.key_recorder import KeyRecorder

            rules = tuple(self._options["buckets"])
            self._recorder = KeyRecorder(Path(self._record), rules)
            self._held.enter_context(recording(self._recorder.launched))

    def end(self) -> None:
        """Tell what was tuned and met; in a process that was forked off, nothing."""
        if self._is_first and (self._record or self._options["buckets"]):
            self.patch()  # rules and the file of keys are reported without Triton, too
        self._held.close()
        if not self._is_first or sys.stderr is None:  # print() would take stdout in its place
            return
        if self._met and not self._quiet:
            from asmtune.cli.output import write_note
            from asmtune.cli.run import keys_met_table

            write_note(keys_met_table(self._met))
            for line in [] if self._counts is None else self._counts.launch_bound():
                _tell(line)
        if self._recorder is not None and not self._quiet:
            _tell(self._recorder.summary())


def _tell(line: str) -> None:
    from asmtune.cli.output import print_line

    print_line(f"asmtune: {line}", err=True)
