"""`asmtune bench` and `asmtune check` on a real GPU, from a stored config to an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store.database import Store
from asmtune.tuning.request import key_of, provenance

MODULE = """
import torch, triton, triton.language as tl
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def space():
    return Space({"BLOCK": (256, 1024), "num_warps": (4,)})

SHAPES = ({"n": 1 << 24}, {"n": 1 << 20})
DTYPES = ("fp32",)

def problem(shape, dtype, device):
    x = torch.ones(shape["n"], device=device)
    grid = lambda values: (triton.cdiv(shape["n"], values["BLOCK"]),)
    return Problem(kernel, {"x_ptr": x, "n": shape["n"]}, grid, shape, "doubled")
"""


@pytest.fixture
def doubled(cache_dir: Path) -> Path:
    """A kernel module with a stored config for both of its shapes."""
    path = cache_dir / "doubled.py"
    path.write_text(MODULE)
    module = load_kernel_module(str(path))
    with Store.open(cache_dir / "store.sqlite") as store:
        for shape in module.shapes:
            problem, space = module.problem(shape, "fp32", "meta"), module.space()
            winner = space.first(**shape)
            key = key_of(problem, torch.cuda.get_device_name())
            timings = (Measurement(winner, 5.0, 4.0, 6.0, ()),)
            store.save(TuneRecord(key, winner, timings, provenance(problem, space)))
    return path


def asmtune(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "asmtune", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def bench(kernel: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """A run of five processes, and its document."""
    path = kernel.with_name(name)
    done = asmtune("bench", str(kernel), "--processes", "5", "--output", str(path))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(path.read_text())
    return path, document


def test_bench_and_check(doubled: Path) -> None:
    """Two runs of one kernel are no slowdown; one whose samples are doubled is; others are said."""
    base, document = bench(doubled, "base.json")
    assert document["environment"]["gpu"] == torch.cuda.get_device_name()
    assert len(document["environment"]["board"]) == 12
    large, small = document["rows"]
    assert [len(samples) >= 5 for samples in large["samples"]] == [True] * 5
    # 128 MiB of traffic against 8: no GPU does both in the same time.
    assert min(map(min, large["samples"])) > max(sorted(s)[len(s) // 2] for s in small["samples"])
    run, _ = bench(doubled, "run.json")
    checked = asmtune("check", str(run), "--baseline", str(base), "--threshold", "20%")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for row in document["rows"]:
        row["samples"] = [[2 * sample for sample in samples] for samples in row["samples"]]
    slow = doubled.with_name("slow.json")
    slow.write_text(json.dumps(document))
    assert asmtune("check", str(slow), "--baseline", str(base)).returncode == 1
    document["environment"]["gpu"] = "another"
    slow.write_text(json.dumps(document))
    assert asmtune("check", str(slow), "--baseline", str(base)).returncode == 3
