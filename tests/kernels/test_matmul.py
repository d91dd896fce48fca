"""The matrix product: its variants, contracts, layouts and space, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import _gemm_host, linear, matmul
from asmtune.kernels._gemm_host import Product, as_tf32, by_cublas, product
from asmtune.kernels._split import MOST_COUNTS, SUMS_BYTES
from tests.interpreter import Interpreter
from tests.kernels.interpreted_matmul import CASES, UNALIGNED
from tests.kernels.made import artifact_of

SHAPE = {"batch": 1, "M": 1000, "N": 1000, "K": 1000}
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(("dtype", "layout"), CASES)
def test_every_variant_computes_the_same(dtype: str, layout: str, interpreter: Interpreter) -> None:
    """All variants are right on a layout, twice in a row, and leave the counts at 0."""
    found = interpreter.call("tests.kernels.interpreted_matmul:errors", dtype, layout)
    assert len(found) == (4 if layout in UNALIGNED else 8)
    assert {case: left for case, (_, left) in found.items() if left} == {}
    assert {case: error for case, (error, _) in found.items() if not error <= 1} == {}


def contract(a: torch.Tensor, b: torch.Tensor) -> tuple[str, int, int, int]:
    """Layout, and the bytes that divide extents and strides, strides, and rows of C."""
    operands = made(a, b)
    given = operands.arguments(operands.result())
    names = ("LAYOUT", "MULTIPLE", "MULTIPLE_STRIDES", "MULTIPLE_C")
    return tuple(given[name] for name in names)  # type: ignore[return-value]


def halves(*extents: int) -> torch.Tensor:
    """Aligned as PyTorch aligns."""
    return torch.zeros(extents, dtype=torch.float16)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (halves(64, 64), halves(64, 64), ("kn", 16, 16, 16)),
        (halves(64, 1000), halves(1000, 1000), ("kn", 16, 16, 16)),
        (halves(64, 64).T, halves(64, 64).T, ("mk", 16, 16, 16)),
        (halves(64, 68), halves(68, 64), ("kn", 8, 8, 16)),
        (halves(64, 65), halves(65, 66), ("kn", 2, 2, 4)),
        (halves(64, 64)[:, :50], halves(64, 64)[:50], ("kn", 4, 16, 16)),
        (halves(65, 64)[:, 1:], halves(63, 64), ("kn", 2, 2, 16)),
        (halves(64, 64)[:, ::2], halves(32, 64), (".n", 2, 2, 16)),
        (halves(1, 64), halves(64, 8), ("kn", 16, 16, 16)),
        (halves(2, 8, 65)[:, :, :64], halves(64, 64), ("kn", 2, 2, 16)),
    ],
)
def test_contract(a: torch.Tensor, b: torch.Tensor, expected: tuple[str, int, int, int]) -> None:
    """The contract is what strides, addresses and extents have in common, at most 16 bytes."""
    assert contract(a, b) == expected


def made(a: torch.Tensor, b: torch.Tensor) -> Product:
    """Bring operands into `matmul`'s layout."""
    with torch.no_grad():
        return product("matmul", a, b, None, "none")


