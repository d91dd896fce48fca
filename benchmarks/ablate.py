"""Worth of the assembly: the learned scorer with groups of its features taken away.

    python -m benchmarks.ablate ORACLE --kernels DIR [--parts N] [--output FILE]

Needs no GPU. Each kernel of ORACLE is ranked by a model that has seen the others alone; with
--parts the kernels are drawn into so many, each of which is unseen together. The shipped rows
cannot take part, since they hold columns and no features. A group is taken away from the profile
that all features are weighed from, so that whatever derives from it, the roofline's time included,
is weighed anew without it. Nothing else changes: the same rows, the same fit. The first run
compiles every recorded config, as benchmarks.replay_oracle does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import occupancy
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.features.profile import Profile, Segment
from asmtune.predict.features.reader import launch_features
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Judge, Outcomes, ProblemAnalysis
from asmtune.predict.score.learned import FEWEST
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.score.vectors import Scale, base_columns
from asmtune.report.progress import ProgressBar
from asmtune.workshop.replay.flow import judged_moments
from asmtune.workshop.replay.oracle import Oracle, Task, load_oracle
from asmtune.workshop.replay.results import ScorerResult
from asmtune.workshop.replay.training_rows import TaskRows
from benchmarks.harness import SHARES, laid_out, parser, target_of, write
from benchmarks.unseen import rank_unseen, unseen_result


@dataclass(frozen=True)
class Launch:
    """A compiled config in one launch.

    Attributes:
        config: the config.
        compiled: profile of its assembly.
        sketched: profile of its TTGIR.
        work: work of the launch.
    """

    config: Config
    compiled: Profile
    sketched: Profile
    work: Work


@dataclass(frozen=True)
class TimedTask:
    """The timed configs of a task that compile.

    Attributes:
        task: the task.
        milliseconds: time of each launch.
        launches: the configs, in the file's order.
    """

    task: Task
    milliseconds: Sequence[float]
    launches: Sequence[Launch]


@dataclass(frozen=True)
class Reader(Funnel):
    """A funnel that remembers which problem it judged last.

    Attributes:
        fronts: the last problem's front end.
    """

    fronts: list[ProblemAnalysis] = field(default_factory=list)

    def front(self, problem: Problem) -> ProblemAnalysis:
        """Give the front end of a problem; kept until the next problem."""
        self.fronts[:] = [super().front(problem)]
        return self.fronts[0]


def read(oracle: Oracle, kernels: Path, reader: Reader) -> Iterator[TimedTask]:
    """Read the tasks of a file that the learned scorer ranks, with their launches.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    for judged in judged_moments(oracle, kernels, reader, early=False):
        task, compiled = judged.task, judged.compiled
        front = reader.fronts[0]
        sketched = front.verdicts([v.config for v in compiled], "sketch", reader.sketches)
        lowering = Lowering(front.problem, reader.target, reader.settings.compile_timeout_s)
        judge = Judge(front.problem, reader.target, reader.kernels)
        milliseconds, launches = [], []
        for row, *moments in zip(task.rows, compiled, sketched, strict=True):
            config = moments[0].config
            built = _profile(moments[0], reader.known)
            early = _profile(moments[1], reader.sketches)
            request = lowering.request(config)
            if row.ms is None or built is None or early is None or isinstance(request, Failure):
                continue
            milliseconds.append(row.ms)
            launches.append(Launch(config, built, early, judge.work(config, request.ttir)))
        if len(launches) >= FEWEST:
            yield TimedTask(task, milliseconds, launches)


def _profile(verdict: Verdict, known: Outcomes) -> Profile | None:
    """Give the profile from which the features of a verdict were computed."""
    outcome = known.get(verdict.artifact or "")
    return outcome.reading if isinstance(outcome, CompiledConfig) else None


INSTRUCTIONS: Final = frozenset({"text", "instructions", "work"})
RESOURCES: Final = frozenset({"resources", "occupancy"})
"""Headings of the catalog of features."""

NOTHING: Final = Segment(None, True, 0, {}, {}, {}, 0, 0, frozenset())
"""A kernel without an instruction."""

SIZES: Final = 8
"""Constexprs that are columns of their own, the largest first."""


Columns = Callable[[Sequence[Launch], Target], NDArray[np.float32]]


def _weighed(
    profile: Callable[[Launch, Target], Profile],
    work: Callable[[Launch], Work] = lambda launch: launch.work,
) -> Columns:
    """Compute the learned scorer's columns from what is left of each launch's profile and work."""
    return lambda launches, target: base_columns(
        [launch_features(profile(launch, target), work(launch), target) for launch in launches],
        target,
    )


def _at_zero(profile: Profile, groups: frozenset[str]) -> Profile:
    """Set the features of some headings to zero."""
    taken = {name: 0.0 for name in profile.static if FEATURES[name].group in groups}
    return replace(profile, static={**profile.static, **taken})


def without_instructions(profile: Profile) -> Profile:
    """Keep config, registers, spills, shared memory and occupancy; drop the instructions."""
    # Loops go with the branches they are made of, and trips with the loops.
    return replace(_at_zero(profile, INSTRUCTIONS), segments=(NOTHING,))


