"""Prints the files of asmtune that a first launch and a prune report enter, in order of entry.

    python -m benchmarks.walk [launch|report]

The launch tunes a kernel of two vectors. Configs are compiled for an H200; no GPU is needed, as
launches and times are those of `tests.tuning_support`. The report is that of `asmtune prune-report
tiled_matmul`, without a cache. A file counts if one of its functions runs in this process;
importing it does not count, nor does what only the compiling children run. Without a word both are
walked, and their counts and lines are printed.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import asmtune
from asmtune import asm_autotune
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.tuner import Tuner
from tests import tuning_support

ROOT = Path(asmtune.__file__).parent


@contextmanager
def entered() -> Iterator[dict[str, None]]:
    """Collect the files whose functions run meanwhile, in order, in this and in new threads."""
    files: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_NEWLOCALS:
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT):
                files.setdefault(str(path.relative_to(ROOT)))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def launch(folder: Path) -> list[str]:
    """List the files that the first launch of a key enters."""
    machine = tuning_support.HostMachine()
    prepared = tuning_support.workshop(folder, machine)
    problem = tuning_support.problem()

    def opened(_: str, options: TuneOptions) -> Tuner:
        effort = replace(options.effort, scorer="roofline")
        return replace(prepared, options=replace(options, effort=effort))

    kernel = asm_autotune(space=tuning_support.space(), key=["n"], skip_tuning_below_us=None)(
        tuning_support.add
    )
    with (
        patch.dict("os.environ", ASMTUNE_CACHE_DIR=str(folder)),
        patch.object(Tuner, "open", opened),
        patch("asmtune.measure.timing.nvml.device_name", lambda *_: tuning_support.DEVICE),
        patch.object(tuning_support.add, "run", lambda *_, **__: None),
        entered() as files,
    ):
        kernel[problem.grid](*problem.arguments.values())
    return list(files)


def report(folder: Path) -> list[str]:
    """List the files that a report of the GEMM enters, from the command line on."""
    from asmtune.cli.app import run

    output = str(folder / "report.json")
    words = ["prune-report", "tiled_matmul", "--target", "H200", "--format", "json", "-o", output]
    with patch.dict("os.environ", ASMTUNE_CACHE_DIR=str(folder)), entered() as files:
        run(words)
    return list(files)


WALKS = {"launch": launch, "report": report}


def main(words: list[str]) -> None:
    """Walk, and print the files of one walk, or the counts of both."""
    for name in words or WALKS:
        with tempfile.TemporaryDirectory() as folder:
            found = WALKS[name](Path(folder))
        if words:
            print("\n".join(found))
        lines = sum(len((ROOT / file).read_text().splitlines()) for file in found)
        print(f"{name}: {len(found)} files, {lines} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
