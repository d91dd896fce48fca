"""Measure a store of many keys: a new key's neighbours, a loop of tuning, and `asmtune cache`.

    python -m benchmarks.large_store [--records N] [--postgresql URL] [--output FILE]

Needs no GPU. Records have 8 timings of one sample, as imports have, except those that the look-ups
meet: 100 timings of 60 samples. Results:

    look_ups    seconds of a store's first look-up by stored keys, and the median of 20 of other
                new keys after it, as a search reads their neighbours; again where a key was saved
                before each
    tuning      seconds of each 500 keys, for each of which a search would read the nearest records
                and then save its own
    commands    seconds, CPU seconds and MiB of memory at most of each command, in a process of its
                own
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import interchange
from asmtune.store.database import Store
from benchmarks.harness import RESULTS, write

STORED = (100, 1000, 10_000)
ROUNDS = 20
TUNED, PART = 3000, 500
MADE = Provenance("s" * 64, "p" * 64, "3.6.0", "2.11", "0.1", "580", "2026-01-01T00:00:00+00:00")


# `ru_maxrss` counts the parent's memory too, as of the fork.
_CHILD = """
import re, runpy
try:
    runpy.run_module("asmtune", run_name="__main__")
finally:
    peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
    open("peak", "w").write(peak)
"""


def key(number: int, kernel: str = "m.kernel") -> TuneKey:
    """Make the key of a number: three sizes."""
    sizes = {"M": 1 + number, "N": 1 + number * 7 % 4096, "K": 1 + number * 31 % 8192}
    return TuneKey(kernel, sizes, {"x": "fp16", "y": "fp16"}, "NVIDIA H200")


def record(number: int, timings: int = 8, samples: int = 1) -> TuneRecord:
    """Make a record with a number of timings."""
    configs = [Config({"BLOCK": 16 << i % 5, "GROUP": i}) for i in range(timings)]
    times = tuple(1.0 + i / 997 for i in range(samples))
    measured = tuple(Measurement(config, 1.0, 0.9, 1.1, times) for config in configs)
    return TuneRecord(key(number), configs[number % timings], measured, MADE)


def looked_up(where: str) -> Iterator[dict[str, Any]]:
    """Time look-ups of new keys at each number of stored ones."""
    for count, before in zip(STORED, (0, *STORED), strict=False):
        with Store.open(where) as store:
            store.save_all(record(2 * n, 100, 60) for n in range(before, count))
        with Store.open(where) as store:
            first = _seconds(store, 1)
            others = [_seconds(store, 2 * n + 3) for n in range(ROUNDS)]
            after_saves = []
            for n in range(ROUNDS):
                store.save(record(2 * (STORED[-1] + count + n), 100, 60))
                after_saves.append(_seconds(store, 2 * n + 3))
        yield {
            "stored": count,
            "first_s": first,
            "median_s": statistics.median(others),
            "median_after_a_save_s": statistics.median(after_saves),
        }


def _seconds(store: Store, number: int) -> float:
    start = time.perf_counter()
    if not store.near(key(number)):
        raise SystemExit(f"key {number}: no neighbour")
    return time.perf_counter() - start


def tuned(where: str) -> list[float]:
    """Time a loop of new keys, of which each learns from the nearest and is saved."""
    parts = []
    with Store.open(where) as store:
        for begin in range(0, TUNED, PART):
            start = time.perf_counter()
            for number in range(begin, begin + PART):
                store.near(key(number))
                store.save(record(number))
            parts.append(time.perf_counter() - start)
    return parts


def commands(folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """Time the commands of `asmtune cache` on a store with a number of records."""
    interchange.write(folder / "in.json", map(record, range(count)), samples=True)
    for words in (
        ["import", "in.json"], ["cache", "ls"], ["cache", "ls", "--format", "json"],
        ["cache", "verify"],
        ["export", "out.json"], ["cache", "clear", "--yes"],
    ):  # fmt: skip
        command = [sys.executable, "-c", _CHILD, *words, "--store", "store.sqlite"]
        start = time.perf_counter()
        with (folder / "printed").open("wb") as printed:
            process = subprocess.Popen(command, cwd=folder, stdout=printed)
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            raise SystemExit(f"{' '.join(words)}: exit status {status}")
        cpu_s, mib = used.ru_utime + used.ru_stime, int((folder / "peak").read_text()) / 1024
        yield {"command": " ".join(words), "seconds": seconds, "cpu_s": cpu_s, "most_mib": mib}


def main() -> None:
    """Write the file, and print what is in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--postgresql", help="An empty database, for look-ups and tuning there.")
    parser.add_argument("--output", type=Path, default=RESULTS / "large_store.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"records": arguments.records}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {"postgresql": arguments.postgresql} if arguments.postgresql else {}
        for kind, where in {"sqlite": str(folder / "keys.sqlite"), **servers}.items():
            results[f"look_ups_{kind}"] = list(looked_up(where))
            with Store.open(where) as store:
                store.clear()
            results[f"tuning_{kind}"] = tuned(where)
        results["commands"] = list(commands(folder, arguments.records))
    write(arguments.output, results)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
