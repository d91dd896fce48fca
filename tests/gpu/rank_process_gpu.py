"""One rank on a GPU of its own: launches, compiles and captures, prints one JSON object.

python rank_process_gpu.py BACKEND RANK WORLD PORT FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton

from asmtune import Config, Space, asm_autotune
from asmtune.tuning.session import Session
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (256, 512, 1024), "num_warps": (2, 4)}, default=Config({"BLOCK": 256}))
N = 1 << 20


def launch(kernel: Any, n: int) -> bool:
    """Launch; say if the sum is right."""
    x, y = torch.randn(2, n, device="cuda")
    out = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return torch.equal(out, x + y)


def play(rank: int) -> dict[str, Any]:
    """Play a rank; return what it saw."""
    tuned: list[int] = []
    run = Session.run
    Session.run = lambda self, job, *rest: (  # type: ignore[method-assign]
        tuned.append(job.key.shape["n"]) or run(self, job, *rest)
    )
    kernel = asm_autotune(space=SPACE, key=["n"], skip_tuning_below_us=None)(gpu_kernels.add)
    right = [launch(kernel, N)]
    configs = [str(kernel.best_config)]
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    if rank == 0:  # a key that the others never meet
        right.append(launch(kernel, 12_345))
    graph = torch.cuda.CUDAGraph()
    x = torch.ones(5000, device="cuda")
    out = torch.zeros_like(x)
    # Its own heuristic, which is not the others'.
    late = asm_autotune(
        space=SPACE, key=["n"], skip_tuning_below_us=None, fallback=Config({"BLOCK": 256 << rank})
    )(gpu_kernels.add)
    launch(late, N)
    for block in SPACE.axes["BLOCK"]:  # nothing is loaded while a graph is captured
        gpu_kernels.add[(20,)](x, x, out, 5000, BLOCK=block, num_warps=4)
    with torch.cuda.graph(graph):
        late[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x, x, out, 5000)
    graph.replay()
    torch.cuda.synchronize()
    configs.append(str(late.best_config))
    right.append(torch.equal(out, x + x))
    dist.barrier()
    return {"configs": configs, "right": right, "tuned": tuned, "ranks": total.item()}


def main() -> None:
    """Join the job, play, print."""
    backend, rank, world, port, folder = sys.argv[1:]
    os.environ["ASMTUNE_CACHE_DIR"] = str(Path(folder) / f"rank{rank}")
    torch.cuda.set_device(int(rank))
    dist.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world)
    )
    warnings.simplefilter("ignore")
    print(json.dumps(play(int(rank))), flush=True)  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
