"""Where the keys of one decorator are tuned: a workshop for each device."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmtune.tuning.tuner import Tuner


class TunersByDevice:
    """Workshops by device, each opened when it is first needed: that loads all that tunes.

    Args:
        choices: of how to tune, as `TuneOptions.of` takes them.
    """

    def __init__(self, choices: Mapping[str, Any]) -> None:
        self._choices: Any = choices
        self._opened: dict[tuple[str, bool], Tuner] = {}
        self._lock = threading.Lock()

    def of(self, device: str, *, later: bool = False) -> Tuner:
        """The workshop of a device.

        Args:
            device: its name, as the driver gives it.
            later: whether for the background: then what is timed runs in a process of its
                own, and what is done ends with the program.

        Raises:
            InputError: no target describes the device, or a choice is none of its forms.
        """
        with self._lock:
            if (device, later) not in self._opened:
                self._opened[device, later] = self._open(device, later)
            return self._opened[device, later]

    def _open(self, device: str, later: bool) -> Tuner:
        from asmtune.tuning.options import TuneOptions
        from asmtune.tuning.tuner import Tuner

        options = TuneOptions.of(self._choices)
        if not later:
            return Tuner.open(device, options)
        from asmtune.runtime.misses.background import line_of

        leaving = line_of(device).leaving
        made = Tuner.open(device, replace(options, isolate=True))
        return replace(made, audience=leaving, funnel=replace(made.funnel, progress=leaving))
