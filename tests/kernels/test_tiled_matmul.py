"""The GEMM: its problems without a GPU, and its results under Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.config import Config
from asmtune.kernels import tiled_matmul as matmul
from tests.interpreter import Interpreter

RESULTS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp8e4nv": "float16"}


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_results_against_float64(dtype: str, interpreter: Interpreter) -> None:
    """For any size, layout and tile the error is what rounding explains, and int8 is exact."""
    found = interpreter.call("tests.kernels.interpreted_tiled_matmul:sizes", dtype)
    assert len(found) == 15
    for case, (excess, result, right) in found.items():
        assert excess <= (0 if dtype == "i8" else 1), case
        assert result == f"torch.{RESULTS.get(dtype, 'int32')}", case
        assert right, case


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_problem_without_memory(dtype: str) -> None:
    """A meta problem has the dtypes, strides and grid of the real one."""
    problem = matmul.problem({"M": 100, "N": 70, "K": 30}, dtype, "meta")
    assert problem.name == "tiled_matmul"
    result = {"fp8e4nv": "fp16", "i8": "i32"}.get(dtype, dtype)
    assert problem.dtypes == {"a_ptr": dtype, "b_ptr": dtype, "c_ptr": result}
    assert all(problem.arguments[name].is_meta for name in problem.dtypes)
    strides = [problem.arguments[f"stride_{name}"] for name in ("am", "ak", "bk", "bn", "cm", "cn")]
    assert strides == [30, 1, 70, 1, 70, 1]
    tile = Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8})
    assert problem.programs(tile) == (4 * 2, 1, 1)


def test_space_is_large_and_holds_its_default() -> None:
    """At least 600 candidates, the default among them."""
    configs = list(matmul.space())
    assert len(configs) >= 600
    assert len(set(configs)) == len(configs)
    assert matmul.DEFAULT in configs
    assert matmul.space().first() == matmul.DEFAULT


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (4, 2), r"a is \(2, 3\), b is \(4, 2\); they must be \(M, K\) and \(K, N\)"),
        ((2, 3), (3,), r"a is \(2, 3\), b is \(3,\); they must be"),
        ((3,), (3, 2), r"a is \(3,\), b is \(3, 2\)"),
        ((2, 3, 3), (3, 2), r"a is \(2, 3, 3\)"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    """Operands that are no matrices, or do not fit, are refused with their shapes."""
    with pytest.raises(ValueError, match=message):
        matmul.tiled_matmul(
            torch.zeros(a, dtype=torch.float16), torch.zeros(b, dtype=torch.float16)
        )


def test_dtypes_that_do_not_fit() -> None:
    """Operands of two dtypes, or of one that the kernel has no use for, are refused."""
    a, b = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"b is torch.float16 on cpu, and a is torch.float32"):
        matmul.tiled_matmul(a, b)
    with pytest.raises(ValueError, match="one of fp16, bf16, fp32, fp8e4nv, i8"):
        matmul.tiled_matmul(a.double(), a.double())


def halves(*extents: int) -> torch.Tensor:
    """A matrix without memory."""
    return torch.empty(extents, dtype=torch.float16, device="meta")


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (halves(1 << 16, 1 << 15), halves(1 << 15, 8), "a"),
        (halves(8, 1 << 15), halves(1 << 16, 1 << 15).mT, "b"),
        (halves(1 << 16, 8), halves(8, 1 << 15), "c"),
    ],
)
def test_matrices_further_than_32_bits_are_refused(
    a: torch.Tensor, b: torch.Tensor, name: str
) -> None:
    """Offsets that would wrap are refused before anything is launched; a long K alone has none."""
    with pytest.raises(ValueError, match=f"tiled_matmul: a tile of {name} lies up to 21"):
        matmul.tiled_matmul(a, b)
    matmul._check_reach(halves(1 << 28, 16).mT, halves(1 << 28, 16))
