"""Seconds of a first tuning that pass without the GPU.

    python -m benchmarks.tune_offline [--output FILE]

Needs no GPU: a stand-in clock takes no time, and a launch does nothing. `cpu_here_s` holds the CPU
seconds of the process that tunes, not of its workers, by moment and kind of work: on a machine with
many cores they are the critical path. `learned` is fitted before, as after an installation's first
tuning.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.provenance import RESULTS, write

SHAPES: Final = ((256, 256, 256), (512, 128, 512))
ROWS: Final = {"rows": 640, "cols": 1024}
LISTS: Final[dict[str, dict[str, int]]] = {
    **dict.fromkeys(
        ("softmax", "layernorm", "rmsnorm", "cross_entropy", "layernorm_backward"), ROWS
    ),
    "attention": {"B": 1, "H": 2, "KV": 2, "M": 256, "N": 256, "D": 64, "causal": 1},
    "attention_backward_kv": {"B": 1, "H": 2, "KV": 2, "M": 256, "N": 256, "D": 64, "causal": 1},
}
"""Kernels that compile in 0.1 to 0.4 s, and two that take longer, as most public packages' do."""

CONFIGS: Final = 8
DEVICE: Final = "NVIDIA H200"
BEST_SIZE: Final = 128
BEST_WARPS: Final = 8

SAMPLE_S: Final = 0.004
LEAST_S: Final = 0.01

WORK: Final = {
    "<frozen importlib": "imports",
    "/triton/": "front end",
    "asmtune/ir/ttir/": "reading TTIR",
    "asmtune/predict/features/tile/": "tile arithmetic",
    "asmtune/predict/features/": "features",
    "asmtune/predict/score/": "scoring",
    "asmtune/tuning/search/": "search",
    "/joblib/": "workers",
    "/multiprocessing/": "workers",
    "asmtune/compile/workers": "workers",
    "asmtune/compile/artifacts": "artifacts",
    "asmtune/compile/stored_ir": "artifacts",
    "asmtune/compile/": "requests",
    "asmtune/store/": "store",
    "/sqlalchemy/": "store",
    "asmtune/measure/": "timing and checks",
    "asmtune/predict/prune/": "verdicts",
}
"""Stages by a part of a file's name: the innermost function of a known file says a thread's."""


@dataclass
class CpuSampler:
    """Samples what this process spends CPU time on: by moment, then by kind of work.

    The moment is "before" until the first compile is handed to workers, "until timing" until
    something is timed, then "after".
    """

    moment: str = "before"
    seconds: dict[str, Counter[str]] = field(default_factory=dict)
    _seen: dict[int, float] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[CpuSampler]:
        """Sample until the block ends."""
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,), daemon=True)
        self._seen = _cpu_seconds()
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def rows(self) -> dict[str, dict[str, float]]:
        """Return the seconds by moment and kind of work, the most first."""
        return {
            moment: {
                "all": round(work.total(), 2),
                **{name: round(s, 2) for name, s in work.most_common() if s >= LEAST_S},
            }
            for moment, work in self.seconds.items()
        }

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            clocks, frames = _cpu_seconds(), sys._current_frames()
            for number, now in clocks.items():
                spent = now - self._seen.get(number, 0.0)
                if number in frames and number != threading.get_ident() and spent > 0:
                    self.seconds.setdefault(self.moment, Counter())[_work(frames[number])] += spent
            self._seen |= clocks


def _cpu_seconds() -> dict[int, float]:
    """Return the CPU seconds of this process's threads, by their numbers."""
    clocks = {}
    for thread in threading.enumerate():
        with suppress(OSError):  # it has just ended
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
            clocks[thread.ident or 0] = int(text.split()[0]) / 1e9
    return clocks


def _work(frame: Any) -> str:
    while frame is not None:
        file = frame.f_code.co_filename
        for part, name in WORK.items():
            if part in file:
                return name
        frame = frame.f_back
    return "other"


