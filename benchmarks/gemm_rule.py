"""Measure the share of the best recorded speed that `asmtune.rules.gemm` and the default reach.

    python -m benchmarks.gemm_rule ORACLE

Needs no GPU. ORACLE is a file of recorded timings (`asmtune/workshop/replay/oracle.py`) with tasks
of GEMMs: shapes with M, N and K. The rule's tiles were chosen over `gemm` and `gemm_bias_gelu`, its
times fitted to the aligned sizes of `gemm` alone: no size here is new to it. The default is the
first config of a task.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import match_device
from asmtune.core.size_rules import gemm
from asmtune.workshop.replay.oracle import Task, load_oracle


def shares(task: Task, config: Config) -> tuple[float, float]:
    """Return the shares of the best recorded speed: by a config, and by the task's first."""
    times = {row.config: row.ms for row in task.rows if row.ms is not None}
    best, first = min(times.values()), times[next(iter(times))]
    return best / times[config], best / first


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def main() -> None:
    """Print a line for each size, then the means by kernel."""
    oracle = load_oracle(Path(sys.argv[1]))
    target = match_device(oracle.device)
    assert target is not None, oracle.device
    found: dict[str, list[tuple[float, float]]] = {}
    print("share of the best recorded speed: rule, default config")
    for task in oracle.tasks:
        if not {*"MNK"} <= task.shape.keys():
            continue
        config = gemm(*(task.shape[name] for name in "MNK"), task.dtype, target)
        pair = shares(task, config)
        found.setdefault(task.kernel, []).append(pair)
        print(f"{task.name} {task.dtype}: {pair[0]:.3f} {pair[1]:.3f}  {config}")
    for kernel, pairs in found.items():
        rule, default = ([pair[place] for pair in pairs] for place in (0, 1))
        least = min(rule)
        print(
            f"{kernel}, mean of {len(pairs)}: {mean(rule):.3f} {mean(default):.3f}, "
            f"least of the rule {least:.3f}"
        )


if __name__ == "__main__":
    main()
