"""Ranks of a `torch.distributed` job, each on a GPU of its own, with stores of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
N = 1 << 20


def run_job(backend: str, world: int, folder: Path) -> list[dict[str, Any]]:
    """Run a job; return what each rank printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = str(Path(__file__).with_name("rank_process_gpu.py"))
    ranks = [
        subprocess.Popen(
            [sys.executable, script, backend, str(rank), str(world), str(port), str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    found = []
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err[-4000:]
        found.append(json.loads(out.splitlines()[-1]))
    return found


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_ranks_run_one_config(backend: str, tmp_path: Path) -> None:
    """Ranks tune a key at once; launched and captured, all run the config published first."""
    if len({torch.cuda.get_device_name(index) for index in (0, 1)}) > 1:
        pytest.skip("needs two GPUs of one kind")
    first, second = run_job(backend, 2, tmp_path)
    assert first["configs"] == second["configs"]
    assert all(first["right"] + second["right"])
    assert sorted(first["tuned"] + second["tuned"]) == [12_345, N, N]
    assert first["ranks"] == second["ranks"] == 2