@dataclass(frozen=True)
class StandIn:
    """A machine whose launches do nothing, and whose clock tells a time for each config.

    It tells the sampler when the first one is timed.
    """

    sampler: CpuSampler
    name: str = DEVICE

    def clock(self, policy: Any) -> StandIn:  # noqa: ARG002 - the protocol's
        """Return itself."""
        return self

    def launch(self, binary: Any, values: Any, pre_hook: Any) -> Any:  # noqa: ARG002
        """Return a launch that does nothing."""
        from asmtune.compile.load import LoadedLaunch

        return LoadedLaunch(lambda: None, lambda: None)

    def synchronize(self) -> None:
        """Do nothing."""

    def warm_up(self, subject: Any) -> None:
        """Do nothing."""

    def round(self, subjects: Sequence[Any]) -> list[float]:
        """Return 10 us for the best, and a tenth more for each step of an axis away from it."""
        self.sampler.moment = "after"
        return [10.0 * 1.1 ** _steps(subject.config) for subject in subjects]


def _steps(config: Any) -> int:
    sizes = [value for value in config.kwargs.values() if isinstance(value, int)]
    tiles = sum(abs(size.bit_length() - BEST_SIZE.bit_length()) for size in sizes)
    return tiles + abs(config.num_warps.bit_length() - BEST_WARPS.bit_length())


@dataclass
class Opener:
    """Opens benches over the stand-in, for one sampler after another."""

    sampler: CpuSampler

    def __call__(self, setup: Any) -> Any:
        """Return the bench."""
        from asmtune.measure.bench.dedup import DedupBench
        from asmtune.measure.bench.local import LocalBench

        return DedupBench(setup.lowering.problem, LocalBench(setup, StandIn(self.sampler)))


def tuner(folder: Path, sampler: CpuSampler) -> Any:
    """Make a tuner over the stand-in, with its caches in a folder, that tells a sampler moments."""
    from asmtune.base.settings import Settings
    from asmtune.tuning.background_compiler import BackgroundCompiler
    from asmtune.tuning.options import EFFORTS, Choices, TuneOptions
    from asmtune.tuning.tuner import Tuner

    effort = replace(EFFORTS["balanced"], caps=0)
    options = TuneOptions.of(Choices(effort=effort, check=False, force=True))
    settings = replace(Settings.from_environment(), cache_dir=folder)
    made = Tuner.open(DEVICE, options, settings)
    made.opener = opener = Opener(sampler)
    start = BackgroundCompiler.start

    def noted(compiler: BackgroundCompiler, configs: Sequence[Any]) -> None:
        if opener.sampler.moment == "before":
            opener.sampler.moment = "until timing"
        start(compiler, configs)

    BackgroundCompiler.start = noted  # type: ignore[method-assign]
    return made


def fitted(folder: Path) -> None:
    """Fit the model that ranks before compiling, as the first tuning of an installation does."""
    from asmtune.base.settings import Settings
    from asmtune.predict.score.learned import Learned

    Learned(replace(Settings.from_environment(), cache_dir=folder)).effective_name  # noqa: B018


def short_lists(folder: Path) -> list[dict[str, Any]]:
    """Tune a list of each kernel, one after the other, and compare with its slowest compile."""
    import triton  # noqa: F401 - a program has it

    rows: list[dict[str, Any]] = []
    own: Any = None
    seen: set[str] = set()
    for name, shape in LISTS.items():
        module = import_module(f"asmtune.kernels.{name}")
        problem = module.problem(shape, "fp16", "cpu")
        configs = list(module.space().configs(**problem.shape))
        listed = random.Random(1).sample(configs, min(CONFIGS, len(configs)))
        own, row = _tuned(folder, own, problem, listed)
        known = own.funnel.known.values()
        digests = {o.digest for o in known if hasattr(o, "digest")} - seen
        seen |= digests
        rows.append({"kernel": name, **row, **_floor(own.funnel.settings, digests, row["seconds"])})
    return rows


