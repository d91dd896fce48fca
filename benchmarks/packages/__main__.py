"""Programs of public packages, run with `triton.autotune` alone and under `asmtune run`.

    python -m benchmarks.packages [--programs a,b] [--limit S] [--seconds S] [--keep FILE]
        [--output FILE] [--device cpu --small]

Each program runs three times, each time in a process of its own: alone with empty caches, under
asmtune with an empty store, and again with the store that this left. First calls have the machine
to themselves. Then the plain process, which stays, and the other one are timed in turns (`rounds`),
and the table has the median of the rounds' ratios.

Outputs are "equal" to the plain program's within the tolerances of `tolerances`, or "differ".

The GPU's time is that of calls queued while the GPU sleeps, taken only where the host was done
before the sleep ended. Calls that wait for the GPU cannot be queued: theirs is the time in which
kernels ran, by torch's profiler. It is never above that of calls in a row; `gpu_by` tells which.

`--limit` is for the start and the first calls of one process, `--seconds` for all. `--keep` takes
the other programs' results from a file of an earlier run, each with that run's provenance.
`--device cpu --small` is a dry run, with TRITON_INTERPRET=1. Needs one GPU and the packages; what
fails is reported as such and stops no other.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, provenance, write
from benchmarks.packages.catalogue import PROGRAMS, WAYS, Program
from benchmarks.packages.processes import Place
from benchmarks.packages.rounds import run_ways
from benchmarks.packages.summary import document, judged, summary
from benchmarks.packages.tolerances import MOST_UNITS, UNITS


def measured(program: Program, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program in all ways, and summarise the runs.

    Args:
        program: program to run.
        folder: empty folder for its caches and outputs.
        options: options of the command line, with `end`.
    """
    places = {}
    for way in WAYS:
        caches = folder / way.caches
        outputs = folder / "outputs" / way.name
        places[way] = Place(caches, outputs, options.limit, options.end, options.arguments)
    by_way = run_ways(program, places)
    outputs_by_way = {way.name: place.outputs for way, place in places.items()}
    return {
        "program": program.name,
        "package": f"{program.distribution} {_version(program.distribution)}",
        "provenance": provenance(),
        "operations": judged(by_way, outputs_by_way),
        "ways": by_way,
    }


def results_of_others(path: Path | None, anew: Sequence[str]) -> list[dict[str, Any]]:
    """Read the programs of an earlier file that are not run anew."""
    if path is None:
        return []
    earlier = json.loads(path.read_text())
    return [
        {"provenance": earlier["provenance"], **program}
        for program in earlier["programs"]
        if program["program"] not in anew
    ]


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the programs and write the results, anew after each."""
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=",".join(names))
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of one process")
    parser.add_argument("--seconds", type=float, default=540.0, help="of all together")
    parser.add_argument("--output", type=Path, default=RESULTS / "packages.json")
    parser.add_argument("--keep", type=Path, help="file with the results of other programs")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="sizes of a dry run")
    options = parser.parse_args(arguments)
    small = ("--small",) if options.small else ()
    options.arguments = ("--device", options.device, *small)
    options.end = time.monotonic() + options.seconds
    chosen = options.programs.split(",")
    unknown = set(chosen) - set(names)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results = results_of_others(options.keep, chosen)
    with tempfile.TemporaryDirectory() as name:
        for program in (program for program in PROGRAMS if program.name in chosen):
            results.append(measured(program, Path(name) / program.name, options))
            units = {str(dtype): unit for dtype, unit in UNITS.items()}
            summarised: dict[str, Any] = {"summary": summary(results)}
            summarised["tolerances"] = {"rms_share": units, "max_share_in_units": MOST_UNITS}
            write(options.output, {**summarised, "programs": results})
    print(document(results), summary(results), sep="\n\n")


if __name__ == "__main__":
    main()
