"""The Gluon kernels for Hopper: numbers, orders of partitions, machine code, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import triton

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import (
    _hopper_attention,
    _hopper_attention_backward,
    _hopper_gemm,
    _hopper_gemm_walk,
    attention,
    matmul,
)
from asmtune.kernels._attention_spec import backward_inputs
from asmtune.report.code import disassemble
from asmtune.runtime.options import numbers
from tests.interpreter import Interpreter
from tests.kernels.gluon_machine import Machine, MachineError
from tests.kernels.gluon_values import tile
from tests.kernels.hopper_runs import (
    attend,
    differentiate,
    gelu,
    multiply,
    multiply_scaled,
    product,
)
from tests.kernels.interleavings import Interleavings
from tests.kernels.made import artifact_of
from tests.pinned import same_triton

TILE = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "STAGES": 2, "PIECES": 1, "GROUP_M": 8}
TOGETHER = {**TILE, "PINGPONG": False, "CONSUMERS": 2, "SPLIT_K": 1}
IN_TURN = {**TOGETHER, "BLOCK_M": 64, "PINGPONG": True}
THREE = {**TOGETHER, "BLOCK_M": 192, "CONSUMERS": 3}
TWO = {"BLOCK_N": 64, "STAGES": 2, "CONSUMERS": 2}
SCALED = {"BLOCK_M": 128, "BLOCK_N": 16, "PER_SM": 1, "STAGES": 2, "GROUP_M": 8, "PINGPONG": False}
SCALED_IN_TURN = {**SCALED, "BLOCK_M": 64, "PINGPONG": True}
ROW, BLOCK = (1, 1, 0), (1, 128, 128)


def gemm_context(M: int, N: int, dense: str, K: int = 4096) -> dict[str, Any]:
    """Return what constraints may name of a launch on an H200."""
    a, b, c = (torch.empty(1, *x, device="meta").half() for x in ((M, K), (K, N), (M, N)))
    b = b if dense == "n" else torch.empty(1, N, K, device="meta").half().mT
    return numbers(_hopper_gemm.arguments(a, b, c))


def gemms(dense: str) -> list[Mapping[str, Any]]:
    """Return the configs of large products, in one order of tiles."""
    configs = _hopper_gemm.space().configs(**gemm_context(4096, 4096, dense))
    return [config.kwargs for config in configs if config.kwargs["GROUP_M"] == 8]


def heads(B: int, H: int, KV: int, M: int, N: int, D: int, causal: int) -> dict[str, int]:
    """A shape by name."""
    return {"B": B, "H": H, "KV": KV, "M": M, "N": N, "D": D, "causal": causal}


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("dense", ["k", "n"])
def test_products_by_every_config(dense: str) -> None:
    """Each config is right where no extent is a multiple of a tile's, on three programs."""
    for config in gemms(dense):
        error, _ = multiply((2, 150, 264, 200), config, dense, 2, seed=7)
        assert error < 0.04, config
        if config["PIECES"] > 1:
            error, _ = multiply((1, 150, 264, 200), config, dense, 1, finish=True)
            assert error < 0.04, config


