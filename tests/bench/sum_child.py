"""The process that times, with the host of `tests.tuning_support` for a GPU.

Its first argument is a folder: "slow" in it makes each launch take a while, and every sample adds a
letter to "samples". The second one is the name of its GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from asmtune.measure.bench.child_main import run
from asmtune.measure.timing.clock import Subject
from tests.tuning_support import HostMachine

FOLDER = Path(sys.argv[1])


class FarMachine(HostMachine):
    """Counts its samples in a file."""

    place = "cpu"

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Take the usual samples."""
        with (FOLDER / "samples").open("a") as samples:
            samples.write("x" * len(subjects))
        if (FOLDER / "slow").exists():
            time.sleep(0.03)
        return super().round(subjects)


if __name__ == "__main__":
    run(lambda: FarMachine(name=sys.argv[2]))
