"""Hard rules drop what the compiler or the driver refuses, and nothing that runs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.sandbox import Sandbox
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.verdicts import Features, Reason
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.costs import Dot
from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.rules import broken_rules
from asmtune.predict.score.scorer import Candidate
from tests.compile.making import compiled_in
from tests.sample_kernels import product, product_problem, scale_problem, tensor

ORACLE = Path(__file__).parents[3] / "shared" / "oracle" / "h200.json.gz"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A child for the compiles of this module."""
    sandbox = Sandbox(1 << 34)
    yield sandbox
    sandbox.close()


@triton.jit
def half_product(
    a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Compute as `product` does, accumulated in 16 bits."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float16)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth[:, None]) * N + cols[None, :])
        acc = tl.dot(a, b, acc, out_dtype=tl.float16)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


def judge(
    problem: Problem, config: Config, machine: Target, sandbox: Sandbox
) -> tuple[list[str], Artifact | Failure]:
    """The rules that a config breaks before it is compiled, and what the compiler says."""
    request = Lowering(problem, machine, 30).request(config)
    assert isinstance(request, LowerRequest), request
    candidate = Candidate(config, machine, Kernel(request.ttir).dots)
    broken = [
        *broken_rules(candidate, "config", hard=True),
        *broken_rules(candidate, "ir", hard=True),
    ]
    return [reason.rule for reason in broken], compiled_in(sandbox, request, 60)


TILES = [
    (32, 128, 4, 0),
    (64, 16, 4, 16),
    (64, 32, 4, 32),
    (64, 64, 4, 64),
    (64, 128, 8, 64),
    (64, 256, 4, 256),
    (64, 256, 8, 128),
    (128, 64, 8, 64),
    (128, 128, 4, 128),
    (128, 256, 8, 256),
    (256, 128, 16, 128),
    (128, 128, 16, 64),
]
"""BLOCK_M, BLOCK_N, warps, and the columns of the wgmma that Triton takes (0 for mma.sync)."""


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "warps", "columns"), TILES)
@pytest.mark.parametrize(("kernel", "bits"), [(product, 32), (half_product, 16)])
def test_accumulators_are_exact(
    kernel: Any, bits: int, m: int, n: int, warps: int, columns: int, sandbox: Sandbox
) -> None:
    """At the least cap that the rule lets through ptxas succeeds, and one below it fails."""
    problem, hopper = Problem(kernel, product_problem().arguments, (1,)), load_target("H200")
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64}
    least = columns * bits // 64 + 26 if columns else 40
    for cap, fits in ((least, True), (least - 1, False)):
        config = Config(tile, num_warps=warps, maxnreg=cap)
        broken, outcome = judge(problem, config, hopper, sandbox)
        fits = fits or not columns
        assert broken == ([] if fits else ["accumulators"])
        assert isinstance(outcome, Artifact) == fits, outcome
        if isinstance(outcome, Artifact) and columns:
            assert f"wgmma.mma_async.sync.aligned.m64n{columns}k16" in outcome.outputs["ptx"]


