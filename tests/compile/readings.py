"""What tests read off an artifact or a sketch, in a worker: this loads nothing but asmtune."""

from __future__ import annotations

import os
import signal
from typing import Any

from asmtune.compile.lower import LowerRequest
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure


def digest_of(made: Any) -> str:
    """Its digest."""
    return str(made.digest)


def whole(made: Any) -> Any:
    """All of it."""
    return made


def where(made: Any) -> int:
    """Process that reads."""
    return os.getpid()


def deadly(made: Any) -> str:
    """Kill the worker that reads a config of two warps."""
    if made.metadata["num_warps"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return digest_of(made)


class StrangeError(Exception):
    """Not one of ours."""


def breaks(made: Any) -> str:
    """Raise for a config of two warps."""
    if made.metadata["num_warps"] == 2:
        raise StrangeError(made.entry)
    return digest_of(made)


def admit(config: Config, request: LowerRequest) -> Failure | None:
    """Keep nothing from the back end."""
    return None
