"""Matrix products and element-wise work against known totals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import workload_kernels as kernels
from workload_lowering import call, flops, lower, moved, pointer

from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.ir.ttir.analysis import Kernel, analyse

ORACLE = Path(__file__).parents[3] / "shared" / "oracle" / "kernels"
needs_oracle = pytest.mark.skipif(not ORACLE.is_dir(), reason="needs the oracle's kernels")


def test_one_reading_serves_all_launches() -> None:
    """A kernel read once gives each launch its own numbers."""
    values = {"x_ptr": pointer(), "y_ptr": pointer()}
    kernel = Kernel(lower(kernels.scalar_loop, **values, n=20))
    trips = [kernel.work(call((1,), n=n)).loops[0].trips for n in (2, 30, 400)]
    assert trips == [2, 30, 400]


def oracle_work(name: str, shape: dict[str, object], place: int) -> tuple[object, object]:
    """Work of one of the oracle's kernels with one config of its space, and the config."""
    module = load_kernel_module(str(ORACLE / f"{name}.py"))
    problem = module.problem(shape, None or module.dtypes[0], "meta")
    config = list(module.space())[place]
    request = Lowering(problem, load_target("H200"), 30).request(config)
    assert isinstance(request, LowerRequest)
    grid = problem.programs(config)
    return analyse(request.ttir, call(grid, **problem.bind(config))), config


@needs_oracle
@pytest.mark.parametrize("place", [0, 100, 300, 500])
def test_oracle_products(place: int) -> None:
    """FLOPs and bytes written of the oracle's products are those of the matrices."""
    shape = {"M": 4096, "N": 2048, "K": 1024}
    found, _ = oracle_work("gemm", shape, place)
    assert sum(flops(found).values()) == 2 * 4096 * 2048 * 1024
    assert moved(found, "write") == 4096 * 2048 * 2
    assert found.exact


@needs_oracle
def test_oracle_attention_and_layer_norm() -> None:
    """Attention multiplies twice for each pair of positions; a layer norm reads twice."""
    shape = {"B": 4, "H": 16, "N": 1024, "D": 64, "causal": False}
    attention, _ = oracle_work("attention", shape, 50)
    assert sum(flops(attention).values()) == 4 * 4 * 16 * 1024 * 1024 * 64
    norm, config = oracle_work("layernorm", {"rows": 4096, "cols": 4096}, 40)
    trips = -(-4096 // config.kwargs["BLOCK_N"])
    assert [loop.trips for loop in norm.loops] == [trips, trips]
    assert moved(norm, "write") == max(4096, config.kwargs["BLOCK_N"]) * 4096 * 2
    json.dumps(dict(norm.elements))
