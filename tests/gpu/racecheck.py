"""Runs racecheck over a case of `hopper_process`, and prints the hazards that are not Triton's own.

    python -m tests.gpu.racecheck attention 0 [CONFIGS]

`warp_specialize` has bytes in shared memory that tell worker warps which partition to run. The
default partition writes them, all warps pass barrier 1, the workers read them, and all pass it
again. racecheck reports these accesses. Their lines are that of the kernel's `def` and that of the
statement with the call. Nothing else at those lines touches shared memory: test_hopper.py tests
that in the machine code.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.gpu import hopper_process

LIMIT_S = 300
TOOLKIT = "/usr/local/cuda/bin"
MODULES = {name: module for name, (module, _, _) in hopper_process.CASES.items()}
MODULES["apart"] = hopper_process

Line = tuple[str, int]
"""A file's name, and the number of a line."""

_ACCESS = re.compile(r"(Read|Write) access at \S+ in (\S+):(\d+)")


def handover_lines(path: Path) -> set[Line]:
    """Return the lines that accesses to Triton's bytes have in a file's `kernel`."""
    lines = set()
    for function in ast.parse(path.read_text()).body:
        if isinstance(function, ast.FunctionDef) and function.name == "kernel":
            lines.add(function.lineno)
            for statement in function.body:
                calls = [node.lineno for node in ast.walk(statement) if _specializes(node)]
                lines.update([statement.lineno, *calls] if calls else [])
    return {(path.name, line) for line in lines}


def _specializes(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "warp_specialize"
    )


def other_hazards(report: str, handover: Collection[Line]) -> list[str]:
    """Return a report's hazards but for a read and a write at given lines.

    Raises:
        ValueError: the report has no summary, or one that counts other hazards.
    """
    hazards, first, blocks = [], "", 0
    for line in report.splitlines():
        if not line.startswith("=====") or "SUMMARY" in line:
            continue
        if "Race reported between" in line:
            first, blocks = line, blocks + 1
        elif " access at " in line and first:
            if not _hands_over(first, line, handover):
                hazards.append(f"{first} {line}".replace("=========", "").strip())
        elif "Error" in line or "Warning" in line:
            hazards.append(line)
    summary = re.search(r"RACECHECK SUMMARY: (\d+) hazard", report)
    if summary is None:
        raise ValueError("racecheck: the report has no summary; the case did not end")
    if int(summary[1]) != blocks:
        raise ValueError(f"racecheck: {blocks} hazards are printed, {summary[1]} are summed up")
    return hazards


def _hands_over(first: str, second: str, handover: Collection[Line]) -> bool:
    accesses = [match.groups() for match in map(_ACCESS.search, (first, second)) if match]
    kinds = {kind for kind, _, _ in accesses}
    there = all((name, int(line)) in handover for _, name, line in accesses)
    return len(accesses) == 2 and kinds == {"Read", "Write"} and there


def main(kernel: str, *numbers: str) -> None:
    """Check one case; exit with 1 if a hazard is left, or the case fails."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=TOOLKIT)
    if tool is None:
        sys.exit("racecheck: compute-sanitizer is not on PATH; it comes with the CUDA toolkit")
    command = [tool, "--tool", "racecheck", "--print-limit", "100000", sys.executable]
    command += ["-m", "tests.gpu.hopper_process", kernel, *numbers]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
    module = MODULES[kernel].__file__
    assert module is not None
    hazards = other_hazards(run.stdout, handover_lines(Path(module)))
    end = f"{len(hazards)} hazards besides Triton's own; the case ended with {run.returncode}"
    sys.stdout.write("\n".join([*hazards, end, ""]))
    sys.exit(1 if hazards or run.returncode else 0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
