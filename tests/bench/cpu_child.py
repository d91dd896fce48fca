"""The process that times, with a CPU for a GPU.

An argument makes it fail at its start.
"""

from __future__ import annotations

import sys
from pathlib import Path

WISH = sys.argv[1] if len(sys.argv) > 1 else ""
if WISH == "die":
    sys.exit("the driver is too old")

sys.path.insert(0, str(Path(__file__).parents[2]))

from asmtune.base.errors import MeasureError  # noqa: E402
from asmtune.measure.bench.child_main import run  # noqa: E402
from tests.bench.cpu_machine import CpuMachine  # noqa: E402


def machine() -> CpuMachine:
    """The device wished for."""
    if WISH == "refuse":
        raise MeasureError("no GPU here")
    return CpuMachine()


if __name__ == "__main__":
    run(machine)