def without_resources(profile: Profile, target: Target) -> Profile:
    """Keep config and instructions; an SM then holds what its warp and block slots allow."""
    # One program an SM, which is mostly wrong, would mislead the roofline's share, and so
    # take away more than the group: top 1 kept less with it than with the slots (measured).
    bare = _at_zero(profile, RESOURCES)
    slots = occupancy(target, profile.num_warps, 1, 0)
    assumed = {"programs_per_sm": float(slots.programs_per_sm), "occupancy": slots.fraction}
    return replace(bare, static={**bare.static, **assumed})


def without_layouts(profile: Profile) -> Profile:
    """Take a warp for neighbours in memory, and shared memory for free of conflicts."""
    return replace(profile, requests={}, bank_ways={})


def without_bounds(work: Work) -> Work:
    """Count the elements that masks leave out."""
    return replace(work, accesses=tuple(replace(one, share=1.0) for one in work.accesses))


def tile_columns(launches: Sequence[Launch], target: Target) -> NDArray[np.float32]:  # noqa: ARG001
    """Give a row a launch: its config's numbers, whatever their names, and the programs."""
    # The scorer takes the first column for the roofline's time: here nothing is known of it.
    rows = [(0.0, *_sizes(launch.config), math.log(launch.work.programs)) for launch in launches]
    return np.array(rows, dtype=np.float32)


def _sizes(config: Config) -> tuple[float, ...]:
    values = [v for v in config.kwargs.values() if type(v) in (int, float)]  # a flag is no size
    logs = sorted((math.log1p(v) for v in values if v > 0), reverse=True)
    own = (*logs, *[0.0] * SIZES)[:SIZES]
    options = (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg or 0)
    return (*own, sum(logs), *map(float, options))


ABLATIONS: Final[Mapping[str, Columns]] = {
    "all features": _weighed(lambda launch, _: launch.compiled),
    "without instruction counts": _weighed(lambda launch, _: without_instructions(launch.compiled)),
    "without registers, spills and occupancy": _weighed(
        lambda launch, target: without_resources(launch.compiled, target)
    ),
    "without layouts of warps and banks": _weighed(
        lambda launch, _: without_layouts(launch.compiled)
    ),
    "without bounds of masks": _weighed(
        lambda launch, _: launch.compiled, lambda launch: without_bounds(launch.work)
    ),
    "tile sizes only": tile_columns,
    "before compiling": _weighed(lambda launch, _: launch.sketched),
}
"""The data left to learn from, by name of the ablation."""


def ablated(tasks: Iterable[TimedTask], columns: Columns, target: Target) -> list[TaskRows]:
    """Make the tasks as the learned scorer sees them through some columns."""
    rows = []
    for timed in tasks:
        times = np.asarray(timed.milliseconds, dtype=np.float64)
        base = columns(timed.launches, target)
        slowdown = np.log(times / times.min()).astype(np.float32)
        about = (timed.task.kernel, timed.task.shape, timed.task.dtype)
        rows.append(TaskRows(*about, base, Scale.of(base), slowdown))
    return rows


def unseen(
    name: str, tasks: Sequence[TaskRows], jobs: int, parts: int | None = None
) -> ScorerResult:
    """Score each kernel by a model fitted on all others, or on those of the other parts."""
    ranked = rank_unseen(tasks, {"assembly": tasks}, jobs, parts)["assembly"]
    return replace(unseen_result(ranked), scorer=name)


def _numbers(result: ScorerResult, kernel: str | None = None) -> dict[str, float]:
    return {cut: round(share, 4) for cut, share in result.summary(kernel).items()}


def report(
    tasks: Sequence[TimedTask], target: Target, jobs: int, parts: int | None = None
) -> dict[str, Any]:
    """Report the share kept by each ablation, over all kernels and by kernel."""
    scorers = {}
    for name, columns in ABLATIONS.items():
        result = unseen(name, ablated(tasks, columns, target), jobs, parts)
        scorers[name] = {
            "all": _numbers(result),
            "kernels": {k: _numbers(result, k) for k in result.kernels},
        }
    return {
        "scorers": scorers,
        "tasks": len(tasks),
        "rows": sum(len(task.milliseconds) for task in tasks),
        "kernels_to_learn_from": len({timed.task.kernel for timed in tasks}),
    }


def document(content: Mapping[str, Any]) -> str:
    """Tabulate the share of the best speed that each ablation keeps."""
    scorers = content["scorers"].items()
    rows = ({"features": scorer, **found["all"]} for scorer, found in scorers)
    return laid_out({"features": "{features}", **SHARES}, rows)


def main() -> None:
    """Run the ablations and write the result."""
    arguments = parser(__doc__, "ablation.json")
    arguments.add_argument("oracle", type=Path, help="recorded timings")
    arguments.add_argument("--kernels", type=Path, required=True)
    arguments.add_argument("--parts", type=int, help="kernels unseen together; default one alone")
    options = arguments.parse_args()
    start = time.perf_counter()
    oracle = load_oracle(options.oracle)
    target, settings = target_of(oracle.device), Settings.from_environment()
    with ProgressBar() as progress:
        reader = Reader(target, make_scorer("chance"), settings, progress=progress)
        tasks = list(read(oracle, options.kernels, reader))
    result = report(tasks, target, settings.jobs, options.parts)
    about = {"files": [options.oracle.name], "measured_on": oracle.device, "target": target.name}
    about |= {"seconds": round(time.perf_counter() - start, 1)}
    print(document(write(options.output, {**result, **about})))


if __name__ == "__main__":
    main()
