"""Runs the checks that need a GPU, each part within a limit, and writes what they said.

    python -m tests.gpu.report [PART ...] --output FILE [--minutes N] [--workers N]

Parts are files of tests, run by pytest in N workers. Each part is a process that is ended by
its limit; none begins after the minutes are over. The file is written after each part, and says by
which command, where, when and of which commit. All that parts without success printed is in a file
beside it, which ends in .log. The exit status is 1 if a part failed; one that was ended by its
limit did not.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import provenance

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = {
    "kernels": 540, "hopper": 300, "matmul": 200, "torch": 300, "gluon": 200, "gru": 150,
    "tune": 200, "faults": 200, "launch": 180, "recording": 150, "bench": 150, "descriptors": 150,
    "diagnose": 120, "checker": 120, "prepared": 120,
    "background": 120, "targets": 120, "bench_command": 120, "workspaces": 90,
    "triton_cases": 90, "clock": 90, "large_memory": 240, "ranks": 90, "user_state": 90,
}  # fmt: skip
"""Seconds of each file of tests; what takes longest comes first."""

ALONE: Final = frozenset({"clock", "bench", "checker", "large_memory", "ranks"})
"""Files whose tests time the GPU or fill its memory, so that no other may use it meanwhile."""

GRACE_S: Final = 10
SHOWN: Final = 40
"""Most lines of a part that are kept."""


@dataclass(frozen=True)
class Part:
    """A part of the report: its name, arguments of Python, and seconds after which it is ended."""

    name: str
    command: tuple[str, ...]
    limit_s: float

    def __str__(self) -> str:
        return f"python {shlex.join(self.command)}"


def parts(workers: int) -> list[Part]:
    """List all parts."""
    # By default pytest gives each worker a dozen neighbours, which are alike and may all be long.
    spread = ("-n", str(workers), "--maxschedchunk", "1") if workers else ()
    begin = ("-m", "pytest", "-m", "gpu", "-v")
    return [
        Part(name, (*begin, *more, f"tests/gpu/test_{name}_gpu.py"), seconds)
        for name, seconds in TESTS.items()
        for more in (() if name in ALONE else spread,)
    ]


def run(part: Part, limit_s: float) -> tuple[str, int | None]:
    """Run a part in a process group of its own; return its output and exit status.

    When the time is over the whole group is ended, and the status is None.
    """
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(limit_s)
        if status is None:
            process.send_signal(signal.SIGINT)  # so that pytest sums up what it has
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(0)
        return file.read().decode(errors="replace"), status


def said(part: Part, output: str, status: int | None) -> list[str]:
    """Pick the lines to keep: failed tests, then the result or the reason for none."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    ended = [f"ended by its limit of {part.limit_s:.0f} s"] if status is None else []
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) ", line)]
    passed = sum(" PASSED" in line for line in lines)
    result = [line.strip("= ") for line in lines if re.search(r" in [\d.]+s\b", line)][-1:]
    kept = failed[:SHOWN] or ([] if result or ended else lines[-SHOWN:])
    return [*kept, *(ended or result or ["no result"]), *([f"{passed} passed"] if ended else [])]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(TESTS)}")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=6, help="of pytest; 0 for none")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(TESTS)):
        parser.error(f"unknown part {unknown[0]!r}: one of {', '.join(TESTS)}")
    return options


def main() -> None:
    """Run the parts, and write and print what each said."""
    options, facts = arguments(), provenance()
    wanted = options.parts or TESTS
    deadline = time.monotonic() + 60 * options.minutes
    texts = [f"# {facts['device']}, driver {facts.get('driver', '-')}, torch {facts['torch']}, "]
    texts[0] += f"triton {facts['triton']}\n# {facts['date'][:10]}, commit {facts['commit']}\n"
    texts[0] += f"#   {facts['command']}\n"
    failed = False
    for part in (part for part in parts(options.workers) if part.name in wanted):
        left = deadline - time.monotonic() - GRACE_S
        output, status = run(part, min(part.limit_s, left)) if left > 0 else ("", None)
        if status != 0:
            failed |= status is not None
            with options.output.with_suffix(".log").open("a") as log:
                log.write(f"{part}\n{output}\n")
        lines = said(part, output, status) if left > 0 else ["no time was left"]
        texts.append("\n".join([str(part), *lines]) + "\n")
        sys.stdout.write(f"{texts[-1]}\n")
        sys.stdout.flush()
        # After each part, so that an interrupted run leaves what it has.
        options.output.write_text("\n".join(texts))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
