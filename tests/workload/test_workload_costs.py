"""Matrix products and element-wise work against known totals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import workload_kernels as kernels
from workload_lowering import F16, F32, I32, call, flops, lower, moved, pointer, work

from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.ir.ttir.analysis import Kernel, analyse
from asmtune.ir.ttir.costs import Dot

ORACLE = Path(__file__).parents[3] / "shared" / "oracle" / "kernels"
needs_oracle = pytest.mark.skipif(not ORACLE.is_dir(), reason="needs the oracle's kernels")


@pytest.mark.parametrize("dtype", [F16, torch.bfloat16, F32, torch.int8, torch.float8_e4m3fn])
def test_products_flops_are_two_m_n_k(dtype: torch.dtype) -> None:
    """Where tiles divide the matrices, by the type of the operands."""
    names = {
        F16: "f16",
        torch.bfloat16: "bf16",
        F32: "f32",
        torch.int8: "i8",
        torch.float8_e4m3fn: "f8E4M3FN",
    }
    pointers = dict.fromkeys(("a_ptr", "b_ptr"), pointer(dtype))
    sizes = {"M": 512, "N": 256, "K": 1024, "BM": 64, "BN": 32, "BK": 64}
    kernel = kernels.persistent_gemm if dtype != torch.int8 else kernels.integer_gemm
    c_ptr = pointer(F16 if dtype != torch.int8 else I32)
    found = work(kernel, grid=(7,), **pointers, c_ptr=c_ptr, **sizes)
    assert flops(found) == {names[dtype]: pytest.approx(2 * 512 * 256 * 1024)}
    assert sum(flops(found).values()) == pytest.approx(2 * 512 * 256 * 1024)
    assert found.dots[0].precision == ("tf32" if dtype == F32 else "")
    assert found.dots[0].loop == found.loops[1].id


def test_scaled_products_count_numbers_not_bytes() -> None:
    """Two fp4 numbers in a byte are two; with fp8 on the other side it is an fp8 product."""
    byte, eight = torch.uint8, torch.float8_e4m3fn
    values = {
        "a_ptr": pointer(byte),
        "sa_ptr": pointer(byte),
        "b_ptr": pointer(eight),
        "sb_ptr": pointer(byte),
        "c_ptr": pointer(),
    }
    found = work(kernels.scaled_dot, grid=(3,), **values, M=128, N=64, K=256)
    (product,) = found.dots
    assert product.dot == Dot(128, 64, 256, 1, "f8E4M3FN", "f32")
    assert sum(flops(found).values()) == 3 * 2 * 128 * 64 * 256


def test_special_functions_are_counted_by_element() -> None:
    """Exponentials, roots, sines and library functions; divisions and fma apart."""
    found = work(kernels.device_math, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), BLOCK=64)
    # exp, log, sqrt, sin, tanh; then sigmoid's and softmax's exp.
    assert found.elements["special"] == 7 * 64
    assert found.elements["fma"] == 64
    assert found.elements["divide"] == 2 * 64
    assert found.elements["reduce"] == 2 * 64


def test_work_of_loops_is_multiplied_and_dead_work_is_not_there() -> None:
    """One exponential for all trips is done once, a cosine twice written once, a sine never."""
    values = {"x_ptr": pointer(), "w_ptr": pointer(), "y_ptr": pointer(), "n": 10, "BLOCK": 64}
    found = work(kernels.repeated, grid=(1,), **values)
    # The loop writes, so that the load of w stays in it, and with it its exponential.
    assert found.elements["special"] == 10 * 64 * 2
    assert found.elements["float"] == 10 * 64 * 2


def test_overflow_checks_are_not_counted() -> None:
    """Four integer operations behind each of the source's are dead without debug."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "n": 999, "BLOCK": 128}
    found = work(kernels.add_in_place, grid=(8,), **values)
    assert found.elements == {"integer": 2 * 128, "float": 128}  # offs + range, offs < n; x + y


def test_reductions_and_scans_count_what_goes_in() -> None:
    """Their combining functions are not counted again."""
    values = {"x_ptr": pointer(), "y_ptr": pointer(), "cols": 1000, "BLOCK": 1024}
    found = work(kernels.softmax, grid=(4,), **values)
    assert found.elements["reduce"] == 2 * 1024
    scanned = work(
        kernels.scans, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), z_ptr=pointer(), BLOCK=16
    )
    assert scanned.elements["scan"] > 0


def test_mapped_functions_run_for_each_element() -> None:
    """A scalar function's operations count by element."""
    found = work(kernels.mapped, grid=(1,), x_ptr=pointer(), BLOCK=64)
    assert found.elements["float"] == 3 * 64


def test_barriers_are_counted() -> None:
    """A barrier in a loop counts for each trip; checks do not disturb."""
    found = work(kernels.asserted, grid=(1,), x_ptr=pointer(), y_ptr=pointer(), n=5, BLOCK=64)
    assert found.barriers == 5
    assert found.loops[0].trips == 5
    assert {use.name: use.unknown_use for use in found.arguments} == {
        "x_ptr": False,
        "y_ptr": False,
    }


def test_inline_assembly_is_counted_by_element() -> None:
    """Two pieces on each element of each trip."""
    values = {"x_ptr": pointer(I32), "y_ptr": pointer(I32), "n": 5, "BLOCK": 64}
    found = work(kernels.inline_asm, grid=(1,), **values)
    assert found.elements["asm"] == 5 * 2 * 64


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