def _floor(settings: Any, digests: set[str], seconds: float) -> dict[str, float]:
    """Return what compiling alone takes at least, and how many times that a tuning took."""
    from asmtune.compile.artifacts import ArtifactCache
    from asmtune.core.records.artifacts import Artifact

    cache = ArtifactCache.of(settings)
    made = [one for digest in digests if isinstance(one := cache.get(digest), Artifact)]
    compiles = [sum(one.seconds.values()) for one in made]
    floor = max(*compiles, sum(compiles) / settings.jobs)
    return {
        "slowest_compile_s": round(max(compiles), 2),
        "floor_s": round(floor, 2),
        "over_floor": round(seconds / floor, 2),
    }


def gemm(folder: Path) -> list[dict[str, Any]]:
    """Tune the GEMM's space, shape by shape."""
    from asmtune.kernels import tiled_matmul as matmul

    rows: list[dict[str, Any]] = []
    own: Any = None
    for sizes in SHAPES:
        problem = matmul.problem(dict(zip("MNK", sizes, strict=True)), "fp16", "cpu")
        own, row = _tuned(folder, own, problem, matmul.space())
        rows.append({"shape": sizes, **row, "sketches": len(own.funnel.sketches)})
    return rows


def _tuned(folder: Path, own: Any, problem: Any, space: Any) -> tuple[Any, dict[str, Any]]:
    """Tune a problem, by a new tuner unless one is given; return the tuner and a row of costs."""
    sampler = CpuSampler()
    start = time.perf_counter()
    with sampler.running():
        own = own or tuner(folder, sampler)
        own.opener.sampler = sampler
        from asmtune.core.space.space import Space
        from asmtune.tuning.request import key_of

        request = own.request(problem, key_of(problem, DEVICE), Space.of(space))
        result = own.resolve(request)
    return own, {
        "configs": len(list(request.configs())),
        "compiled": result.compiled,
        "timed": result.timed,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_here_s": sampler.rows(),
    }


PARTS: Final = {"fit": fitted, "short": short_lists, "gemm": gemm}


def offline() -> dict[str, Any]:
    """Run each part in a process of its own, the GEMM in a second one as well."""
    with tempfile.TemporaryDirectory() as folder:
        _in_a_process("fit", folder)
        run = {
            name: _in_a_process(part, folder)
            for name, part in {
                "short_lists": "short",
                "gemm": "gemm",
                "gemm_in_a_second_process": "gemm",
            }.items()
        }
    later = [row["over_floor"] for row in run["short_lists"][1:]]
    rows = {
        "short_list_first": run["short_lists"][:1],
        "short_list_later": run["short_lists"][1:],
        "gemm_first": run["gemm"][:1],
        "gemm_later": run["gemm"][1:],
        "gemm_first_of_a_second_process": run["gemm_in_a_second_process"][:1],
    }
    ratios = {
        "short_list_over_floor_from_the_second_kernel_on": round(float(np.mean(later)), 2),
        **{
            f"cpu_here_until_{event}_s": {name: _spent(of, moments) for name, of in rows.items()}
            for event, moments in EVENTS.items()
        },
    }
    return {"ratios": ratios, **run}


EVENTS: Final = {"compiling": ("before",), "timing": ("before", "until timing")}
"""The moments before the first compile and before the first timing."""


def _spent(rows: Sequence[dict[str, Any]], moments: Sequence[str]) -> float:
    """Return the mean CPU seconds of this process in some moments."""
    spent = [sum(row["cpu_here_s"].get(m, {"all": 0.0})["all"] for m in moments) for row in rows]
    return round(float(np.mean(spent)), 2)


def _in_a_process(part: str, folder: str) -> Any:
    code = (
        "import json, sys, pathlib; from benchmarks.tune_offline import PARTS; "
        "print(json.dumps(PARTS[sys.argv[1]](pathlib.Path(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", code, part, folder]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=RESULTS / "tune_offline.json")
    write(parser.parse_args().output, offline())


if __name__ == "__main__":
    main()