def test_gelu_of_all_halves() -> None:
    """Of every fp16 number, GELU is within 0.16 of the last place; of NaN and infinity as exact."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        y = Machine(0, 1, 0).function(_hopper_gemm_walk.gelu_of_halves)(tile(x))
        exact = np.where(np.isneginf(x), np.nan, gelu(x))
        places = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
        off = np.abs(y - exact) / places
    finite = np.isfinite(places)
    assert np.array_equal(y[~finite], exact[~finite], equal_nan=True)
    assert off[finite].max() < 0.16


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_by_blocks_stages_and_warpgroups(causal: int) -> None:
    """Tails, groups of heads, both dims, and more or fewer keys than queries are right."""
    shapes = [
        heads(1, 4, 2, 150, 210, 64, causal),
        heads(2, 1, 1, 200, 64, 64, causal),
        heads(1, 1, 1, 70, 300, 128, causal),
        heads(1, 1, 1, 1, 1, 64, causal),
        heads(1, 1, 1, 192, 256, 128, causal),
    ]
    for block, stages, warpgroups in ((64, 2, 2), (128, 2, 2), (64, 3, 3), (128, 3, 2)):
        config = {"BLOCK_N": block, "STAGES": stages, "CONSUMERS": warpgroups}
        for shape in shapes:
            error, lse_error, _ = attend(shape, config, 2, seed=3)
            assert error < 2e-3, (shape, config)
            assert lse_error < 1e-5, (shape, config)


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("causal", [0, 1])
def test_backward_by_stages(causal: int) -> None:
    """Tails, groups of heads, both dims, and key blocks that no query sees are right."""
    shapes = [
        heads(1, 4, 2, 150, 210, 64, causal),
        heads(2, 1, 1, 200, 64, 128, causal),
        heads(1, 2, 1, 70, 300, 128, causal),
        heads(1, 1, 1, 1, 1, 64, causal),
        heads(1, 2, 1, 320, 256, 128, causal),
    ]
    for stages in (2, 3):
        for shape in shapes:
            errors, _ = differentiate(shape, stages, seed=5)
            assert max(errors.values()) < 1e-3, (shape, stages, errors)


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("dense", ["k", "n"])
def test_split_sums_do_not_depend_on_who_is_last(dense: str) -> None:
    """Parts of unequal length add up, bit by bit the same in any order of the programs."""
    splits = [c.kwargs for c in _hopper_gemm.space().listed if c.kwargs["SPLIT_K"] > 1]
    for config in splits:
        shape = (2, 150, 264, 430)
        forward, exact, _ = product(shape, config, dense, (0, 1, 2), seed=7)
        assert np.array_equal(forward, product(shape, config, dense, (2, 0, 1), seed=8)[0]), config
        assert np.abs(forward - exact).max() < 0.06, config


def test_sums_are_split_where_parts_fill_the_device() -> None:
    """Few tiles with long sums have configs in parts, and memory for each; others have none."""
    space = _hopper_gemm.space()
    for M, N, K in ((128, 6144, 4096), (256, 4096, 14336), (1, 64, 2048), (100, 8192, 1024)):
        splits = [c for c in space.configs(**gemm_context(M, N, "k", K)) if c.kwargs["SPLIT_K"] > 1]
        assert splits
        room = _hopper_gemm._sums_bytes(1, M, N, K, 132)
        for c in (config.kwargs for config in splits):
            parts = -(-M // c["BLOCK_M"]) * -(-N // c["BLOCK_N"]) * c["SPLIT_K"]
            assert parts <= 132
            assert parts * c["BLOCK_M"] * c["BLOCK_N"] * 4 <= room <= 32 << 20
    for M, N, K in ((4096, 4096, 4096), (1, 64, 1016), (128, 128 * 133, 4096)):
        left = space.configs(**gemm_context(M, N, "k", K))
        assert {c.kwargs["SPLIT_K"] for c in left} == {1}
        assert _hopper_gemm._sums_bytes(1, M, N, K, 132) == 0


def test_tiles_that_cannot_help_are_left_out() -> None:
    """Tiles of twice a product's extent, and groups that are the same groups, are not tuned."""
    space = _hopper_gemm.space()
    whole = [c for c in space.listed if c.kwargs["SPLIT_K"] == 1]
    assert len(whole) <= 42
    assert list(space.configs(**gemm_context(4096, 4096, "k"))) == whole
    wide = [c for c in whole if c.kwargs["BLOCK_N"] % 64 == 0]
    assert list(space.configs(**gemm_context(4096, 4096, "n"))) == wide
    for M, N in ((1, 8), (128, 128), (200, 4096), (4096, 200), (1024, 1000)):
        left = [config.kwargs for config in space.configs(**gemm_context(M, N, "k"))]
        assert len(left) <= 42
        assert max(c["BLOCK_M"] for c in left) == (128 if M <= 128 else 256)
        assert max(c["BLOCK_N"] for c in left) == (128 if N <= 128 else 256)
        assert all(8 * c["BLOCK_M"] < M for c in left if c["GROUP_M"] == 16)
        assert M * N > 132 * 64 * 128 or all(c["GROUP_M"] == 8 for c in left)
        assert space.first(**gemm_context(M, N, "n")) == space.default


def test_items_are_dealt_longest_first_and_evenly() -> None:
    """With causal masks no program loads more than a tenth above the mean."""
    shape = heads(1, 6, 6, 640, 640, 64, 1)
    _, _, machines = attend(shape, TWO, 5, together=6)
    loads = [sum(step[0] == "load" for step in machine.agents[-1].steps) for machine in machines]
    assert max(loads) <= 1.1 * sum(loads) / len(loads), loads


