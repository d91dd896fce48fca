"""The share of the best speed that the funnel's first stage keeps.

    python -m benchmarks.first_stage [--only KERNEL] [--output FILE]

Needs no GPU. Ranks recorded tasks three ways by each scorer: with every config sketched, with a
quarter, at most 100, and with a tenth. The share of the best speed among the first k is averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.prune.rounds import SKETCHES, sketch_part
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay.flow import recorded_configs
from asmtune.workshop.replay.oracle import Oracle, Task, load_oracle
from benchmarks.harness import RESULTS, parser, ranked_by, table, write

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
    print(document(write(options.output, kept(options.only))))


def document(content: dict[str, Any]) -> str:
    """Tabulate what each way keeps, by scorer."""
    kept_ = content["kept"].items()
    lines = ([ranked_by(way), *(f"{share:.3f}" for share in shares)] for way, shares in kept_)
    return table(["ranked by", *(f"top {cut}" for cut in content["cuts"])], lines)


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
    return {"cuts": CUTS, "kept": means, "tasks": tasks}


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
    most = min(SKETCHES, -(-len(configs) // 4))
    times = {config: row.ms for config, row in zip(configs, task.rows, strict=True) if row.ms}
    result: dict[str, list[float]] = {}
    for scorer in scorers:
        ranker = Ranker(scorer, funnel.target, "sketch")
        result[f"{scorer.name}, all sketched"] = _shares(sketched, ranker, times)
        for part, count in (("quarter", most), ("tenth", -(-len(configs) // 10))):
            verdicts = sketch_part(front, configs, ranker, count, known).verdicts
            result[f"{scorer.name}, a {part} sketched"] = _shares(verdicts, ranker, times)
    return {"task": task.name, "configs": len(configs), "sketched": most, "kept": result}


def _shares(verdicts: Sequence[Verdict], ranker: Ranker, times: dict[Any, float]) -> list[float]:
    """Return the share of the best speed among the first of a ranking, for each cut."""
    able = [v for v in verdicts if v.kept and v.features is not None and v.config in times]
    candidates = [Candidate(v.config, ranker.target, features=v.features) for v in able]
    scores = ranker.scorer.score(candidates)
    order = sorted(range(len(able)), key=lambda place: -scores[place])
    ranked = [times[able[place].config] for place in order]
    return [round(min(times.values()) / min(ranked[:cut]), 4) for cut in CUTS]


if __name__ == "__main__":
    main()
