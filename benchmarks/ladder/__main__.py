"""Gain of each step of a ladder, and the assembly behind the GEMM's.

    python -m benchmarks.ladder [--rounds N] [--output FILE]
    python -m benchmarks.ladder attention|conv [--rounds N] [--output FILE]
    python -m benchmarks.ladder [attention|conv] --table

Needs a GPU but for `--table`: each step is checked against float64 at each size, then timed against
`torch.matmul`, v4 against `torch.addmm` and `gelu`, interleaved, L2 cold, p50; what is wrong is not
timed, and the exit status is 1. v0 gets few samples where one takes long. Attention's steps are
timed against `scaled_dot_product_attention`, those of the convolution against cuDNN, some 30 s
each; there v2 is tuned first, by the effort "quick". `--table` writes the ladder's page from the
file alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.tuned import Measurement
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.harness import RESULTS, parser, raced, write
from benchmarks.ladder import others
from benchmarks.ladder.document import DOCUMENT, document
from benchmarks.ladder.steps import SIZES, STEPS, Operands, Size, assembly


def errors(operands: Operands) -> dict[str, float]:
    """Compute the error of each step relative to what is allowed; up to 1 is right."""
    product, fused = operands.exact()
    expected, launches = dict.fromkeys(STEPS, product) | {"v4": fused}, operands.launches()
    # JSON has no infinity.
    return {name: min(excess(launches[name](), expected[name]), 1e300) for name in STEPS}


def timed(
    launches: Mapping[str, Callable[[], Any]], policy: TimingPolicy
) -> dict[str, dict[str, Any]]:
    """Measure microseconds and samples of each launch, or its error."""
    by_step: dict[str, dict[str, Any]] = {}
    for name, outcome in raced(launches, policy).items():
        if isinstance(outcome, Measurement):
            by_step[name] = {
                "p50_us": round(outcome.median_us, 3),
                "samples": len(outcome.samples_us),
            }
        else:
            by_step[name] = {"failed": outcome.detail}
    return by_step


def measured(size: Size, policy: TimingPolicy) -> dict[str, Any]:
    """Check the steps at one size and, if they pass, time them."""
    torch.manual_seed(0)
    operands = Operands.random(size, "cuda")
    by_step = errors(operands)
    wrong = {name: error for name, error in by_step.items() if not error <= 1}
    if wrong:
        return {"wrong": wrong}
    return {"error_by_tolerance": by_step, "times": timed(operands.launches(), policy)}


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Make a row a size: times, and the assembly's facts of each step."""
    target = load_target(device_name())
    settings = Settings.from_environment()
    policy = TimingPolicy(fine_rounds=options.rounds)
    for size in SIZES:
        # Before the assembly is read, since v3 and v4 find their configs here.
        times = measured(size, policy)
        shown = {name: assembly(name, size, target, settings) for name in STEPS}
        yield {"size": dict(size), "target": target.name, **times, "assembly": shown}


def other_rows(name: str, policy: TimingPolicy, device: str) -> Iterator[dict[str, Any]]:
    """Make a row a size of the attention or the convolution ladder: checked, then timed."""
    ladder = others.LADDERS[name]
    others.prepare(name)
    for size in ladder.sizes:
        torch.manual_seed(0)
        problem = ladder.problem(size, device)
        row: dict[str, Any] = {"size": dict(size), "flops": problem.flops}
        by_step = other_errors(problem, ladder.steps)
        wrong = {step: error for step, error in by_step.items() if not error <= 1}
        if wrong:
            yield {**row, "wrong": wrong}
            continue
        yield {**row, "error_by_tolerance": by_step, "times": timed(problem.launches, policy)}


def other_errors(problem: others.Problem, steps: Sequence[str]) -> dict[str, float]:
    """Compute the error of each step relative to what is allowed; up to 1 is right."""
    by_step = {}
    for step in steps:
        exact = problem.exact.get(step, problem.exact[""])
        rows = {"fp16": problem.tolerances.get(step, problem.tolerances[""])}
        by_step[step] = min(excess(problem.launches[step](), exact, rows), 1e300)
    return by_step


def write_page(name: str, file: Path) -> None:
    """Write a ladder's page, or the times in it."""
    if name == "gemm":
        DOCUMENT.write_text(document(json.loads(file.read_text())))
        return
    page = others.page_of(name)
    page.write_text(others.rewritten(name, page.read_text(), file))


def main() -> None:
    """Measure a ladder, or write its page."""
    arguments = parser(__doc__, None)
    arguments.add_argument("ladder", nargs="?", choices=("gemm", *others.LADDERS), default="gemm")
    arguments.add_argument("--table", action="store_true", help="write the ladder's page")
    arguments.add_argument("--rounds", type=int, default=30, help="samples of each launch")
    options = arguments.parse_args()
    is_gemm = options.ladder == "gemm"
    file = RESULTS / "ladder.json" if is_gemm else others.file_of(options.ladder)
    output = options.output or file
    if options.table:
        write_page(options.ladder, output)
        return
    policy = TimingPolicy(fine_rounds=options.rounds)
    made = rows(options) if is_gemm else other_rows(options.ladder, policy, "cuda")
    table = []
    for row in made:
        table.append(row)
        print(json.dumps(row), flush=True)
        # After each size, so that an interrupted run leaves what it has.
        write(output, {"dtype": "fp16", "rows": table})
    sys.exit(1 if any("wrong" in row for row in table) else 0)


if __name__ == "__main__":
    main()
