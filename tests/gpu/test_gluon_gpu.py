"""Gluon kernels on a real GPU: what they compute, tuned, stored and found by another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune.base.settings import Settings
from asmtune.compile.load import load
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.shipped import load_target, match_device
from asmtune.core.kernel_module import import_module
from asmtune.core.records.artifacts import Artifact
from asmtune.runtime.decorator import asm_autotune, reconfigure
from asmtune.runtime.patching.redirect import patch
from asmtune.store.database import Store
from tests import gluon_kernels as kernels

ROOT = Path(__file__).parents[2]
GEMM = ROOT / "examples" / "gluon_matmul.py"
HOPPER = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="the GEMM's instructions are Hopper's",
)
SHAPES = [  # of three specialisations: no multiples of 16, multiples, ones
    (17, 33, 65), (129, 257, 191), (1000, 520, 200), (200, 1000, 3),
    (64, 64, 64), (2048, 16, 2064), (1, 1, 1),
]  # fmt: skip


@pytest.fixture
def gemm() -> Any:
    """The example's module."""
    return import_module(str(GEMM))


def width(columns: int) -> int:
    """Round a row's numbers of 2 bytes up to whole units of 16 bytes."""
    return triton.cdiv(columns, 8) * 8


def largest_error(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest error over what rounding to the dtype and the sum's order explain."""
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    unit = torch.finfo(c.dtype).eps / 2
    allowed = 1.01 * unit * exact.abs() + 2**-18 * size + torch.finfo(c.dtype).tiny
    return float(((c.double() - exact).abs() / allowed).max())


@HOPPER
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_configs_of_the_gemm_multiply(dtype: torch.dtype, gemm: Any, cache_dir: Path) -> None:
    """Each of the 24 computes every shape as exactly as float64 rounded, and writes no more."""
    target = match_device(torch.cuda.get_device_name()) or load_target("H200")
    settings = Settings(cache_dir=cache_dir)
    for m, n, k in SHAPES:
        # Behind each row stands what a copy must not bring in.
        a, b = (
            torch.full((rows, width(columns) + 8), torch.nan, device="cuda", dtype=dtype)[
                :, :columns
            ].normal_()
            for rows, columns in ((m, k), (k, n))
        )
        guarded = torch.full((m + 1, width(n) + 8), 7.0, device="cuda", dtype=dtype)
        c = guarded[:m, :n]
        made = gemm.arguments(a, b, c)
        problem = gemm.Problem(gemm.kernel, made, gemm.grid, {"M": m, "N": n, "K": k})
        lowering = Lowering(problem, target, 30)
        for config in gemm.space():
            guarded.fill_(7.0)
            request = lowering.request(config)
            artifact = compile_one(request, settings)
            assert isinstance(artifact, Artifact), artifact
            launch = load(lowering, config, artifact)
            launch.prepare()
            launch.run()
            torch.cuda.synchronize()
            assert largest_error(c, a, b) <= 1.0, (m, n, k, config)
            assert bool((guarded[m:] == 7).all()), (m, n, k, config)
            # TMA stores whole units of 16 bytes (measured on an H100): rows of C own theirs.
            assert bool((guarded[:, width(n) :] == 7).all()), (m, n, k, config)


def test_a_gluon_kernel_is_tuned_on_any_gpu(cache_dir: Path) -> None:
    """A plain one tunes under the decorator and under a patch of `triton.autotune`."""
    x = torch.randn(100_003, device="cuda")
    y = torch.empty_like(x)
    own = asm_autotune(space=kernels.scale_space, key=["n"], skip_tuning_below_us=None)(
        kernels.scale
    )
    own[kernels.blocks](x, y, x.numel())
    assert torch.equal(y, 2 * x)
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 2048)]
    with patch(skip_tuning_below_us=None):
        patched = triton.autotune(configs, key=["columns"])(kernels.row_sum)
        sums = torch.empty(100, device="cuda")
        rows = torch.randn(100, 5001, device="cuda")
        patched[(100,)](rows, sums, 5001)
    assert torch.allclose(sums, rows.sum(1), rtol=1e-4, atol=1e-3)
    with Store.open(cache_dir / "store.sqlite") as store:
        assert len(list(store.records())) == 2


@HOPPER
def test_warps_that_hand_tiles_on_are_tuned(cache_dir: Path) -> None:
    """A kernel whose warps divide the work among them is tuned in a process of its own too."""
    x = torch.randn(1000, 64, device="cuda").half()
    for isolate in (False, True):
        y = torch.zeros_like(x)
        described = [kernels.descriptor(tensor, [64, 64]) for tensor in (x, y)]
        own = asm_autotune(
            space={"BLOCK": [64], "num_warps": [4, 8]},
            key=["n"],
            skip_tuning_below_us=None,
            isolate=isolate,
        )(kernels.passed_on)
        reconfigure(own, force=True)
        own[(1,)](*described, 1000)
        assert torch.equal(x, y)
