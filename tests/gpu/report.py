"""Runs the checks that need a GPU, each part within a limit, and writes what they said.

    python -m tests.gpu.report [PART ...] --output FILE [--minutes N] [--workers N]

Parts are files of tests, run by pytest in so many workers, and cases of racecheck, some configs
each. Each part is a process that is ended by its limit; none begins after the minutes are over. The
file is written after each part, and says by which command, where, when and of which commit. The
exit status is 1 if a part failed. One that was ended by its limit is said to be, and did not fail.
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.provenance import provenance

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = {
    "hopper": 150, "prepared": 90, "launch": 180, "gru": 90, "accuracy": 120, "triton_cases": 90,
    "kernels": 240,
}  # fmt: skip
"""Seconds of each file of tests."""

RACES: Final = {
    "attention": ((0, 3), (1, 3)), "gemm": ((0, 3), (1, 3), (8, 1)), "scaled": ((0, 3), (1, 3)),
    "backward": ((0, 3), (1, 3)),
}  # fmt: skip
"""Cases of racecheck by the kernel: the number, and how many of its configs."""

RACE_S: Final = 75
GRACE_S: Final = 10
SHOWN: Final = 40
"""Most lines of a part that are kept."""

_RESULT: Final = re.compile(r"(?:passed|failed|skipped|errors?|no tests ran)\b.* in [\d.]+s")


@dataclass(frozen=True)
class Part:
    """A part of the report.

    Attributes:
        name: its name on the command line.
        command: arguments of Python.
        limit_s: seconds after which it is ended.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True)
class Outcome:
    """What became of a part: its output, its exit status (None if its limit ended it), seconds."""

    output: str
    status: int | None
    seconds: float


def parts(workers: int) -> list[Part]:
    """List all parts: the files of tests, then the cases of racecheck."""
    spread = ("-n", str(workers)) if workers else ()
    tests = [
        Part(name, ("-m", "pytest", "-m", "gpu", "-v", *spread, f"tests/gpu/test_{name}_gpu.py"), s)
        for name, s in TESTS.items()
    ]
    races = [
        Part("race", ("-m", "tests.gpu.racecheck", kernel, str(number), str(most)), RACE_S)
        for kernel, cases in RACES.items()
        for number, most in cases
    ]
    return [*tests, *races]


def run(part: Part, limit_s: float) -> Outcome:
    """Run a part in a process group of its own; end the whole group when the time is over."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            end(process)
        file.seek(0)
        output = file.read().decode(errors="replace")
    return Outcome(output, status, time.monotonic() - start)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process, so that pytest sums up what it has; then kill its group."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def said(part: Part, outcome: Outcome) -> list[str]:
    """Pick the lines to keep: failed tests or hazards, then the result or the reason for none."""
    lines = [line.rstrip() for line in outcome.output.splitlines()]
    seconds = f"{outcome.seconds:.0f} s"
    if "pytest" not in part.command:
        kept = [line for line in lines if line and not line.startswith("asmtune")][-SHOWN:]
        ended = f"ended by its limit after {seconds}"
        return [*kept, ended if outcome.status is None else seconds]
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) ", line)]
    result = [line.strip("= ") for line in lines if _RESULT.search(line)]
    if outcome.status is None:
        failed = failed or list(told(lines, "FAILED"))
        return [*_first(failed), f"{counted(lines)}, then ended by its limit after {seconds}"]
    if not result:  # it ended before any test began, or was killed
        return [*lines[-SHOWN:], f"no result, exit status {outcome.status}, after {seconds}"]
    return [*_first(failed), result[-1]]


def counted(lines: Sequence[str]) -> str:
    """Count the tests that were told to have passed and failed, each a line of `pytest -v`."""
    passed, failed = (sum(1 for _ in told(lines, word)) for word in ("PASSED", "FAILED"))
    return f"{passed} passed, {failed or 'none'} failed"


def told(lines: Sequence[str], word: str) -> Iterator[str]:
    """Give those lines of `pytest -v` that tell a test's outcome by a word."""
    return (line for line in lines if re.search(rf"(^\[gw\d+\].*{word} |::.* {word}\b)", line))


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def ran(chosen: Sequence[Part], minutes: float) -> Iterator[tuple[Part, Outcome]]:
    """Run parts one after the other, none past the end; say which are not begun."""
    deadline = time.monotonic() + 60 * minutes
    for place, part in enumerate(chosen):
        left = deadline - time.monotonic() - GRACE_S
        if left <= 0:
            sys.stdout.write(f"the time is over: {len(chosen) - place} parts are not begun\n")
            return
        yield part, run(part, min(part.limit_s, left))


def head(facts: Mapping[str, Any], left_out: Collection[Part]) -> str:
    """Write what stands above the parts: machine, versions, date, commit, and the command."""
    versions = (
        f"driver {facts.get('driver', '-')}, Python {facts['python']}, torch {facts['torch']}, "
        f"triton {facts['triton']}, {facts['cpus']} CPUs"
    )
    lines = [
        "What the checks on a GPU said. Each part is one process; one that was ended by its limit",
        "had no time for its last tests.",
        f"{facts['device']} ({versions})",
        f"{facts['date'][:10]}, commit {facts['commit']}",
        "",
        f"  {facts['command']}",
    ]
    if left_out:
        lines += ["", f"{len(left_out)} parts had no time left:"]
        lines += [f"  {_text(part)}" for part in left_out]
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n"


def _text(part: Part) -> str:
    return f"python {shlex.join(part.command)}"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = (*TESTS, "race")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=6, help="of pytest; 0 for none")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if unknown := sorted(set(options.parts) - set(names)):
        parser.error(f"unknown part {unknown[0]!r}: one of {', '.join(names)}")
    return options


def main() -> None:
    """Run the parts, and write and print what each said."""
    options = arguments()
    chosen = [p for p in parts(options.workers) if p.name in (options.parts or (*TESTS, "race"))]
    facts, texts, failed = provenance(), [], False
    for done, (part, outcome) in enumerate(ran(chosen, options.minutes), 1):
        failed |= outcome.status not in (None, 0)
        texts.append("\n".join([_text(part), *said(part, outcome)]) + "\n")
        sys.stdout.write(f"{texts[-1]}\n")
        sys.stdout.flush()
        # After each part, so that an interrupted run leaves what it has.
        options.output.write_text("\n".join([head(facts, chosen[done:]), *texts]))
    sys.exit(1 if failed or not texts else 0)


if __name__ == "__main__":
    main()
