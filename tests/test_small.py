"""Which launches are too small to tune, and the config that they get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

import asmtune
from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import LAUNCH_US, Target, dram_rate
from asmtune.core.hardware.shipped import load_target, target_names
from asmtune.core.problem import Problem
from asmtune.core.size_rules import gemm, untuned_config
from asmtune.core.space.space import Space
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.small import HOST, arguments_us, limit_us, small_us, work_us
from tests import tuning_support

H200 = load_target("H200")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@triton.jit
def tile(a_ptr, b_ptr, at, K, BLOCK_K: tl.constexpr):
    """Sum the products of a tile."""
    acc = tl.zeros((16, 16), tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptr + at + k), tl.load(b_ptr + at + k), acc)
    return acc


@triton.jit
def product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply in a function that it calls."""
    at = tl.arange(0, 16)[:, None] + tl.arange(0, 16)[None, :]
    tl.store(c_ptr + at, tile(a_ptr, b_ptr, at, K, BLOCK_K))


@triton.jit
def all_pairs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Sum over all others for each element: few bytes, and much to do."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    total = tl.zeros((BLOCK,), tl.float32)
    for other in range(n):
        total += tl.exp(x - tl.load(x_ptr + other))
    tl.store(out_ptr + at, total)


def multiplied(m: int, n: int, k: int, dtype: str = "fp16") -> Problem:
    """A GEMM."""
    a, b, c = (
        torch.empty(shape, dtype=DTYPES[dtype], device="meta") for shape in ((m, k), (k, n), (m, n))
    )
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k}
    grid = lambda v: (triton.cdiv(m, v["BLOCK_M"]) * triton.cdiv(n, v["BLOCK_N"]),)  # noqa: E731
    return Problem(product, arguments, grid, {"M": m, "N": n, "K": k})


