"""Share of a cold prune report's time that passes outside the compiler.

    python -m benchmarks.prune_overhead [--output FILE]

Needs no GPU, and a machine that does nothing else. A fresh process with empty
caches judges the fp16 GEMM's whole space on 4096^3 for an H200. Inside the
compiler are the stages that the artifacts record, and Triton's binder and
front end in the calling process. All else is outside: the start of processes,
features, scores, files, pipes, and a worker that waits:

    outside = 1 - inside / (wall-clock time * workers)

The stages are in wall-clock time, which a busy machine lengthens, so that
the CPU time of the processes is listed too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import caches, child, parser, write

SHAPE = {"M": 4096, "N": 4096, "K": 4096}
SCORER = "roofline"


class Stopwatch:
    """Stopwatch of the CPU seconds of functions, in the threads that called them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def watch(self, owner: type, name: str) -> None:
        """Count a method's time from now on."""
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[name] += time.thread_time() - start

        setattr(owner, name, timed)


def judged() -> dict[str, Any]:
    """Make a report in this process, and say where its time went."""
    from asmtune.base.settings import Settings
    from asmtune.core.hardware.shipped import load_target
    from asmtune.kernels import tiled_matmul as matmul
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.score.scorers import make_scorer
    from asmtune.report.documents import report_json
    from asmtune.triton_api.compiler import Toolchain

    front_end, settings = Stopwatch(), Settings.from_environment()
    front_end.watch(Toolchain, "specialise")
    front_end.watch(Toolchain, "front_end")
    funnel = Funnel(load_target("H200"), make_scorer(SCORER), settings)
    report = funnel.prune(matmul.problem(SHAPE, "fp16", "meta"), matmul.space())
    report_json([report])
    end, cpu = time.monotonic(), cpu_seconds()
    stages: Counter[str] = Counter()
    artifacts = 0
    for seconds in stage_seconds(settings.artifacts_dir):
        stages.update(seconds)
        artifacts += 1
    return {
        "end": end,
        "candidates": len(report.verdicts),
        "artifacts": artifacts,
        "workers": settings.jobs,
        "funnel_s": dict(report.seconds),
        "stages_s": dict(stages),
        "front_end_s": dict(front_end.seconds),
        "cpu_s": cpu,
    }


def stage_seconds(folder: Path) -> Iterator[dict[str, float]]:
    """Add up the stages of each artifact; those that share another's PTX count only their own."""
    from asmtune.compile.artifacts import ArtifactCache
    from asmtune.core.records.artifacts import Artifact

    cache = ArtifactCache(folder, 1 << 40)
    for path in folder.glob("*/*.json.gz"):
        artifact = cache.get(path.name.removesuffix(".json.gz"))
        if isinstance(artifact, Artifact):
            yield dict(artifact.seconds)


def cpu_seconds() -> dict[str, float]:
    """Read the CPU time so far: of this process, its workers, and the compilers that they run."""
    own = time.process_time()
    living = processes()
    workers = {number for number, (parent, _) in living.items() if parent == os.getpid()}
    return {
        "this_process": own,
        "workers": sum(living[number][1] for number in workers),
        "compilers": sum(used for parent, used in living.values() if parent in workers),
    }


def processes() -> dict[int, tuple[int, float]]:
    """List each process's parent and CPU seconds, those of its ended children included."""
    tick, by_pid = os.sysconf("SC_CLK_TCK"), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            used = sum(map(int, fields[11:15])) / tick
            by_pid[int(path.parent.name)] = (int(fields[1]), used)
    return by_pid


def measured() -> dict[str, Any]:
    """Run one report in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        report = child("benchmarks.prune_overhead", "--judge", **caches(Path(folder)))
    wall = report.pop("end") - start
    inside = sum(report["stages_s"].values()) + sum(report["front_end_s"].values())
    cpu = report["cpu_s"]
    compiling = cpu["compilers"] + sum(report["front_end_s"].values())
    result = {
        **report,
        "wall_s": wall,
        "inside_s": inside,
        "outside": 1 - inside / (wall * report["workers"]),
        "cpu_outside_the_compilers": 1 - compiling / sum(cpu.values()),
    }
    return {"scorer": SCORER, **_rounded(result)}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Measure a report and write the result."""
    arguments = parser(__doc__, "prune_overhead.json")
    arguments.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.judge:
        print(json.dumps(judged()))
        return
    result = {
        "target": "H200",
        "shape": SHAPE,
        "dtype": "fp16",
        "reports": [measured()],
    }
    write(options.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
