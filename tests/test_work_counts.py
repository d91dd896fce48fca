"""What a launch asks for, by the IR of real kernels, against arithmetic done by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.work_counts import WorkCounts
from asmtune.workshop.roofline.chart import Load
from tests.sample_kernels import product_problem, row_sum_problem, scale_problem, tensor

CountsOf = Callable[..., WorkCounts]

TILE = Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32})


@triton.jit
def copied(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Move elements; no arithmetic but that of addresses."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def counted(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Add up integers."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at), 0))


@triton.jit
def bounded(x_ptr, ends_ptr, y_ptr, BLOCK: tl.constexpr):
    """Sum as many blocks as a number in memory says."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, tl.load(ends_ptr), BLOCK):
        total += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, BLOCK), total)


@triton.jit
def multiplied(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """Compute one product."""
    at = tl.arange(0, SIZE)
    square = at[:, None] * SIZE + at[None, :]
    c = tl.dot(tl.load(a_ptr + square), tl.load(b_ptr + square), input_precision=PRECISION)
    tl.store(c_ptr + square, c)


@pytest.fixture(scope="session")
def counts_of(settings: Settings, target: Target) -> CountsOf:
    """The counts of a config's launch on an H200."""

    def made(problem: Problem, config: Config, machine: Target = target) -> WorkCounts:
        front = Funnel(machine, make_scorer("roofline"), settings).front(problem)
        (work,) = front.works([config])
        return WorkCounts.of(work, machine, problem.dtypes.values())

    return made


def test_a_product(counts_of: CountsOf) -> None:
    """1024 cubed in fp16: 2 M N K on the tensor cores, each matrix moved once."""
    problem = product_problem()
    found = counts_of(problem, TILE)
    assert (found.unit, found.flops) == ("fp16", 2 * 1024**3)
    # Tensors of the sample hold 4,096 numbers, whatever the sizes.
    assert found.bytes == 3 * 4096 * 2
    assert found.assumed == ()


@pytest.mark.parametrize(
    ("machine", "dtype", "precision", "unit"),
    [
        ("H200", torch.int8, "tf32", "int8"),
        ("H200", torch.float8_e5m2, "tf32", "fp8"),
        ("A100", torch.float8_e5m2, "tf32", "fp16"),  # Triton widens it
        ("H200", torch.float32, "tf32", "tf32"),
        ("H200", torch.float32, "ieee", "fp32"),
    ],
)
def test_the_cores_follow_the_operands(
    counts_of: CountsOf, machine: str, dtype: torch.dtype, precision: str, unit: str
) -> None:
    """Each type has its roof; 32-bit floats in full precision are the ordinary cores' work."""
    pointers = {name: tensor(dtype) for name in ("a_ptr", "b_ptr")}
    pointers["c_ptr"] = tensor(torch.int32 if dtype == torch.int8 else torch.float32)
    problem = Problem(multiplied, {**pointers, "SIZE": 64, "PRECISION": precision}, (1,))
    found = counts_of(problem, Config({}), load_target(machine))
    assert (found.unit, found.flops) == (unit, 2 * 64**3)


def test_elements(counts_of: CountsOf) -> None:
    """A multiplication an element; a sum is one for each element added, reductions included."""
    assert counts_of(scale_problem(), Config({"BLOCK": 1024})).flops == 4096
    assert counts_of(scale_problem(), Config({"BLOCK": 1024})).unit == "fp32"
    # 16 programs add 4096 numbers to 256 sums, and then these.
    assert counts_of(row_sum_problem(), Config({"BLOCK": 256})).flops == 16 * (4096 + 256)


def test_no_flops(counts_of: CountsOf) -> None:
    """A copy of floats, and a sum of integers, do none; their bytes count."""
    pointers = {"x_ptr": tensor(torch.float32), "y_ptr": tensor(torch.float32)}
    copy = counts_of(Problem(copied, {**pointers, "n": 4096}, (4,)), Config({"BLOCK": 1024}))
    assert (copy.flops, copy.bytes) == (0.0, 2 * 4096 * 4)
    pointers = {"x_ptr": tensor(torch.int32), "y_ptr": tensor(torch.int32)}
    total = counts_of(Problem(counted, pointers, (4,)), Config({"BLOCK": 1024}))
    assert total.flops == 0.0
    assert Load.common([copy, total]).intensity is None


def test_a_loop_that_only_memory_ends(counts_of: CountsOf) -> None:
    """Its trips are assumed to read its operand once, and what was assumed is said."""
    pointers = {"x_ptr": tensor(torch.float32), "y_ptr": tensor(torch.float32, 256)}
    problem = Problem(bounded, {**pointers, "ends_ptr": tensor(torch.int32, 1)}, (1,))
    found = counts_of(problem, Config({"BLOCK": 256}))
    assert found.flops == 4096
    (said,) = found.assumed
    assert said.endswith(": 16 trips assumed")
    assert "a loop that cannot be evaluated (loaded from memory)" in said


def test_what_is_common_is_the_least() -> None:
    """Padding of one config moves no point; a config of which nothing is known counts for none."""
    lean, padded = WorkCounts("fp16", 100.0, 5.0, 10.0), WorkCounts("fp16", 160.0, 9.0, 8.0)
    unread = WorkCounts("fp32", 0.0, 0.0, 0.0)
    assert Load.common([lean, padded, unread]) == Load(100.0, 8.0)
    assert Load.common([unread]) == Load(0.0, 0.0)
    # The same work on other cores: a product by the ordinary ones.
    assert Load.common([padded, WorkCounts("fp32", 0.0, 120.0, 9.0)]).flops == 120.0
