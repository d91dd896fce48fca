"""Registers, spills and shared memory told offline are those that a GPU reported."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import triton

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.artifacts import Failure
from asmtune.predict.features.reader import ProfileReader

ORACLE = Path(__file__).parents[2] / "shared" / "oracle"
KERNELS = ("gemm", "softmax", "layernorm", "broadcast_relu", "gemm_bias_gelu", "attention")


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    """The recorded tasks; skipped where there are none, or another compiler made them."""
    path = ORACLE / "h200.json.gz"
    if not path.is_file():
        pytest.skip(f"no recorded timings at {path}")
    document = json.loads(gzip.decompress(path.read_bytes()))
    if document["meta"]["triton"] != triton.__version__:
        pytest.skip(f"recorded with Triton {document['meta']['triton']}, not {triton.__version__}")
    return list(document["tasks"])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_resources_agree(
    kernel: str, tasks: list[dict[str, Any]], target: Target, settings: Settings
) -> None:
    """Six rows of a kernel, drawn by a seed, have exactly the figures that were recorded."""
    task = random.Random(kernel).choice([task for task in tasks if task["kernel"] == kernel])
    timed = [row for row in task["rows"] if "ms" in row and row["compile_s"] < 1.5]
    rows = random.Random(kernel).sample(timed, 6)
    module = load_kernel_module(str(ORACLE / "kernels" / f"{kernel}.py"))
    problem = module.problem(task["shape"], module.dtypes[0], "meta")
    found = compile_configs(
        Lowering(problem, target, 60),
        [Config.from_dict(row["config"]) for row in rows],
        Hooks(ProfileReader(target), lambda *_: None),
        settings,
    )
    checked = 0
    for place, outcome in found:
        assert not isinstance(outcome, Failure), outcome
        names = {"regs": "regs_per_thread", "spills": "spill_words", "shared": "shared_bytes"}
        told = {name: outcome.reading.static[feature] for name, feature in names.items()}
        assert told == {name: rows[place][name] for name in names}, rows[place]["config"]
        checked += 1
    assert checked == 6
