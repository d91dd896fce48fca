"""With TRITON_INTERPRET=1 all decorated kernels run on the CPU, untuned and right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow(seconds=4)  # one process, which imports TorchDynamo

BLOCKS = {
    "listed": 32,
    "generated": 64,
    "raise": 64,
    "predict": 64,
    "background": 32,
    "nearest": 64,
    "heuristic": 32,
    "pruned": 128,
    "modelled": 128,
    "buckets": 64,
    "restored": 32,
    "not small": 64,
}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run a process under the interpreter, and check that it caches nothing; return its output."""
    folder = tmp_path_factory.mktemp("interpreted")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreted_torch.py"))],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "ASMTUNE_CACHE_DIR": str(folder),
            # No C part is built: this would tell that there is no compiler.
            "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
            "CC": "no-such-compiler",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", BLOCKS)
def test_every_way_to_decorate(interpreted: dict[str, Any], way: str) -> None:
    """Whatever is asked for on a miss, the heuristic's or first config runs, and is right."""
    assert interpreted["plain"][way] == [True, BLOCKS[way], False]
    assert interpreted["best"][way] == BLOCKS[way]


@pytest.mark.parametrize("way", BLOCKS)
def test_heuristics_on_both_sides(interpreted: dict[str, Any], way: str) -> None:
    """`@triton.heuristics` below see the config's block, those above the launch's arguments."""
    assert interpreted["below"][way] == [True, BLOCKS[way], 100 % BLOCKS[way] == 0]
    assert interpreted["above"][way] == [True, BLOCKS[way], True]


def test_threads_gradients_and_operators(interpreted: dict[str, Any]) -> None:
    """Threads, autograd's backward and `wrap_triton` launch as on a GPU."""
    assert interpreted["threads"] is True
    assert interpreted["gradient"] == [2.0]
    assert interpreted["wrapped"] == [True, 64, True]


def test_the_tuner_is_not_loaded(interpreted: dict[str, Any]) -> None:
    """Nothing that only tuning needs is imported."""
    assert interpreted["loaded"] == []
