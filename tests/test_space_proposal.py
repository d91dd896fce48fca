"""Spaces that a kernel's source proposes: which constexprs are free, and between what bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune import Config, Problem, Space, asm_autotune
from asmtune.base.errors import SpaceError
from asmtune.core.space.proposal import proposal_for, proposed_space
from asmtune.kernels import cross_entropy_backward, layernorm, tiled_matmul
from tests import gluon_kernels
from tests.sample_kernels import described_sums, scale


@triton.jit
def covering(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(x + row + at, tl.load(x + row + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def place(SIZE: tl.constexpr, FLAG: tl.constexpr):
    return tl.program_id(0) * SIZE + tl.arange(0, SIZE)


@triton.jit
def by_helper(x, n, BLOCK: tl.constexpr, FLAG: tl.constexpr = True):
    at = place(BLOCK, FLAG)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def in_steps(x, out, n, STEP: tl.constexpr, WIDTH: tl.constexpr):
    total = tl.zeros((WIDTH, STEP), tl.float32)
    for start in range(0, n, STEP):
        total += tl.load(x + start + tl.arange(0, STEP))[None, :]
    tl.store(out + tl.arange(0, WIDTH), tl.sum(total, 1))


def problem_of(kernel: Any, grid: Any, **arguments: Any) -> Problem:
    """Make a problem whose numbers are its shape."""
    numbers = {name: value for name, value in arguments.items() if isinstance(value, int)}
    return Problem(kernel, arguments, grid, numbers)


STAGES = ("num_stages", "STAGES")

AXES = {
    "scale": (scale, {"BLOCK", "num_warps"}),
    "a helper's": (by_helper, {"BLOCK", "num_warps"}),
    "a loop's": (in_steps, {"STEP", "num_warps", "num_stages"}),
    "product": (
        tiled_matmul.kernel,
        {"BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"},
    ),
    "rows in steps": (layernorm.kernel, {"BLOCK", "num_warps", "STAGES"}),
    "a block that covers a row": (covering, {"num_warps"}),
}


@pytest.mark.parametrize("name", AXES)
def test_free_block_sizes_are_the_axes(name: str) -> None:
    """Extents that a place or a loop follows are axes, with warps, and stages where loops are."""
    kernel, axes = AXES[name]
    space = proposed_space(kernel)
    assert set(space.axes) == axes
    sizes = [v for n, values in space.axes.items() if n not in STAGES for v in values]
    assert [size for size in sizes if size & (size - 1)] == []
    if name == "product":
        assert min(space.axes["BLOCK_M"]) == 16
    assert 0 < len([*space.configs()]) <= 1600


def test_gluons_layouts_are_no_axes() -> None:
    """They name the warps; the error lists the constexprs."""
    with pytest.raises(SpaceError, match="BLOCK"):
        proposed_space(gluon_kernels.scale)


def test_a_launch_bounds_its_space() -> None:
    """Nothing beyond its sizes is proposed, and the launch's own values come first."""
    x = torch.empty(300, device="meta")
    grid = lambda values: (triton.cdiv(300, values["BLOCK"]),)  # noqa: E731
    launch, proposal = proposal_for(problem_of(scale, grid, x_ptr=x, y_ptr=x, n=300, BLOCK=128))
    assert launch.arguments.keys() == {"x_ptr", "y_ptr", "n"}
    assert proposal.space.axes["BLOCK"] == (128, 64, 256, 512)
    assert "searches BLOCK, num_warps" in proposal.notes[0]
    stepped = problem_of(in_steps, (1,), x=x, out=x, n=300, WIDTH=2)
    _, proposal = proposal_for(stepped)
    assert max(proposal.space.axes["STEP"]) == 512
    assert "as launched: WIDTH" in proposal.notes[0]


@triton.jit
def heads(x, out, n, D: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, D)
    mask = (at < n)[:, None]
    values = tl.load(x + at[:, None] * D + lane[None, :], mask=mask)
    tl.store(out + at[:, None] * D + lane[None, :], values, mask=mask)


def test_sizes_of_the_data_are_no_axes() -> None:
    """What the grid does not read keeps its value, though places are multiplied by it."""
    x = torch.empty(1024, 64, device="meta")
    grid = lambda values: (triton.cdiv(1024, values["BLOCK"]),)  # noqa: E731
    _, proposal = proposal_for(problem_of(heads, grid, x=x, out=x, n=1024, D=64))
    assert set(proposal.space.axes) == {"BLOCK", "num_warps"}
    sides = {"rows": 8192, "cols": 8192}
    _, proposal = proposal_for(cross_entropy_backward.problem(sides, "fp16", "meta"))
    assert set(proposal.space.axes) == {"ROWS", "BLOCK", "num_warps"}


def test_a_grid_that_follows_nothing_holds_places() -> None:
    """With sizes as a grid, a place's factor keeps its value, and the warps are searched."""
    x = torch.empty(4096, device="meta")
    launch, proposal = proposal_for(problem_of(scale, (32,), x_ptr=x, y_ptr=x, n=4096, BLOCK=128))
    assert proposal.space.axes == {"num_warps": (4, 1, 2, 8, 16, 32)}
    assert launch.arguments["BLOCK"] == 128


def test_a_launchs_own_warps_come_first() -> None:
    """The config that a host launches with, or the first of a decorator, is the default."""
    x, listed = torch.empty(512, device="meta"), Space.from_configs([Config({}, num_warps=8)])
    problem = problem_of(covering, (4,), x=x, n=128, BLOCK=128)
    _, proposal = proposal_for(problem, listed)
    assert proposal.space.axes == {"num_warps": (8, 4, 1, 2, 16, 32)}


def test_descriptors_of_the_host_hold_their_blocks() -> None:
    """Tensor descriptors have blocks that only the host can set."""
    described = TensorDescriptor.from_tensor(torch.empty(64, 64, dtype=torch.float16), [16, 16])
    with pytest.raises(SpaceError, match="pre_hook"):
        proposal_for(problem_of(described_sums, (1,), a=described, c=described, rows=64))


def test_the_decorator_takes_auto() -> None:
    """`space="auto"` is the space that the source proposes."""
    tuned = asm_autotune(space="auto", key=["n"])(scale)
    assert tuned.space.axes == proposed_space(scale).axes
    assert "BLOCK" in str(tuned.configs[0])


def test_what_a_rule_gives_is_no_axis() -> None:
    """What `@triton.heuristics` gives counts more than a config, and is not searched."""
    ruled = triton.heuristics({"num_warps": lambda _: 8})
    assert set(proposed_space(ruled(scale)).axes) == {"BLOCK"}
    with pytest.raises(SpaceError, match="heuristics"):
        proposed_space(ruled(covering))