def small_runs() -> dict[str, Callable[[], Machine]]:
    """Runs of few steps, with more of them than stages."""
    return {
        "together": lambda: multiply((1, 128, 128, 320), TOGETHER, "k", 1)[1][0],
        "in turn": lambda: multiply((1, 64, 256, 192), IN_TURN, "n", 1)[1][0],
        "three": lambda: multiply((1, 192, 64, 256), THREE, "k", 1)[1][0],
        "together, 192 columns": lambda: multiply(
            (1, 128, 192, 256), {**TOGETHER, "BLOCK_N": 192}, "k", 1
        )[1][0],
        "in turn, 192 columns": lambda: multiply(
            (1, 64, 384, 128), {**IN_TURN, "BLOCK_N": 192, "PIECES": 3}, "n", 1
        )[1][0],
        "attention": lambda: attend(heads(1, 2, 1, 128, 192, 64, 0), TWO, 1)[2][0],
        "backward": lambda: differentiate(heads(1, 2, 2, 256, 128, 64, 0))[1][0],
        "scaled": lambda: multiply_scaled((128, 16, 640), BLOCK, SCALED, 1)[1][0],
        "scaled, halves": lambda: multiply_scaled(
            (128, 256, 384), BLOCK, {**SCALED, "BLOCK_N": 256}, 1
        )[1][0],
        "scaled, in turn": lambda: multiply_scaled((64, 64, 384), BLOCK, SCALED_IN_TURN, 1)[1][0],
        "scaled, fast": lambda: multiply_scaled((64, 64, 384), ROW, SCALED_IN_TURN, 1, fast=True)[
            1
        ][0],
    }


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("name", small_runs())
def test_no_order_races_or_waits_for_ever(name: str) -> None:
    """In every order of partitions and copies each product reads what it did in one."""
    assert Interleavings(small_runs()[name]()).explore() > 1000


def test_what_products_read_is_fenced() -> None:
    """A product that reads what another partition has stored, and not fenced, is refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "fence", lambda _: None)
        with pytest.raises(MachineError, match="is read without a fence"):
            differentiate(heads(1, 1, 1, 64, 128, 64, 0))


def compiled(module: ModuleType, shape: dict[str, int], config: Config, work: Settings) -> str:
    """Compile a launch for an H200; return the machine code as text."""
    return machine_code(module.problem(shape, "bf16", "meta"), config, work)


def machine_code(problem: Problem, config: Config, work: Settings, stack: int = 0) -> str:
    """Compile for an H200, with so many bytes of a stack at most; return the machine code."""
    artifact = artifact_of(problem, config, work, "H200")
    assert artifact.shared_bytes <= 227 << 10
    found = read_cubin(artifact.cubin).stack_bytes
    if found > stack and not same_triton():
        pytest.skip(f"Triton {triton.__version__} keeps {found} bytes of this kernel on a stack")
    assert found <= stack
    code = disassemble(artifact.cubin)
    assert isinstance(code, str), code
    return code


@pytest.mark.slow(seconds=6)
def test_extents_of_one_and_activations_are_lowered() -> None:
    """Numbers that Triton takes as constants, a bias and each activation pass the front end."""
    target, config = load_target("H200"), _hopper_gemm.space().first(**gemm_context(1, 64, "n"))
    a, b, c = (torch.empty(1, 1, 64, device="meta", dtype=torch.float16) for _ in range(3))
    b = torch.empty(1, 64, 64, device="meta", dtype=torch.float16)
    for activation in ("none", "relu", "silu", "gelu"):
        given = _hopper_gemm.arguments(a, b, c, b[0, 0], activation)
        lowering = Lowering(Problem(_hopper_gemm.kernel, given, _hopper_gemm.grid), target, 60)
        assert isinstance(lowering.request(config), LowerRequest)
    for shape in (heads(1, 1, 1, 1, 1, 64, 1), heads(1, 3, 1, 33, 1, 128, 0)):
        for module in (_hopper_attention, _hopper_attention_backward):
            lowering = Lowering(module.problem(shape, "fp16", "meta"), target, 60)
            assert isinstance(lowering.request(module.space().first(**shape)), LowerRequest)


def tiles_of(BLOCK_M: int, BLOCK_N: int, **more: Any) -> Config:
    """Return the space's first config of a tile."""
    wanted = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "PINGPONG": False, "SPLIT_K": 1} | more
    return next(c for c in _hopper_gemm.space().listed if wanted.items() <= c.kwargs.items())


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize(
    ("config", "loads", "widths"),
    [
        (tiles_of(128, 256), 3, {256}),
        (tiles_of(64, 192, PINGPONG=True), 4, {128, 64}),
        (tiles_of(256, 160), 7, {128, 32}),
        (tiles_of(128, 256, SPLIT_K=2), 3, {256}),
        (tiles_of(192, 192), 6, {128, 64}),
    ],
    ids=str,
)
def test_products_stay_in_flight(
    config: Config, loads: int, widths: set[int], settings: Settings
) -> None:
    """Products of the hot loop wait for the step before alone; registers move between warps."""
    code = compiled(_hopper_gemm, {"batch": 1, "M": 256, "N": 4096, "K": 14336}, config, settings)
    waits = re.findall(r"HGMMA[^\n]*gsb0 ;.*?WARPGROUP.DEPBAR.LE gsb0, 0x(\d)", code, re.DOTALL)
    assert waits == [str(len(widths))] * config.kwargs["CONSUMERS"]
    assert {int(n) for n in re.findall(r"HGMMA\.64x(\d+)x16", code)} == widths
    assert code.count("USETMAXREG.DEALLOC.CTAPOOL 0x18") >= 1
    assert code.count("UTMALDG.3D") == loads
    assert code.count("ATOMG.E.ADD") == (config.kwargs["SPLIT_K"] > 1) * config.kwargs["CONSUMERS"]


