"""Spaces of many sizes: seconds and memory of a report and of a search's first stage.

    python -m benchmarks.space_size [--output FILE]

Needs no GPU. Each row is of a fresh process with empty caches: its CPU seconds, without those of
its workers, and the most memory that it had. "report" makes a prune report of a GEMM on an H200,
"search" enumerates the space, digests it for the record's key and ranks it for the first batch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.space.space import Space
from benchmarks.provenance import RESULTS, write

GROUPS = {10_000: 1, 100_000: 5, 334_084: 16, 1_000_000: 48}
"""Values of GROUP_M by the size that they lead to, nearly."""

WAYS = ("report", "search")


def space(groups: int) -> Space:
    """Build 100 tiles by groups, warps, stages and caps."""
    wide = groups > 1
    axes: dict[str, Any] = {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (16, 32, 64, 128),
        "GROUP_M": range(1, groups + 1),
        "num_warps": (1, 2, 4, 8, 16),
        "num_stages": range(1, 8 if wide else 6),
        "maxnreg": (None, 64, 96, 128, 168, 232) if wide else (None, 64, 128, 232),
    }
    default = Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 1})
    return Space(axes, default=default).where(
        "a thread holds an accumulator",
        lambda BLOCK_M, BLOCK_N, num_warps: num_warps * 32 <= BLOCK_M * BLOCK_N,
    )


def child(way: str, groups: int) -> dict[str, Any]:
    """Rank a space in this process."""
    from asmtune.kernels import tiled_matmul as matmul
    from asmtune.predict.prune.flow import Funnel
    from asmtune.predict.score.scorers import make_scorer
    from asmtune.runtime.offline.pruning import prune_report
    from asmtune.tuning.initial_state import first_ranking
    from asmtune.tuning.options import EFFORTS
    from asmtune.tuning.request import space_digest

    problem = matmul.problem({"M": 4096, "N": 4096, "K": 4096}, "fp16", "meta")
    own = space(groups)
    if way == "report":
        counts = prune_report(problem, own, target="H200", keep=20, compile="auto").counts()
        return {"configs": counts["candidates"], "compiled": counts["compiled"]}
    settings = Settings.from_environment()
    funnel = Funnel(load_target("H200"), make_scorer("roofline"), settings)
    front = funnel.front(problem)
    space_digest(own.points(**problem.shape))
    default = own.first(**problem.shape)
    configs = funnel.searched(front, own).configs(default, problem.shape)
    ranking = first_ranking(funnel, front, configs, EFFORTS["balanced"])
    ranking.close()
    return {"configs": len(configs), "searched": len(ranking.verdicts)}


def fresh(way: str, groups: int) -> dict[str, Any]:
    """Rank a space in a fresh process; return its CPU seconds and memory as well."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"ASMTUNE_CACHE_DIR": f"{folder}/a", "TRITON_CACHE_DIR": f"{folder}/t"}
        command = [sys.executable, "-m", "benchmarks.space_size", "--child", way, str(groups)]
        done = subprocess.run(
            command, env={**os.environ, **caches}, stdout=subprocess.PIPE, check=True
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def used() -> dict[str, Any]:
    """Return this process's CPU seconds and the most memory that it had."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": round(own.ru_utime + own.ru_stime, 2),
        "most_megabytes": round(own.ru_maxrss / 1024),
    }


def main() -> None:
    """Measure every size both ways, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "space_size.json")
    options = parser.parse_args()
    if options.child:
        way, groups = options.child
        result = child(way, int(groups))
        print(json.dumps({**result, **used()}))
        return
    rows = []
    for size, groups in GROUPS.items():
        for way in WAYS:
            rows.append({"size": size, "way": way, **fresh(way, groups)})
            print(rows[-1])
    write(options.output, {"rows": rows})


if __name__ == "__main__":
    main()
