"""Tuning of the GEMM with the decorator, then launches from a second process.

    python -m benchmarks.tune_gemm [--output FILE]

Needs a GPU. Caches are empty at the start. The second process must find every
config in the store: it counts Triton's compiles, and tuning there is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, write

SHAPES = ((512, 512, 512), (1024, 16384, 1024), (4096, 4096, 4096))


def first_process() -> list[dict[str, Any]]:
    """Tune each shape; time the winner against cuBLAS in one interleaved round."""
    import torch

    from asmtune.kernels import tiled_matmul as matmul
    from asmtune.measure.timing.clock import GpuClock, Subject
    from asmtune.measure.timing.policy import TimingPolicy
    from asmtune.measure.timing.race import Race

    rows = []
    for M, N, K in SHAPES:
        a = torch.randn(M, K, device="cuda", dtype=torch.float16)
        b = torch.randn(K, N, device="cuda", dtype=torch.float16)
        start = time.perf_counter()
        c = matmul.matmul(a, b)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        winner = matmul._tuned.best_config
        exact = a.double() @ b.double()
        out = torch.empty_like(c)
        ours = Subject(winner, lambda a=a, b=b: matmul.matmul(a, b), lambda: None)
        vendor = Subject(
            matmul.DEFAULT,
            lambda a=a, b=b, out=out: torch.matmul(a, b, out=out),
            lambda: None,
        )
        policy = TimingPolicy(fine_rounds=40)
        timed = Race(GpuClock(policy), policy).final([ours, vendor])
        (_, mine), (_, cublas) = timed
        rows.append(
            {
                "shape": {"M": M, "N": N, "K": K},
                "first_launch_s": round(seconds, 2),
                "winner": winner.to_dict(),
                "winner_us": round(mine.median_us, 2),
                "cublas_us": round(cublas.median_us, 2),
                "relative_error": float((c.double() - exact).norm() / exact.norm()),
            }
        )
    return rows


def second_process() -> dict[str, Any]:
    """Launch each shape from the store; count compiles, and forbid tuning."""
    start = time.perf_counter()
    import torch
    import triton

    from asmtune.kernels import tiled_matmul as matmul
    from asmtune.tuning.session import Session

    compiles: list[bool] = []
    triton.knobs.compilation.listener = lambda **event: compiles.append(event["cache_hit"])

    def forbidden(*_: Any) -> None:
        raise AssertionError("the second process tunes")

    Session.run = forbidden  # type: ignore[method-assign]
    rows = []
    for M, N, K in SHAPES:
        a = torch.randn(M, K, device="cuda", dtype=torch.float16)
        b = torch.randn(K, N, device="cuda", dtype=torch.float16)
        torch.cuda.synchronize()
        compiles.clear()
        began = time.perf_counter()
        matmul.matmul(a, b)
        torch.cuda.synchronize()
        rows.append(
            {
                "shape": {"M": M, "N": N, "K": K},
                "first_launch_s": round(time.perf_counter() - began, 3),
                "compiles": compiles.count(False),
                "from_tritons_cache": compiles.count(True),
                "config": matmul._tuned.best_config.to_dict(),
            }
        )
    return {
        "rows": rows,
        "whole_s": round(time.perf_counter() - start, 2),
        "sklearn_loaded": "sklearn" in sys.modules,
    }


def records() -> list[dict[str, Any]]:
    """Summarise the records in the store."""
    from asmtune.base.settings import Settings
    from asmtune.store.database import Store

    with Store.open(Settings.from_environment().store_path) as store:
        return [
            {
                "key": record.key.shape,
                "timed": len(record.measurements),
                "failed": len(record.failures),
                "median_us": record.median_us,
            }
            for record in store.records()
        ]


def main() -> None:
    """Run both processes and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=RESULTS / "tune_gemm.json")
    parser.add_argument("--second", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.second:
        print(json.dumps(second_process()))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASMTUNE_CACHE_DIR"] = f"{folder}/asmtune"
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        first = first_process()
        # Empty again: the second process has the store, but not Triton's cache.
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton-second"
        command = [sys.executable, "-m", "benchmarks.tune_gemm", "--second"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        warm = subprocess.run(command, capture_output=True, text=True, check=True)
        result = {
            "first_process": first,
            "second_process": json.loads(done.stdout),
            "third_process_with_tritons_cache": json.loads(warm.stdout),
            "store": records(),
        }
    write(options.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
