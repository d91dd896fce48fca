"""Tile axes that programs do not follow are held; walks are searched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.tiles import SearchedSpace
from asmtune.predict.score.scorers import make_scorer
from tests.launch_kernels import persistent, pointers
from tests.sample_kernels import scale, scale_problem

AXES = {"BLOCK_M": (64, 128), "BLOCK_N": (64,), "BLOCK_K": (32, 64), "num_warps": (4, 8)}
Search = Callable[..., SearchedSpace]


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that keeps all, for an H200."""
    return Funnel(target, make_scorer("roofline"), settings)


@pytest.fixture
def search(funnel: Funnel) -> Search:
    """Give the function that finds the space to search on a problem."""
    return lambda problem, space: funnel.searched(funnel.front(problem), space)


def test_a_walk_is_searched(search: Search) -> None:
    """Tiles of a persistent product are searched in full, without a word, default or not."""
    for default in (None, Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32})):
        space = Space(AXES, default=default)
        for flatten in (False, True):
            assert search(persistent(1024, 256, 132, flatten), space) == SearchedSpace(space)


@triton.jit
def counted_tiles(x_ptr, y_ptr, tiles, BLOCK: tl.constexpr):
    """Walk tiles that the host counts by a small grid."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at) * 2.0)


@pytest.mark.parametrize("walks", [False, True])
def test_a_grid_that_does_not_follow_the_tile(search: Search, walks: bool) -> None:
    """A tile that a fixed grid or a count by the host leaves results out with is held."""
    space = Space({"BLOCK": (256, 512), "num_warps": (4, 8)}, default=Config({"BLOCK": 512}))
    arguments = pointers(torch.float32, "x_ptr", "y_ptr", extent=1 << 20)
    walk = Problem(counted_tiles, {**arguments, "tiles": 2048}, lambda _: (132,))
    found = search(walk if walks else Problem(scale, {**arguments, "n": 1 << 20}, (2048,)), space)
    assert found.space.axes["BLOCK"] == (512,)
    (note,) = found.notes
    assert "with BLOCK=256 they write" in note
    assert "of 4,194,304 bytes of" in note
    assert "; held at BLOCK=512; " in note


def test_a_default_that_the_front_end_refuses(search: Search) -> None:
    """Then the whole space is searched, and the report says that nothing is known."""
    space = Space({"BLOCK": (100, 128)}, default=Config({"BLOCK": 100}))
    found = search(scale_problem(), space)
    assert found.space is space
    (note,) = found.notes
    assert note.startswith("whether tiles must be held is not known: its default config: kernel")