def pairs(n: int) -> Problem:
    """A sum over all pairs of n."""
    x, out = torch.empty(2, n, device="meta")
    return Problem(all_pairs, {"x_ptr": x, "out_ptr": out, "n": n}, (n // 128,), {"n": n})


def untold() -> Work | None:
    """Stand for TTIR that is not needed."""
    raise AssertionError("TTIR was asked for")


@pytest.mark.parametrize(
    ("side", "expected"), [(256, True), (512, True), (1024, False), (4096, False)]
)
def test_products_by_their_sizes(side: int, expected: bool, monkeypatch: Any) -> None:
    """GEMMs of 256 and 512 cubed are small on an H200, 1024 is not; nothing else is looked at."""
    monkeypatch.setattr(ProblemAnalysis, "work", untold)
    assert (small_us(multiplied(side, side, side), H200, HOST, untold) is not None) is expected


sizes = st.integers(0, 13).flatmap(lambda power: st.integers(2**power, 2 ** (power + 1)))


@given(st.tuples(sizes, sizes, sizes), st.tuples(sizes, sizes, sizes), st.sampled_from([*DTYPES]))
def test_a_larger_launch_is_not_smaller(
    one: tuple[int, ...], more: tuple[int, ...], dtype: str
) -> None:
    """A product whose sizes are no less takes no less, so that none is small above a tuned one."""
    larger = [a + b for a, b in zip(one, more, strict=True)]
    us, larger_us = (arguments_us(multiplied(*s, dtype=dtype), H200) for s in (one, larger))
    assert us <= larger_us


@given(sizes, sizes)
def test_more_elements_take_no_less(n: int, more: int) -> None:
    """A kernel without loop or product goes by its bytes."""
    us, larger = (
        arguments_us(Problem(tuning_support.add, arguments(size), (1,)), H200)
        for size in (n, n + more)
    )
    assert us <= larger
    rate = H200.measured_dram_bytes_per_s
    assert rate is not None
    assert us == pytest.approx(LAUNCH_US + 8 * n / rate * 1e6)


def arguments(n: int) -> dict[str, Any]:
    """Two vectors."""
    x, y = torch.empty(2, n, device="meta")
    return {"x_ptr": x, "y_ptr": y}


def test_the_limit_grows_with_the_parameters() -> None:
    """By "host", a kernel of more parameters may run longer; a number is the limit itself."""
    few, many = pairs(1024), multiplied(512, 512, 512)
    assert limit_us(few, HOST) < limit_us(many, HOST)
    assert limit_us(many, 4.0) == 4.0
    assert small_us(many, H200, 4.0, untold) is None


@pytest.fixture
def funnel(empty_settings: Settings) -> Funnel:
    """A funnel with an empty cache."""
    return Funnel(H200, make_scorer("roofline"), empty_settings)


@pytest.mark.parametrize(("n", "expected"), [(128, True), (1 << 18, False)])
def test_loops_by_their_ttir(funnel: Funnel, n: int, expected: bool) -> None:
    """Few bytes and a long loop are not small: the default's TTIR tells what is done."""
    problem = pairs(n)
    asked: list[Work] = []

    def work() -> Work | None:
        found = funnel.front(problem).work(Config({"BLOCK": 128}))
        assert isinstance(found, Work)
        asked.append(found)
        return found

    assert (small_us(problem, H200, HOST, work) is not None) is expected
    (done,) = asked
    cycles = sum(n / (16 if kind == "special" else 128) for kind, n in done.elements.items())
    cycles *= max(1.0, done.programs / 132)
    seconds = cycles / H200.clock_hz + 8 * n / dram_rate(H200)
    assert work_us(done, H200) == pytest.approx(LAUNCH_US + 1e6 * seconds)
    assert small_us(problem, H200, HOST, lambda: None) is None
    assert small_us(problem, H200, HOST, lambda: Work.unread((1, 1, 1))) is None


SPACE = Space(
    {
        "BLOCK_M": (16, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (8, 4),
        "num_stages": (2, 3, 4, 5),
    }
)


@pytest.mark.parametrize("side", [256, 1024, 4096])
def test_a_product_s_space_takes_the_rule(side: int) -> None:
    """The rule's config is taken where the space has it, else the nearest there."""
    problem, wanted = multiplied(side, side, side), gemm(side, side, side, "fp16", "H200")
    assert untuned_config(problem, SPACE, H200) == wanted
    narrow = SPACE.replace(BLOCK_M=(16, 32))
    near = untuned_config(problem, narrow, H200)
    assert near.kwargs == {**wanted.kwargs, "BLOCK_M": 32}
    assert near.num_warps == wanted.num_warps


def test_other_spaces_take_the_default() -> None:
    """A space without a product's blocks gives the first config that has a grid."""
    add = tuning_support.problem(4096)
    assert untuned_config(add, tuning_support.space(), H200) == tuning_support.DEFAULT
    many = Problem(add.kernel, add.arguments, lambda v: (1, 70_000 // v["BLOCK"]), {"n": 4096})
    first = untuned_config(many, Space({"BLOCK": (1, 2, 4), "FLAW": (0,)}), H200)
    assert first.kwargs["BLOCK"] == 2


@given(sizes, sizes, sizes, st.sampled_from(["fp16", "bf16", "fp32", "fp8e4nv", "i8", "fp64"]))
def test_the_rule_fits_its_device(m: int, n: int, k: int, dtype: str) -> None:
    """Operands of all stages fit the shared memory of each device."""
    bits = {"fp32": 32, "fp64": 64, "fp8e4nv": 8, "i8": 8}.get(dtype, 16)
    for target in TARGETS:
        config = gemm(m, n, k, dtype, target)
        blocks = config.kwargs
        depth = blocks["BLOCK_K"] * config.num_stages
        shared = (blocks["BLOCK_M"] + blocks["BLOCK_N"]) * depth * bits // 8
        assert config.num_stages >= 1
        assert shared <= target.shared_bytes_per_block


TARGETS: list[Target] = [load_target(name) for name in target_names()]


def test_bad_use_of_the_rule() -> None:
    """It says what it takes; it is found by its public name."""
    assert asmtune.rules.gemm is gemm
    with pytest.raises(InputError, match="gemm: N is 0; expected a whole number above 0"):
        gemm(64, 0, 64, "fp16", H200)
    with pytest.raises(InputError, match="gemm: no rule for dtype i64; give one of fp64, "):
        gemm(64, 64, 64, "int64", H200)
