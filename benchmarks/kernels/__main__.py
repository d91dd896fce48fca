"""The table of all kernels against the vendor's functions.

    python -m benchmarks.kernels [KERNEL ...] [--plan quick|full|wide] [--check all|rows]
        [--minutes N] [--resume] [--store FILE] [--effort NAME] [--retune] [--output FILE]

Needs a GPU. Each kernel goes through the whole accuracy check first, and through a comparison
with float64 at each shape that is timed; what fails is not timed, and the exit status is 1.
Kernels are launched as their users launch them: a config comes from the store or from what is
shipped, or is tuned now. Rows tune small problems as well, so that the store has what
`python -m benchmarks.kernels.ship` writes into `cache/`; the tiny ones of the accuracy check are
not tuned, as users' own are not. Rows of the output file that are not
made anew, and were timed with the source that their kernel has now, are kept.
A function that may call its vendor is timed twice: alone, and as it is called.
Times are of asmtune's own clock: interleaved with the vendor's and with plain PyTorch, L2
cold, p50 between Tukey's fences. Bytes are of inputs and results, each moved once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from asmtune.base.errors import AsmtuneError
from asmtune.core.failures import guarded
from asmtune.core.hardware.shipped import match_device
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import autotuners, reconfigure
from asmtune.runtime.options import DecoratorOptions
from asmtune.tuning.options import EFFORTS
from benchmarks.harness import until
from benchmarks.kernels import wide
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.identities import kernel_modules, source_of
from benchmarks.kernels.plan import PLANS, Place, Plan
from benchmarks.kernels.rows import Timer, called_first
from benchmarks.kernels.table import FILE, Table
from tests.kernels.accuracy import KERNELS, differences, extras, module_of


def all_tuners() -> list[AsmAutotuner]:
    """List the decorated kernels of the loaded modules, each once."""
    tuners = (tuner for module in kernel_modules() for tuner in autotuners(module))
    return list({id(tuner): tuner for tuner in tuners}.values())


@contextmanager
def small_untuned() -> Iterator[None]:
    """Leave small problems untuned in the body, as by default, and tune nothing anew."""
    before = {tuner: tuner.options for tuner in all_tuners()}
    try:
        for tuner in before:
            usual = DecoratorOptions.skip_tuning_below_us
            reconfigure(tuner, skip_tuning_below_us=usual, force=False, on_miss="tune")
        yield
    finally:
        for tuner, options in before.items():
            tuner.reconfigure(options)


@cache
def wrong(name: str, dtype: str) -> dict[str, float]:
    """Run the accuracy check; return what it finds wrong."""
    with small_untuned():
        errors = differences(name, dtype, "cuda") | extras(name, "cuda")
    return {what: min(error, 1e300) for what, error in errors.items() if not error <= 1.0}


def row(place: Place, timer: Timer, check: str) -> dict[str, Any]:
    """Measure a row: timings, or its errors, or its failure."""
    module, entry = module_of(place.kernel), ENTRIES[place.kernel]
    group = entry.group_at(place.shape, place.dtype)
    head = {"kernel": place.kernel, "group": group, "dtype": place.dtype}
    head["shape"] = dict(place.shape)

    def work() -> dict[str, Any]:
        errors = wrong(place.kernel, place.dtype) if check == "all" else {}
        if errors:
            return {**head, "wrong": errors}
        return timer.row(module, entry, place.shape, place.dtype)

    try:
        result = guarded("row", work)
    except AsmtuneError as error:  # no config can run, or be timed
        return {**head, "failed": str(error)}
    if isinstance(result, Failure):
        return {**head, "failed": result.detail.splitlines()[0]}
    return {**result, "source": source_of(place.kernel)}


def rows(
    places: list[Place], timer: Timer, check: str, minutes: float | None
) -> Iterator[dict[str, Any]]:
    """Measure the rows one after the other, until the time is over."""
    seconds = None if minutes is None else 60 * minutes
    for place in until(places, seconds, "--resume goes on"):
        yield row(place, timer, check)


def line(row: dict[str, Any]) -> str:
    """Format a row as text."""
    shape = " ".join(f"{name}={size}" for name, size in row["shape"].items())
    head = f"{row['kernel']:<24}{shape:<28}{row['dtype']:<6}"
    for what in ("wrong", "failed"):
        if what in row:
            return f"{head} {what.upper()} {row[what]}"
    ours, vendor = (row[who].get("p50_us", float("nan")) for who in ("ours", "vendor"))
    share = row.get("share_of_flops", row.get("share_of_dram", float("nan")))
    called = row.get("called_over_vendor")
    as_called = "" if called is None else f" alone, {called:.2f} as called"
    return (
        f"{head}{ours:>10.2f} us {vendor:>10.2f} us {row.get('over_vendor', 0):>7.2f}{as_called}"
        f" {share:>6.0%}"
        f" {row['first_launch_s']:>7.1f} s"
    )


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}")
    parser.add_argument("--plan", choices=PLANS, default="full", help=str(Plan.__doc__))
    parser.add_argument("--dtypes", default="", help="comma-separated; default: all of a kernel's")
    parser.add_argument("--check", choices=("all", "rows"), default="all")
    parser.add_argument("--minutes", type=float, default=None, help="begin no row after so many")
    parser.add_argument("--resume", action="store_true", help="skip rows that still hold")
    parser.add_argument("--retune", action="store_true", help="tune what is known as well")
    parser.add_argument("--store", default="", help="file of the store, instead of the user's")
    parser.add_argument("--effort", choices=tuple(EFFORTS), default=None, help="of tuning")
    parser.add_argument("--rounds", type=int, default=60, help="samples of each row")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    unknown = sorted(set(options.kernels) - set(KERNELS))
    if unknown:
        parser.error(f"unknown kernel {unknown[0]!r}: one of {', '.join(KERNELS)}")
    return options


def prepare(options: argparse.Namespace) -> None:
    """Tune all kernels, those of small problems too, and save the tuned configs where asked."""
    if options.store:
        os.environ["ASMTUNE_STORE_URL"] = str(Path(options.store).resolve())
    how = {"on_miss": "tune"} | ({} if options.effort is None else {"effort": options.effort})
    for name in options.kernels or KERNELS:
        module_of(name)
    # Public functions import these at their first launch on a Hopper.
    for name in ("gemm", "attention", "attention_backward", "scaled"):
        import_module(f"asmtune.kernels._hopper_{name}")
    for module in kernel_modules():
        first = called_first(module)
        for tuner in autotuners(module):
            # Else the kernel with fewer alternatives would overwrite what was tuned with all.
            is_other = all(tuner.fn is not one.fn for one in first)
            force = options.retune and (tuner in first or is_other)
            reconfigure(tuner, skip_tuning_below_us=None, force=force, **how)


def main() -> None:
    """Check and time the kernels, and write the result."""
    options = arguments()
    prepare(options)
    dtypes = tuple(filter(None, options.dtypes.split(",")))
    plan = Plan(name=options.plan, dtypes=dtypes)
    table = Table.resumed(options.output)
    kernels = options.kernels or KERNELS
    done = table.rows.keys() if options.resume else ()
    places = [place for place in plan.places(kernels) if place.name not in done]
    if options.plan == "wide" and not plan.places(kernels):
        sys.exit(
            f"--plan wide has no shapes of {', '.join(kernels)}: it has {', '.join(wide.SHAPES)}"
        )
    order, bad = Plan().places(kernels), False
    table.begin()
    policy = TimingPolicy(fine_rounds=options.rounds)
    timer = Timer(policy, match_device(device_name()))
    for result in rows(places, timer, options.check, options.minutes):
        bad |= "ours" not in result
        table.add(result)
        print(line(result), flush=True)
        # After each row, so that an interrupted run leaves what it has.
        table.write(options.output, order)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
