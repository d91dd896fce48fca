"""The Gluon kernels for Hopper on one: every config against float64, tuned, and in a graph.

Configs are launched in a process of its own, which is killed after LIMIT_S: partitions that wait
for each other would wait for ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from asmtune.kernels import (
    _hopper_attention,
    _hopper_gemm,
    _hopper_scaled,
    attention,
    matmul,
    scaled_matmul,
)
from asmtune.runtime.decorator import reconfigure
from asmtune.store.database import Store
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.gpu.hopper_process import ATTENTIONS, attention_case
from tests.gpu.hopper_process import CASES as KERNELS

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
CASES = [(name, i) for name, (_, cases, _) in KERNELS.items() for i in range(len(cases))]

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="the kernels' instructions are Hopper's",
)


@pytest.mark.parametrize(("kernel", "number"), CASES)
def test_every_config_is_right_and_repeats(kernel: str, number: int) -> None:
    """Each config of the space is as near to float64 as others are, bit by bit the same again.

    Sums of atomic additions are near each time.
    """
    command = [sys.executable, "-m", "tests.gpu.hopper_process", kernel, str(number)]
    try:
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"no end after {LIMIT_S} s; configs so far:\n{(error.stderr or b'').decode()}")
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) >= (1 if kernel == "backward" else 4)
    assert {config: error for config, error in found.items() if not error <= 1} == {}


def test_the_product_is_tuned_and_captured(cache_dir: Path) -> None:
    """A first call times configs with outputs checked; a captured one is right at each replay."""
    torch.manual_seed(0)
    a, b = (torch.randn(1, rows, 1024, device="cuda").half() for rows in (2048, 512))
    c = torch.empty(1, 2048, 512, device="cuda", dtype=torch.float16)
    reconfigure(_hopper_gemm.tuned, skip_tuning_below_us=None)
    _hopper_gemm.multiply(a, b.mT, c)
    wanted = a.double() @ b.mT.double()
    assert excess(c, wanted) <= 1
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert [failure for _, failure in record.failures if failure.stage == "check"] == []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _hopper_gemm.multiply(a, b.mT, c)
    for _ in range(20):
        c.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert excess(c, wanted) <= 1


def _product() -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (torch.randn(rows, 1024, device="cuda").half() for rows in (2048, 512))
    return matmul.matmul(a, b.mT, vendor=False), a.double() @ b.mT.double()


def _attention() -> tuple[torch.Tensor, torch.Tensor]:
    given, _, exact = attention_case(ATTENTIONS[3])
    heads = {name: given[f"{name}_desc"].base for name in "qkv"}
    return attention.attention(**heads, causal=True, vendor=False), exact()[0]


def _scaled() -> tuple[torch.Tensor, torch.Tensor]:
    shape = {"M": 1024, "N": 1024, "K": 4096, "GROUP_A": 1, "GROUP_B": 128, "GROUP_K": 128}
    given = scaled_matmul.inputs(shape, "fp8e4nv", "cuda")
    exact = {n: x.double() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    return scaled_matmul.scaled_matmul(**given, vendor=False), scaled_matmul.baseline(**exact)


@pytest.mark.parametrize(
    ("call", "plain", "hopper"),
    [
        (_product, matmul, _hopper_gemm),
        (_attention, attention, _hopper_attention),
        (_scaled, scaled_matmul, _hopper_scaled),
    ],
    ids=["matmul", "attention", "scaled_matmul"],
)
def test_public_functions_time_it_beside_the_plain_kernel(
    call: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    plain: ModuleType,
    hopper: ModuleType,
    cache_dir: Path,
) -> None:
    """It is tuned before the race in which it is an alternative, and passes its check."""
    for tuner in (plain._beside_gluon, hopper.tuned):
        reconfigure(tuner, skip_tuning_below_us=None, effort="quick", force=True)
    try:
        for _ in range(3):
            torch.manual_seed(0)
            got, wanted = call()
            assert excess(got, wanted, {"fp16": "fp16 weights", "bf16": "bf16 fp8 sums"}) <= 1
    finally:
        for tuner in (plain._beside_gluon, hopper.tuned):
            reconfigure(tuner, force=False)
    with Store.open(cache_dir / "store.sqlite") as store:
        records = {record.key.kernel: record for record in store.records()}
    assert len(records) == 2
    (record,) = (r for name, r in records.items() if name.startswith(plain.__name__))
    assert "gluon" in [m.config.alternative for m in record.measurements]
    assert "gluon" not in [config.alternative for config, _ in record.failures]
