"""The share of the best speed that the funnel's first stage keeps.

    python -m benchmarks.first_stage [--only KERNEL] [--output FILE]

Needs no GPU. Ranks recorded tasks four ways by each scorer: with every config sketched, by tile
arithmetic alone, and by tile arithmetic and sketches of a quarter, at most 100, and of a tenth. The
share of the best speed among the first k is averaged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.oracle import Oracle, Task, load_oracle
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.arithmetic import Unread, estimated
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.prune.rounds import SKETCHES, sketch_best
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.tuning import initial_state
from asmtune.tuning.options import EFFORTS
from asmtune.tuning.search.base import Predictor
from asmtune.workshop.replay.flow import Judged, recorded_configs
from benchmarks.harness import RESULTS, parser, write
from benchmarks.replay_strategies import effort_plan
from benchmarks.strategy_replay import searched

HERE = Path(__file__).parent
CUTS = (1, 5, 10, 20)
SCORERS = ("roofline", "learned")
FILES = {
    "h200_families.json.gz": (
        "attention_causal conv2d gru_scan matmul_fp8 matmul_persistent matmul_splitk "
        "matmul_tma matmul_w4a16 rope softmax_online"
    ),
    "h200_families2.json.gz": "attention_window matmul_moe matmul_strided rwkv_scan sum_squares",
}
"""Kernels of recorded files, one task of each: its middle one."""


def main() -> None:
    """Measure and write."""
    arguments = parser(__doc__, "first_stage.json")
    arguments.add_argument("--only", help="one kernel's name")
    options = arguments.parse_args()
    write(options.output, kept(options.only))


def kept(only: str | None) -> dict[str, Any]:
    """Rank the recorded tasks and average what each way keeps."""
    scorers = [make_scorer(name) for name in SCORERS]
    funnel = Funnel(load_target("H200"), scorers[0], Settings.from_environment())
    tasks = [_task(funnel, scorers, *one) for one in recorded() if only in (None, one[0].kernel)]
    ways = tasks[0]["kept"]
    means = {
        way: [round(float(np.mean([task["kept"][way][i] for task in tasks])), 4) for i in range(4)]
        for way in ways
    }
    search = {
        name: [
            round(float(np.mean([task["search"][name][i] for task in tasks])), 4) for i in (0, 1, 2)
        ]
        for name in tasks[0]["search"]
    }
    return {"cuts": CUTS, "kept": means, "search": search, "tasks": tasks}


def recorded() -> Iterator[tuple[Task, Path]]:
    """Yield the chosen tasks, and the folder of their kernels."""
    for file, names in FILES.items():
        oracle: Oracle = load_oracle(RESULTS / file)
        for name in names.split():
            own = [task for task in oracle.tasks if task.kernel == name]
            yield own[len(own) // 2], HERE / "corpus" / "families"


def _task(funnel: Funnel, scorers: Sequence[Scorer], task: Task, folder: Path) -> dict[str, Any]:
    module = load_kernel_module(folder / f"{task.kernel}.py")
    problem, configs = recorded_configs(module, task)
    front = replace(funnel, kernels={}).front(problem)
    known: dict[str, Any] = {}
    sketched = front.verdicts(configs, "sketch", known)
    start = time.process_time()
    estimates = estimated(front, configs)
    seconds = time.process_time() - start
    if isinstance(estimates, Unread):
        raise SystemExit(f"{task.name}: {estimates.reason}")
    most = min(SKETCHES, -(-len(configs) // 4))
    times = {config: row.ms for config, row in zip(configs, task.rows, strict=True) if row.ms}
    result: dict[str, list[float]] = {}
    for scorer in scorers:
        ranker = Ranker(scorer, funnel.target, "sketch")
        result[f"{scorer.name}, all sketched"] = _shares(sketched, ranker, times)
        result[f"{scorer.name}, arithmetic"] = _shares(estimates, ranker, times)
        for how, count in (("", most), (" of a tenth", -(-len(configs) // 10))):
            both = sketch_best(front, estimates, ranker, count, known).verdicts
            result[f"{scorer.name}, arithmetic and sketches{how}"] = _shares(both, ranker, times)
    search = _searches(replace(funnel, sketches=known), front, task, sketched, most)
    return {
        "search": search,
        "task": task.name,
        "configs": len(configs),
        "sketched": most,
        "cpu_seconds": round(seconds, 2),
        "features": _agreement(sketched, estimates),
        "kept": result,
    }


def _shares(verdicts: Sequence[Verdict], ranker: Ranker, times: dict[Any, float]) -> list[float]:
    """Return the share of the best speed among the first of a ranking, for each cut."""
    able = [v for v in verdicts if v.kept and v.features is not None and v.config in times]
    candidates = [Candidate(v.config, ranker.target, features=v.features) for v in able]
    scores = ranker.scorer.score(candidates)
    order = sorted(range(len(able)), key=lambda place: -scores[place])
    ranked = [times[able[place].config] for place in order]
    return [round(min(times.values()) / min(ranked[:cut]), 4) for cut in CUTS]


def _searches(
    funnel: Funnel, front: Front, task: Task, sketched: Sequence[Verdict], most: int
) -> dict[str, list[float]]:
    """Return what searches keep, and their mean compiles and timings, by effort and beginning."""
    configs = [verdict.config for verdict in sketched]
    found = {}
    initial_state.MOST_SKETCHES, before = most, initial_state.MOST_SKETCHES  # type: ignore[misc]
    predictor = Predictor(funnel.scorer, funnel.target)
    for name in ("quick", "balanced"):
        effort = EFFORTS[name]
        ranking = initial_state.first_ranking(funnel, front, configs, effort)
        later = ranking.later and ranking.later()
        beginnings = {
            "all sketched": (sketched, None),
            "arithmetic and sketches": (later or ranking.verdicts, None),
            "a sample first": (ranking.verdicts, later and (lambda verdicts=later: verdicts)),
        }
        for how, (initial, rest) in beginnings.items():
            plan = effort_plan(effort)
            judged = Judged(task, sketched, initial)
            done = [
                searched(judged, plan, predictor, seed, rest).marks[-1]
                for seed in range(plan.seeds)
            ]
            found[f"{name}, {how}"] = [
                round(float(np.mean([getattr(mark, what) for mark in done])), 4)
                for what in ("kept", "compiles", "timings")
            ]
    initial_state.MOST_SKETCHES = before  # type: ignore[misc]
    return found


def _agreement(sketched: Sequence[Verdict], estimates: Sequence[Verdict]) -> dict[str, Any]:
    """Return how near the estimated features are to the sketches'."""
    pairs = [
        (s.features, e.features, s.predicted_us, e.predicted_us)
        for s, e in zip(sketched, estimates, strict=True)
        if s.features is not None and e.features is not None
    ]
    exact = {
        name: round(float(np.mean([s[name] == e[name] for s, e, _, _ in pairs])), 3)
        for name in ("shared_bytes", "regs_per_thread", "programs_per_sm", "programs")
    }
    within = {
        name: round(
            float(np.mean([abs(s[name] - e[name]) <= 0.1 * s[name] for s, e, _, _ in pairs])), 3
        )
        for name in ("shared_bytes", "regs_per_thread", "tensor_cycles")
    }
    ranks = [np.argsort(np.argsort([pair[place] for pair in pairs])) for place in (2, 3)]
    rho = float(np.corrcoef(*ranks)[0, 1])
    return {"equal": exact, "within 10%": within, "rank correlation of times": round(rho, 3)}


if __name__ == "__main__":
    main()
