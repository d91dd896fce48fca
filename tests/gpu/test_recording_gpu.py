"""A program's keys on a GPU: recorded, tuned without it, and met again; tuning in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

SERVES = """
import sys

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 1024, 4096)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    tl.store(out_ptr + at, tl.load(x_ptr + index, mask=at < n) * 2, mask=at < n)


def serve(n):
    x, index = torch.randn(n, device="cuda"), torch.randperm(n, device="cuda")
    out = torch.empty_like(x)
    if len(sys.argv) > 2:
        torch.cuda.empty_cache()
        most = torch.cuda.memory_allocated() + int(sys.argv[2])
        torch.cuda.set_per_process_memory_fraction(most / torch.cuda.mem_get_info()[1])
    gather[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, index, out, n)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(out, x[index] * 2)


if __name__ == "__main__":
    for n in sys.argv[1].split(","):
        serve(int(n))
"""


def asmtune(folder: Path, *arguments: str) -> str:
    """What a command prints to stderr; it must end well."""
    path = os.pathsep.join((str(REPOSITORY), *sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "asmtune", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "ASMTUNE_CACHE_DIR": str(folder / "c")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.gpu
@pytest.mark.slow(seconds=120)
def test_recorded_keys_are_tuned_before_traffic(tmp_path: Path) -> None:
    """Keys of a run that times nothing are tuned with indices in range, and known afterwards."""
    (tmp_path / "serves.py").write_text(SERVES)
    sizes = "100000,1000003,5000000"
    asmtune(tmp_path, "run", "--on-miss", "predict", "--record", "k.json", "serves.py", sizes)
    keys = [*map(json.loads, (tmp_path / "k.json").read_text().splitlines())]
    assert [key["shape"]["n"] for key in keys] == [100000, 1000003, 5000000]
    assert all("index_ptr" in key["contents"] for key in keys)
    asmtune(tmp_path, "tune", "--from", "k.json", "--effort", "quick")
    told = asmtune(tmp_path, "run", "--on-miss", "raise", "--record", "k.json", "serves.py", sizes)
    assert "no new key was met" in told
    told = asmtune(tmp_path, "run", "--on-miss", "predict", "--record", "k.json", "serves.py", "77")
    assert "1 of 1 key met were new to" in told


@pytest.mark.gpu
@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("left", [1 << 30, 300 << 20, 16 << 20])
def test_a_program_tunes_in_the_memory_that_is_left(tmp_path: Path, left: int) -> None:
    """A program that has little memory left runs to its end, tuned or with the untimed pick."""
    (tmp_path / "serves.py").write_text(SERVES)
    told = asmtune(tmp_path, "run", "--effort", "quick", "serves.py", "20000000", str(left))
    print(f"\n{left >> 20} MiB left:\n{told}")  # noqa: T201 - for the committed log
    assert "asmtune: keys met" in told
    assert ("memory is short" in told) <= (left < 1 << 30)
