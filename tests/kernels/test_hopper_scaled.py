"""The Gluon kernel for products of FP8 with scales: numbers, machine code, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.kernels import _hopper_scaled, _scaled, scaled_matmul
from tests.kernels.hopper_runs import multiply_scaled
from tests.kernels.test_hopper import machine_code

Groups = tuple[int, int, int]

TENSOR, ROW, BLOCK = (0, 0, 0), (1, 1, 0), (1, 128, 128)
SUMS = [(TENSOR, True), (ROW, True), (ROW, False), (BLOCK, False)]
OTHERS = [((128, 128, 128), False), ((1, 1, 128), False), ((128, 0, 0), True), ((0, 128, 0), True)]


def shape_of(groups: Groups, M: int = 4096) -> dict[str, int]:
    """Name a shape's extents and groups."""
    return {"M": M, "N": 4096, "K": 4096, **dict(zip(_scaled.EXTENTS, groups, strict=True))}


def configs(groups: Groups, fast: bool, size: int = 2) -> list[Config]:
    """List the configs of a granularity that differ in more than the order of tiles."""
    names = {"GROUP_B": groups[1], "GROUP_K": groups[2], "FAST": fast, "SIZE_C": size}
    found = _hopper_scaled.space().configs(**names)
    return [config for config in found if config.kwargs["GROUP_M"] == 8]


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize(("groups", "fast"), SUMS + OTHERS)
def test_products_by_every_config(groups: Groups, fast: bool) -> None:
    """Each config is right where no extent is a multiple of a tile's, on two programs."""
    for config in configs(groups, fast):
        error, _ = multiply_scaled((150, 264, 400), groups, config.kwargs, 2, seed=7, fast=fast)
        assert error < 0.08, config
    last = configs(groups, fast)[-1].kwargs
    assert multiply_scaled((1, 72, 64), groups, last, 1, fast=fast, finish=True)[0] < 0.04


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(("groups", "fast"), SUMS)
def test_tiles_compile_without_spills(groups: Groups, fast: bool, settings: Settings) -> None:
    """The largest tile of each kind has its sums in registers; registers move between warps."""
    shape = {**shape_of(groups), "FAST": fast}
    problem = _hopper_scaled.problem(shape, "fp8e4nv", "meta")
    kinds: dict[tuple[Any, ...], Config] = {}
    for config in configs(groups, fast):
        kinds.setdefault((config.kwargs["PINGPONG"], config.kwargs["PER_SM"]), config)
    assert len(kinds) == 4
    for config in kinds.values():
        code = machine_code(problem, config, settings)  # refuses spills
        assert code.count("USETMAXREG.DEALLOC.CTAPOOL 0x18") >= 1


def with_bias(extents: Groups, groups: Groups, out: torch.dtype, fast: bool) -> Problem:
    """Make a launch with a bias."""
    shape = {**shape_of(groups), **dict(zip("MNK", extents, strict=True))}
    given = scaled_matmul.inputs(shape, "fp8e5", "meta") | {"fast_accum": fast}
    bias = torch.empty(extents[1], dtype=out, device="meta")
    arguments = _hopper_scaled.arguments(
        scaled_matmul._arguments(**given, out_dtype=out, bias=bias)
    )
    return Problem(_hopper_scaled.kernel, arguments, _hopper_scaled.grid)


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize(
    ("extents", "groups", "fast"),
    [
        ((1, 8, 16), TENSOR, True),
        ((1, 8, 16), TENSOR, False),
        ((300, 520, 400), ROW, True),
        ((300, 520, 400), ROW, False),
    ],
)
def test_odd_launches_with_a_bias_compile(
    extents: Groups, groups: Groups, fast: bool, settings: Settings
) -> None:
    """Numbers that Triton takes as constants pass, and biases fit in registers beside scales."""
    problem = with_bias(extents, groups, torch.float32, fast)
    for config in (configs(groups, fast, 4)[0], configs(groups, fast, 4)[-1]):
        assert "QGMMA" in machine_code(problem, config, settings)  # which refuses spills


def launch(**changed: Any) -> dict[str, Any]:
    """Return the arguments of a launch of the plain kernel, of which some are other ones."""
    shape = {"M": 64, "N": 256, "K": 512, **dict.fromkeys(_scaled.EXTENTS, 0)}
    return {**scaled_matmul.problem(shape, "fp8e4nv", "cpu").arguments, **changed}


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"GROUP_A": 1, "GROUP_B": 128, "GROUP_K": 128}, True),
        ({"GROUP_B": 32}, False),
        ({"GROUP_K": 64}, False),
        ({"LAYOUT": "kn"}, False),
        ({"MULTIPLE_C": 8}, False),
        ({"MULTIPLE_STRIDES": 8}, False),
        ({"a_ptr": torch.zeros(1, 1, 512).expand(1, 64, 512)}, False),
    ],
)
def test_it_is_asked_for_what_it_takes(
    changed: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of its extents and rows that the copy engine addresses, on a Hopper alone."""
    assert not _scaled.fits_hopper(launch(**changed))
    monkeypatch.setattr(_scaled, "is_hopper", lambda _: True)
    assert _scaled.fits_hopper(launch(**changed)) is fits