def prepared() -> dict[str, float]:
    """Return how far the sums and zeros before the backward kernel are off, for odd layouts."""
    dy = torch.randn(2, 40, 3, 64).half().transpose(1, 2)
    y = torch.randn(2, 3, 41, 64).half()[:, :, :40]
    sums, delta = _hopper_attention_backward.prepared_sums(dy, y)
    wanted = (dy.double() * y.double()).sum(-1)
    return {
        "sums": float((delta - wanted).abs().max()),
        "zeros": float(sums.abs().max()),
        "gaps": float(not (sums.is_contiguous() and delta.is_contiguous())),
    }


@pytest.mark.slow(seconds=2)
def test_sums_and_zeros_before_backward(interpreter: Interpreter) -> None:
    """Each row of dy * y is summed, and each gradient of queries begins at 0."""
    found = interpreter.call("tests.kernels.test_hopper:prepared")
    assert found.pop("sums") < 1e-4
    assert found == {"zeros": 0.0, "gaps": 0.0}


def test_other_tensors_are_refused_in_one_line() -> None:
    """Dtypes, layouts and devices that the kernels do not take are named with what they must be."""
    half = torch.zeros(1, 64, 64, dtype=torch.float16)
    others = (half.float(), half[:, :, 1:], half.expand(2, 64, 64), half[:, :0], half)
    for a, says in zip(others, ("float32", "16 bytes", "expanded", "no axis", "cpu"), strict=True):
        with pytest.raises(ValueError, match=f"a .*{says}"):
            _hopper_gemm.multiply(a, half, half)
    q = torch.zeros(1, 1, 64, 32, dtype=torch.float16)
    with pytest.raises(ValueError, match="dim"):
        _hopper_attention.attend(q, q, q, q, q[..., 0], causal=False, scale=1.0)
    with pytest.raises(ValueError, match="dim"):
        _hopper_attention_backward.gradients({"q": q}, causal=False, scale=1.0)
    inputs, _ = backward_inputs(heads(1, 2, 1, 64, 64, 64, 1), "fp16", "cpu")
    with pytest.raises(ValueError, match="dy is on cpu"):
        _hopper_attention_backward.gradients(inputs, causal=True, scale=1.0)


def test_arguments_of_the_plain_kernels_are_taken() -> None:
    """What the plain kernels are launched with reaches these, which refuse what they lack."""
    shape = {"batch": 1, "M": 64, "N": 64, "K": 64}
    given = matmul.problem(shape, "fp16", "cpu").arguments
    values = [given[name] for name in matmul.kernel.arg_names if name in given]
    with pytest.raises(ValueError, match="a is on cpu"):
        matmul._launch_gluon(*values)
    given = attention.problem(heads(1, 1, 1, 64, 64, 64, 1), "fp16", "cpu").arguments
    plain = {name: given[name] for name in attention.kernel.arg_names if name in given}
    with pytest.raises(ValueError, match="q is on cpu"):
        attention._launch_gluon(*plain.values())
    for changed, named in (
        ({"WINDOWED": True}, "windowed"),
        ({"MASK": 2, "DROPOUT": True}, "mask, dropout"),
        ({"ahead": 3}, "ahead"),
    ):
        with pytest.raises(ValueError, match=f"{named} is not what this kernel computes"):
            _hopper_attention.in_place_of_plain({**plain, **changed})
