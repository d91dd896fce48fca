"""Programs of public packages, run with `triton.autotune` alone and under `asmtune run`.

    python -m benchmarks.packages [--programs a,b] [--again] [--limit S] [--seconds S] [--keep FILE]

Each program runs three times, each time in a process of its own: alone with empty caches, under
asmtune with an empty store, and again with the store that this left; with `--again` also alone
once more, with the caches that the first run left. `--limit` is for one process, `--seconds` for
all. The model of `learned` is fitted before, once, as on a machine where asmtune ran before; its
seconds are told apart. `--keep` takes the other programs' results from a file of an earlier run,
each with that run's provenance. Needs one GPU and the packages; what fails is told as such and
stops no other.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.packages.catalogue import AGAIN, PROGRAMS, WAYS, Program
from benchmarks.packages.processes import Place, run_program
from benchmarks.packages.summary import judged, summary, table
from benchmarks.packages.tolerances import MOST_UNITS, UNITS
from benchmarks.provenance import RESULTS, provenance, write
from benchmarks.side_by_side.__main__ import fitted


def measured(program: Program, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program in all ways, and summarise the runs.

    Args:
        program: to run.
        folder: empty; for its caches and outputs.
        options: of the command line, with `models` and `end`.
    """
    told, outputs = {}, {}
    for way in (*WAYS, AGAIN) if options.again else WAYS:
        caches = folder / way.caches
        models = caches / "asmtune_cache_dir" / "models"
        if way.command and not models.exists():
            shutil.copytree(options.models, models)
        outputs[way.name] = folder / "outputs" / way.name
        place = Place(caches, outputs[way.name], options.limit, options.end)
        told[way.name] = run_program(program, way, place)
    return {
        "program": program.name,
        "package": f"{program.distribution} {_version(program.distribution)}",
        "provenance": provenance(),
        "operations": judged(told, outputs),
        "ways": told,
    }


def kept(path: Path | None, asked: Sequence[str]) -> list[dict[str, Any]]:
    """Read the programs of an earlier file that are not run anew."""
    if path is None:
        return []
    found = json.loads(path.read_text())
    return [
        {"provenance": found["provenance"], **program}
        for program in found["programs"]
        if program["program"] not in asked
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
    parser.add_argument("--again", action="store_true", help="the plain program twice")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of one process")
    parser.add_argument("--seconds", type=float, default=540.0, help="of all together")
    parser.add_argument("--output", type=Path, default=RESULTS / "packages.json")
    parser.add_argument("--keep", type=Path, help="file with the results of other programs")
    options = parser.parse_args(arguments)
    options.end = time.monotonic() + options.seconds
    asked = options.programs.split(",")
    unknown = set(asked) - set(names)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results = kept(options.keep, asked)
    with tempfile.TemporaryDirectory() as name:
        fit_s = fitted(Path(name) / "fit")
        options.models = Path(name) / "fit" / "models"
        for program in (program for program in PROGRAMS if program.name in asked):
            results.append(measured(program, Path(name) / program.name, options))
            units = {str(dtype): unit for dtype, unit in UNITS.items()}
            told = {"fit_of_learned_s": round(fit_s, 2), "summary": summary(results)}
            told["tolerances"] = {"rms_share": units, "max_share_in_units": MOST_UNITS}
            write(options.output, {**told, "programs": results})
    print(table(results))


if __name__ == "__main__":
    main()