@pytest.fixture
def _host_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy on the host, where no kernel can be launched."""

    def framed(x: torch.Tensor, size: tuple[int, int, int], _: tuple[int, int]) -> torch.Tensor:
        copy = x.new_zeros(x.shape[0], *size)
        copy[:, : x.shape[2], : x.shape[3], 0] = x[:, 0]
        return copy

    monkeypatch.setattr(_gemm_host, "framed", framed)


@pytest.mark.usefixtures("_host_copies")
def test_large_operands_are_laid_out_again() -> None:
    """Rows at odd places are copied to multiples of 16 bytes where the product is worth it."""
    a, b = halves(2001, 2003).to("meta"), halves(2003, 1999).to("meta")
    laid, small = made(a, b), made(a[:4], b[:, :64])
    assert laid.a.shape == (1, 2001, 2003)
    assert laid.a.stride()[1:] == (2008, 1)
    assert laid.b.stride()[1:] == (2000, 1)
    assert small.a.stride()[1:] == (2003, 1)
    a, b = torch.randn(512, 511).half(), torch.randn(511, 512).half()
    laid = made(a, b)
    assert torch.equal(laid.a[0], a)
    assert torch.equal(laid.b[0], b)
    assert laid.a.stride()[1:] == (512, 1)
    assert made(a.T.contiguous().T, b).arguments(halves(1, 512, 512))["LAYOUT"] == "mn"


def test_large_operands_of_other_sizes_than_16_bits_become_dense_along_k() -> None:
    """Tensor cores turn halves round, and neither fp32 nor 8 bits: those are copied first."""
    a, b = torch.randn(512, 1024), torch.randn(1024, 512)
    laid = made(a, b)
    assert laid.a.data_ptr() == a.data_ptr()
    assert torch.equal(laid.b[0], b)
    assert laid.b.stride()[1:] == (1, 1024)
    turned = made(a.T.contiguous().T, b.T.contiguous().T)
    assert torch.equal(turned.a[0], a)
    assert turned.arguments(torch.empty(1, 512, 512))["LAYOUT"] == "kk"
    assert made(a[:4, :8], b[:8, :4]).arguments(torch.empty(1, 4, 4))["LAYOUT"] == "kn"


def artifact(settings: Settings, target: Target, shape: dict[str, int], **values: Any) -> Artifact:
    """The kernel compiled for a shape, without a GPU."""
    problem = matmul.problem(shape, "fp16", "meta")
    plain = {"LOADS": "pointers", "PERSISTENT": False, "SPLIT_K": 1, **TILE}
    return artifact_of(problem, Config({**plain, **values}, num_warps=8), settings, target)


def test_rows_that_are_no_multiple_of_16_are_loaded_in_vectors(
    settings: Settings, target: Target
) -> None:
    """1000 x 1000 x 1000 is copied 16 bytes at a time, and spills nothing."""
    found = artifact(settings, target, SHAPE)
    assert "cp.async.cg.shared.global" in found.outputs["ptx"]
    assert "ld.global.b16" not in found.outputs["ptx"]
    assert "st.global.v4.b32" in found.outputs["ptx"]
    assert read_cubin(found.cubin).spill_words == 0


@pytest.mark.slow(seconds=1)
def test_variants_are_what_they_say(settings: Settings, target: Target) -> None:
    """Descriptors bring in the copy engine, and a split sum an atomic with both orders."""
    described = artifact(settings, target, SHAPE, LOADS="descriptors").outputs["ptx"]
    assert "cp.async.bulk.tensor" in described
    assert "cp.async.cg.shared.global" not in described
    split = artifact(settings, target, SHAPE, SPLIT_K=4).outputs["ptx"]
    assert "atom.global.gpu.acq_rel.add" in split
    assert "atom.global" not in described


@pytest.mark.parametrize("shape", [*matmul.SHAPES, *linear.SHAPES])
def test_space_keeps_to_its_memory(shape: dict[str, int]) -> None:
    """Every split fits the memory for its parts, also at the most rows of the key."""
    problem = matmul.problem(shape, "fp16", "meta")
    memory = problem.arguments["sums_ptr"].nbytes
    assert memory <= SUMS_BYTES
    rows = 1 << (shape["M"] - 1).bit_length()
    for config in matmul.space().configs(**problem.shape):
        v = config.kwargs
        tiles = shape["batch"] * -(-rows // v["BLOCK_M"]) * -(-shape["N"] // v["BLOCK_N"])
        if v["SPLIT_K"] > 1:
            assert tiles <= MOST_COUNTS
            assert tiles * v["SPLIT_K"] * v["BLOCK_M"] * v["BLOCK_N"] * 4 <= memory


def test_linear_is_the_same_kernel() -> None:
    """A linear layer launches matmul's kernel on the transposed weight, for all leading axes."""
    assert linear.kernel is matmul.kernel
    assert linear._tuned is matmul._tuned
    problem = linear.problem({**SHAPE, "batch": 2}, "bf16", "meta")
    assert problem.arguments["LAYOUT"] == "kk"
    assert problem.arguments["M"] == 2000
    assert problem.arguments["ACTIVATION"] == "gelu"


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_what_is_tuned_beforehand_is_what_a_call_launches(dtype: str) -> None:
    """The key has the layout, and beside cuBLAS operands are copied for more work only."""
    sizes = {"batch": 1, "M": 512, "N": 511, "K": 1001}
    a, b = matmul.inputs(sizes, dtype, "meta").values()
    x = linear.inputs(sizes, dtype, "meta")
    for module, operands in ((matmul, (a, b)), (linear, (x["x"], x["weight"].mT))):
        called = product("matmul", *operands, None, "none", vendor=True)
        given = called.arguments(called.result())
        tuned = module.problem(sizes, dtype, "meta").arguments
        names = ("LAYOUT", "MULTIPLE", "MULTIPLE_STRIDES", "MULTIPLE_C")
        assert [tuned[name] for name in names] == [given[name] for name in names]


@pytest.mark.parametrize("setting", ["ieee", "tf32"])
def test_cublas_multiplies_fp32_as_our_kernel_does(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tf32 while cuBLAS is called, also if that raises, and as the user has set it after."""
    products, seen = torch.backends.cuda.matmul, []

    def multiply(*_: Any, out: torch.Tensor) -> None:
        seen.append(products.fp32_precision)
        raise RuntimeError("no kernel")

    monkeypatch.setattr(torch, "mm", multiply)
    before = products.fp32_precision
    try:
        products.fp32_precision = setting
        for dtype in (torch.float32, torch.float16):
            a, b, c = (torch.ones(1, 2, 2, dtype=dtype) for _ in range(3))
            with pytest.raises(RuntimeError, match="no kernel"):
                by_cublas(a, b, None, c, "none")
            assert products.fp32_precision == setting
    finally:
        products.fp32_precision = before
    assert seen == ["tf32", setting]


def test_threads_agree_on_tf32() -> None:
    """The setting is as before when the last of two threads that overlap has left, not earlier."""
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    first, second = as_tf32(torch.float32), as_tf32(torch.float32)
    try:
        products.fp32_precision = "ieee"
        for step in (first.__enter__, second.__enter__):
            step()
        first.__exit__(None, None, None)
        between = products.fp32_precision
        second.__exit__(None, None, None)
        assert (between, products.fp32_precision) == ("tf32", "ieee")
    finally:
        products.fp32_precision = before


@pytest.mark.parametrize("operand", ["a", "b"])
def test_cublas_gets_rows_of_fp8_that_do_not_overlap(
    operand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What shares the key of a dense operand, and is expanded, is copied for `_scaled_mm`."""
    scaled = torch._scaled_mm

    def multiply(a: torch.Tensor, b: torch.Tensor, *scales: Any, **options: Any) -> torch.Tensor:
        assert a.stride() == b.mT.stride() == (64, 1)
        return scaled(a, b, *scales, **options)

    monkeypatch.setattr(torch, "_scaled_mm", multiply)
    rows = {name: torch.randn(32, 64).to(torch.float8_e4m3fn) for name in "ab"}
    rows[operand] = rows[operand][:1].expand(32, 64)
    a, b, c = rows["a"], rows["b"].mT, torch.empty(1, 32, 32, dtype=torch.float16)
    by_cublas(a[None], b[None], None, c, "none")
    assert torch.allclose(c[0].float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
