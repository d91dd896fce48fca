"""Runs the checks that need a GPU, each part within a limit, and writes what they said.

    python -m tests.gpu.report [PART ...] --output FILE [--minutes N] [--workers N]

Parts are files of tests or shares of one, run by pytest in so many workers, and cases of racecheck,
some configs each. Each GPU of the machine takes the next part when it is free. Each part is a
process that is ended by its limit; none begins after the minutes are over. The file is written
after each part, and says by which command, where, when and of which commit; all that parts without
success printed is in a file beside it, which ends in .log. The exit status is 1 if a part failed.
One that was ended by its limit is said to be, and did not fail.
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import torch

from benchmarks.harness import provenance

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = {
    "kernels": 540, "hopper": 300, "matmul": 200, "torch": 300,
    "gluon": 200, "gru": 150, "bad_use": 200, "tune": 200, "faults": 200,
    "launch": 180, "recording": 150, "bench": 150, "descriptors": 150, "diagnose": 120,
    "checker": 120, "accuracy": 120, "patching": 120, "tuner_hooks": 120,
    "prepared": 120, "background": 120, "ranks": 120, "aibench8": 120,
    "targets": 120, "bench_command": 120, "workspaces": 90,
    "triton_cases": 90, "clock": 90, "user_state": 120, "large_memory": 240,
}  # fmt: skip
"""Seconds of each file of tests; what takes longest comes first."""

SPREAD: Final = frozenset({"kernels", "hopper"})
"""Files of which each GPU runs a share."""

ALONE: Final = frozenset({"clock", "bench", "checker", "large_memory"})
"""Files whose tests time the GPU or fill its memory, so that no other may use it meanwhile."""

ALL_GPUS: Final = frozenset({"ranks"})
"""Files whose tests need each GPU of the machine; on one GPU they skip what needs more."""

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


def parts(workers: int, gpus: int = 1) -> list[Part]:
    """List all parts: the files of tests, then the cases of racecheck."""
    # By default pytest gives each worker a dozen neighbours, which are alike and may all be long.
    spread = ("-n", str(workers), "--maxschedchunk", "1") if workers else ()
    tests = [
        Part(
            name,
            (*("-m", "pytest", "-m", "gpu", "-v"), *(() if name in ALONE else spread))
            + (("--share", f"{place}/{shares}") if shares > 1 else ())
            + (f"tests/gpu/test_{name}_gpu.py",),
            seconds,
        )
        for name, seconds in TESTS.items()
        for shares in (gpus if name in SPREAD else 1,)
        for place in range(shares)
    ]
    races = [
        Part("race", ("-m", "tests.gpu.racecheck", kernel, str(number), str(most)), RACE_S)
        for kernel, cases in RACES.items()
        for number, most in cases
    ]
    return [*tests, *races]


def run(part: Part, limit_s: float, gpu: int = 0) -> Outcome:
    """Run a part in a process group of its own; end the whole group when the time is over."""
    start = time.monotonic()
    shown = {} if part.name in ALL_GPUS else {"CUDA_VISIBLE_DEVICES": str(gpu)}
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=ROOT,
            env={**os.environ, **shown},
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


def ran(chosen: Sequence[Part], minutes: float, gpus: int) -> Iterator[tuple[Part, Outcome]]:
    """Run parts, one at a time on each GPU, none past the end; say how many are not begun."""
    deadline = time.monotonic() + 60 * minutes
    free: SimpleQueue[int] = SimpleQueue()
    for gpu in range(gpus):
        free.put(gpu)

    def run_next(part: Part) -> tuple[Part, Outcome] | None:
        gpu = free.get()
        left = deadline - time.monotonic() - GRACE_S
        outcome = (part, run(part, min(part.limit_s, left), gpu)) if left > 0 else None
        free.put(gpu)
        return outcome

    begun = 0
    with ThreadPoolExecutor(gpus) as threads:
        for future in as_completed([threads.submit(run_next, part) for part in chosen]):
            if (outcome := future.result()) is not None:
                begun += 1
                yield outcome
    if begun < len(chosen):
        sys.stdout.write(f"the time is over: {len(chosen) - begun} parts are not begun\n")


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
    gpus, wanted = max(1, torch.cuda.device_count()), options.parts or (*TESTS, "race")
    chosen = [part for part in parts(options.workers, gpus) if part.name in wanted]
    facts, texts, failed = provenance(), [], False
    left = list(chosen)
    for part, outcome in ran(chosen, options.minutes, gpus):
        left.remove(part)
        if outcome.status != 0:
            failed |= outcome.status is not None
            with options.output.with_suffix(".log").open("a") as log:
                log.write(f"{_text(part)}\n{outcome.output}\n")
        texts.append("\n".join([_text(part), *said(part, outcome)]) + "\n")
        sys.stdout.write(f"{texts[-1]}\n")
        sys.stdout.flush()
        # After each part, so that an interrupted run leaves what it has.
        options.output.write_text("\n".join([head(facts, left), *texts]))
    sys.exit(1 if failed or not texts else 0)


if __name__ == "__main__":
    main()
