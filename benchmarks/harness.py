"""The parts that benchmarks share: arguments, fresh caches, rounds, provenance, results, pages.

A benchmark is a plan (what is measured), rows (one measurement each), a summary of the rows, and a
document: the table that it prints, and that a page shows of the committed file. It writes
`{"provenance": ..., ...}` as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from asmtune.base.fingerprint import versions

if TYPE_CHECKING:
    from asmtune.base.settings import Settings
    from asmtune.compile.load import LoadedLaunch
    from asmtune.core.config import Config
    from asmtune.core.hardware.model import Target
    from asmtune.core.problem import Problem
    from asmtune.core.records.artifacts import Failure
    from asmtune.core.records.tuned import Measurement
    from asmtune.measure.timing.policy import TimingPolicy

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"

SHARES = {
    "top 1": "{top1:.3f}",
    "top 5": "{top5:.3f}",
    "top 10": "{top10:.3f}",
    "top 10%": "{top10pct:.3f}",
    "worst task, top 10": "{worst_top10:.3f}",
}
"""Columns of the share of the best speed that a ranking keeps, for `laid_out`."""

Item = TypeVar("Item")
Ways = Mapping[str, Callable[[], Any]]


def parser(description: str | None, output: str | None) -> argparse.ArgumentParser:
    """Make a parser of a benchmark's arguments with `--output`, by default a file of results."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = None if output is None else RESULTS / output
    made.add_argument("--output", type=Path, default=default, help="file of the results")
    return made


def caches(folder: Path) -> dict[str, str]:
    """Name the environment's variables by which asmtune and Triton keep caches in a folder."""
    return {
        "ASMTUNE_CACHE_DIR": str(folder / "asmtune"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


@contextmanager
def empty_caches() -> Iterator[Path]:
    """Give this process and its children empty caches in the body; yield their folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with mock.patch.dict("os.environ", caches(folder)):
            yield folder


def child(module: str, *words: str, **environment: str) -> Any:
    """Run a module in a process of its own; return the JSON in the last line that it prints.

    Raises:
        SystemExit: it failed; shows what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{module} {' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def target_of(device: str) -> Target:
    """Return the target that a recording's device has, or whose name it is."""
    from asmtune.core.hardware.shipped import load_target, match_device

    return match_device(device) or load_target(device)


def until(items: Sequence[Item], seconds: float | None, how_to_go_on: str) -> Iterator[Item]:
    """Yield items until the time is over; then print how many were done, and how to go on."""
    end = float("inf") if seconds is None else time.monotonic() + seconds
    for done, item in enumerate(items):
        if time.monotonic() >= end:
            print(f"stopped after {done} of {len(items)}: {how_to_go_on}", flush=True)
            return
        yield item


def loaded(
    problem: Problem, config: Config, target: Target, settings: Settings
) -> LoadedLaunch | Failure:
    """Compile a config, and load the very binary that tuning would time."""
    from asmtune.compile.load import load
    from asmtune.compile.lower import Lowering
    from asmtune.compile.pool import compile_one
    from asmtune.core.records.artifacts import Failure

    lowering = Lowering(problem, target, settings.compile_timeout_s)
    request = lowering.request(config)
    artifact = request if isinstance(request, Failure) else compile_one(request, settings)
    return artifact if isinstance(artifact, Failure) else load(lowering, config, artifact)


def raced(launches: Ways, policy: TimingPolicy) -> dict[str, Measurement | Failure]:
    """Time launches on the GPU in interleaved rounds; return times or failures by name."""
    from asmtune.core.config import Config
    from asmtune.measure.timing.clock import GpuClock, Subject
    from asmtune.measure.timing.race import Race

    def subject(run: Callable[[], Any]) -> Subject:
        def launch() -> None:
            run()

        return Subject(Config({}), launch, lambda: None)

    outcomes = Race(GpuClock(policy), policy).final([subject(run) for run in launches.values()])
    return {name: found for name, (_, found) in zip(launches, outcomes, strict=True)}


def host_times(ways: Ways, rounds: int, calls: int, before: int) -> dict[str, dict[str, float]]:
    """Time calls on the host in interleaved rounds; return median, 20th and 80th percentile in us.

    A round begins when the GPU is idle.

    Args:
        ways: the calls, by name.
        rounds: samples of each.
        calls: calls in a sample, fewer than the GPU's queue holds, so that the host never waits.
        before: calls of each way before the first round: kernels are compiled, calls prepared.
    """
    for way in ways.values():
        for _ in range(before):
            way()
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            _wait()
            start = time.perf_counter()
            for _ in range(calls):
                way()
            samples[name].append((time.perf_counter() - start) / calls * 1e6)
    _wait()
    return {name: _percentiles(taken) for name, taken in samples.items()}


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _percentiles(samples: Sequence[float]) -> dict[str, float]:
    fifths = statistics.quantiles(samples, n=5)
    figures = {"median_us": statistics.median(samples), "p20_us": fifths[0], "p80_us": fifths[3]}
    return {name: round(value, 3) for name, value in figures.items()}


def provenance() -> dict[str, Any]:
    """Give versions, machine, date and command of this process."""
    return {
        # Files by their names: where they lay on the machine says nothing.
        "command": " ".join(["python -m", _module(), *(Path(a).name for a in sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        **versions(),
        **_gpu(),
    }


def write(path: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Write results with their provenance as JSON, atomically; return what was written."""
    content = {"provenance": provenance(), **results}
    write_json(path, content)
    return content


def write_json(path: Path, content: Any) -> None:
    """Write JSON, atomically: a run that is cut leaves the last whole file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def laid_out(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a table in Markdown.

    Args:
        columns: by head, the template of the cells.
        rows: the names that the templates have, one mapping a line.
    """
    cells = [[template.format_map(row) for template in columns.values()] for row in rows]
    return table(list(columns), cells)


def ranked_by(scorer: str) -> str:
    """Set a scorer's own name as code, in a name such as `learned, before compiling`."""
    own, comma, moment = scorer.partition(",")
    return f"`{own}`{comma}{moment}"


def device_of(results: Mapping[str, Any]) -> str:
    """Name the device that results were measured on in a word, such as "H200"."""
    origin = results.get("provenance", results.get("meta", {}))
    return str(origin["device"]).removeprefix("NVIDIA ").partition(" ")[0]


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else Path(sys.argv[0]).stem


def _commit() -> str:
    if given := os.environ.get("BENCHMARK_COMMIT"):  # of a copy whose git history is another's
        return given
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _gpu() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {"device": "none"}
    from asmtune.measure.timing.nvml import device_name, driver_version

    return {"device": device_name(), "driver": driver_version()}