@pytest.mark.parametrize("kernel", ["gemm", "gemm_bias_gelu"])
def test_accumulators_against_a_gpu(kernel: str) -> None:
    """On every config of the recorded GEMMs the rule tells exactly those that failed."""
    if not ORACLE.is_file():
        pytest.skip(f"no recorded timings at {ORACLE}")
    tasks = json.loads(gzip.decompress(ORACLE.read_bytes()))["tasks"]
    rows = next(task["rows"] for task in tasks if task["kernel"] == kernel)
    hopper, operand = load_target("H200"), "f16" if kernel == "gemm" else "bf16"
    told: Counter[tuple[bool, bool]] = Counter()
    for row in rows:
        config = Config.from_dict(row["config"])
        m, n, k = (config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        candidate = Candidate(config, hopper, (Dot(m, n, k, 1, operand, "f32"),))
        told[bool(broken_rules(candidate, "ir", hard=True)), "error" in row] += 1
    assert set(told) == {(False, False), (True, True)}


@triton.jit
def _shallow(a_ptr, b_ptr, c_ptr, K: tl.constexpr):
    at, depth = tl.arange(0, 64), tl.arange(0, K)
    a = tl.load(a_ptr + at[:, None] * K + depth[None, :])
    b = tl.load(b_ptr + depth[:, None] * 64 + at[None, :])
    tl.store(c_ptr + at[:, None] * 64 + at[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int8]
)
@pytest.mark.parametrize("k", [8, 16, 32])
def test_depth_against_the_compiler(dtype: torch.dtype, k: int, sandbox: Sandbox) -> None:
    """Whatever the depth and the dtype, a config that compiles does not break the rule."""
    pointers = {"a_ptr": tensor(dtype), "b_ptr": tensor(dtype), "c_ptr": tensor(torch.float32)}
    problem = Problem(_shallow, {**pointers, "K": k}, (1,))
    for name in ("A100", "H200"):
        request = Lowering(problem, load_target(name), 30).request(Config({}))
        if isinstance(request, LowerRequest):
            broken, outcome = judge(problem, Config({}), load_target(name), sandbox)
            assert broken == [] or isinstance(outcome, Failure)


SHALLOW = {8: "f16", 24: "bf16", 16: "f8E4M3FN"}
DEEP = {16: "f16", 32: "f8E5M2", 48: "f4E2M1FN", 8: "f32"}


def test_depth_by_hand() -> None:
    """256 bits of K at once for 8 and 16 bits; packed 4-bit and 32-bit ones may have less."""
    for depths, breaks in ((SHALLOW, True), (DEEP, False)):
        for k, operand in depths.items():
            dots = (Dot(64, 32, k, 1, operand, "f32"),)
            candidate = Candidate(Config({}), load_target("A100"), dots)
            reasons = broken_rules(candidate, "ir", hard=True)
            assert [reason.rule for reason in reasons] == ["tensor_depth"] * breaks, operand
            assert all(f"K={k} of the 64x32 dot" in reason.text for reason in reasons)


def test_threads() -> None:
    """1,024 threads are allowed, more are not, whatever the kernel."""
    hopper = load_target("H200")
    assert broken_rules(Candidate(Config({}, num_warps=32), hopper), "config", hard=True) == ()
    assert broken_rules(Candidate(Config({}, num_warps=64), hopper), "config", hard=True) == (
        Reason("threads", "64 warps are 2048 threads, over 1024 a program"),
    )


def test_a_cap_over_the_limit_runs(sandbox: Sandbox) -> None:
    """A cap that no thread can reach compiles, so that it is remarked on and not dropped."""
    config, hopper = Config({"BLOCK": 256}, maxnreg=256), load_target("H200")
    broken, outcome = judge(scale_problem(), config, hopper, sandbox)
    assert broken == []
    assert isinstance(outcome, Artifact)
    remarks = broken_rules(Candidate(config, hopper), "assembly", hard=False)
    assert [remark.rule for remark in remarks] == ["register_cap"]
    below = Candidate(Config({}, maxnreg=255), hopper)
    assert broken_rules(below, "assembly", hard=False) == ()


def features(**values: float) -> Features:
    """All features at zero, one program by registers, but for those given."""
    return Features({**dict.fromkeys(FEATURES, 0.0), "programs_per_sm_by_registers": 1.0, **values})


LIMIT = load_target("H200").shared_bytes_per_block


def test_what_assembly_tells() -> None:
    """A limit that is reached is allowed and one that is passed is not; spills are a remark."""
    crowded = {"programs_per_sm_by_registers": 0.0, "regs_per_thread": 168.0}
    for values, hard, says in (
        ({"shared_bytes": LIMIT}, True, ""),
        ({"shared_bytes": LIMIT + 1.0}, True, "shared_memory: 232,449 bytes"),
        (crowded, True, "registers: 168 registers a thread in 16 warps"),
        ({"spill_words": 12.0}, True, ""),
        ({"spill_words": 12.0}, False, "spills: 12 words a thread"),
    ):
        own = features(**values)
        candidate = Candidate(Config({}, num_warps=16), load_target("H200"), features=own)
        reasons = broken_rules(candidate, "assembly", hard=hard)
        assert len(reasons) == bool(says), values
        assert all(str(reason).startswith(says) for reason in reasons)
