"""A process of its own: keeps a config for a kernel, or launches it and tells what that loaded."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
import triton.language as tl

DEVICE = "NVIDIA H200"
SPACE = {"BLOCK": [64, 128, 256], "num_warps": [4, 8]}


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """Stand for a kernel that never runs: there is no GPU."""


def keep(block: int) -> None:
    """Keep a record for the kernel at n=8."""
    from asmtune.base.settings import Settings
    from asmtune.core.config import Config
    from asmtune.core.problem import Problem
    from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
    from asmtune.core.space.space import Space
    from asmtune.store.database import Store
    from asmtune.tuning.request import provenance

    problem = Problem(add, {"x_ptr": torch.zeros(8), "n": 8}, (1,))
    key = TuneKey(f"{add.__module__}.add", {"n": 8}, dict(problem.dtypes), DEVICE)
    best = Config({"BLOCK": block}, num_warps=8)
    timed = (Measurement(best, 1.0, 1.0, 1.0, (1.0,)),)
    made = TuneRecord(key, best, timed, provenance(problem, Space(SPACE)))
    with Store.open(Settings.from_environment().store_where) as store:
        store.save(made)


def launch(options: dict[str, Any]) -> dict[str, Any]:
    """Launch the kernel at n=8; what was launched, and what is loaded."""
    from asmtune import asm_autotune
    from asmtune.measure.timing import nvml

    launches: list[dict[str, Any]] = []
    nvml.device_name = lambda *_: DEVICE
    add.run = lambda *_, **keywords: launches.append(keywords)
    kernel = asm_autotune(space=SPACE, key=["n"], **options)(add)
    kernel[(1,)](torch.zeros(8), 8)
    return {"block": launches[0]["BLOCK"], "loaded": sorted(sys.modules)}


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        keep(int(sys.argv[2]))
    else:
        sys.stdout.write(json.dumps(launch(json.loads(sys.argv[2]))))
