"""Warnings about launches that run with a config that nobody tuned, each told once."""

from __future__ import annotations

import threading
import warnings
from typing import Final

from asmtune.base.stacklevel import frames_inside
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneKey

_ADVICE: Final = {
    "capture": "a CUDA graph is being captured, in which nothing is tuned; launch it once "
    "before the capture",
    "compile": "torch.compile traces it, where nothing can be timed; run one step before it "
    "compiles, under torch.compiler.set_stance('force_eager')",
}

THROUGH: Final = ("torch.", "contextlib", "threading")
"""Modules that launch for a program."""


class UntunedWarning(UserWarning):
    """A launch was recorded for later with a config that is not tuned for its key."""


class Notices:
    """Tells of each kernel and key once, from whichever thread comes first."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def untuned(self, key: TuneKey, config: Config, moment: str) -> None:
        """Warns that a key's launch goes on with a config that is not tuned for it.

        Args:
            key: of the launch.
            config: that it goes on with.
            moment: "capture" or "compile": why it was not tuned.
        """
        spoken = spoken_key(key)
        with self._lock:
            first = (moment, spoken) not in self._told
            self._told.add((moment, spoken))
        if first:
            message = f"{spoken}: not tuned; {_ADVICE[moment]}; goes on with {config}"
            warnings.warn(message, UntunedWarning, stacklevel=frames_inside(*THROUGH))


def spoken_key(key: TuneKey) -> str:
    """A key in one line: `module.add at n=8, x_ptr fp16 on NVIDIA H200`."""
    values = [f"{name}={value}" for name, value in key.shape.items()]
    values += [f"{name} {dtype}" for name, dtype in key.dtypes.items()]
    return f"kernel {key.kernel} at {', '.join(values) or 'any arguments'} on {key.device}"
