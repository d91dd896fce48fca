"""Persistent kernels keep their tiles, unless asked otherwise; others are searched in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Detection, Funnel, Searched
from asmtune.predict.score.scorers import make_scorer
from tests.launch_kernels import persistent, pointers
from tests.sample_kernels import product_problem, scale_problem

FAMILIES = Path(__file__).parents[1] / "benchmarks" / "families"
AXES = {"BLOCK_M": (64, 128), "BLOCK_N": (64,), "BLOCK_K": (32, 64), "num_warps": (4, 8)}
Search = Callable[..., Searched]


@triton.jit
def running_sum(x_ptr, y_ptr, steps, BLOCK: tl.constexpr):
    """Each step stores the sum so far."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        state += tl.load(x_ptr + step * 8192 + at)
        tl.store(y_ptr + step * 8192 + at, state)


def running_sums(programs: int) -> Problem:
    """`running_sum` of 100 steps."""
    arguments = {**pointers(torch.float32, "x_ptr", "y_ptr"), "steps": 100}
    return Problem(running_sum, arguments, (programs,), {"programs": programs})


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that keeps all, for an H200."""
    return Funnel(target, make_scorer("roofline"), settings)


@pytest.fixture
def search(target: Target) -> Search:
    """Give the function that finds the space to search on a problem."""

    def searched(problem: Problem, space: Space, *, tiles: bool = False) -> Searched:
        default = space.first(**problem.shape)
        return Detection(problem, target, 60, {}).searched(space, default, tiles=tiles)

    return searched


def blocks(configs: Any) -> set[tuple[int, int, int]]:
    """The tiles of some configs."""
    return {tuple(c.kwargs[f"BLOCK_{x}"] for x in "MNK") for c in configs}  # type: ignore[misc]


def test_tiles_are_kept(funnel: Funnel) -> None:
    """Only warps are searched, at the default's tile; the report says why and what to do."""
    default = Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32})
    space = Space(AXES, default=default)
    report = funnel.prune(persistent(1024, 256, 132, flatten=False), space)
    uncapped = [v.config for v in report.verdicts if v.config.maxnreg is None]
    assert blocks(uncapped) == {(128, 64, 32)}
    assert {config.num_warps for config in uncapped} == {4, 8}
    note = report.notes[0]
    assert note.startswith("persistent: a loop walks tiles from the program id")
    assert "(line " in note
    assert "kept at BLOCK_M=128 BLOCK_K=32; tiles=True (--tiles) searches them" in note


@pytest.mark.slow
def test_tiles_on_request(funnel: Funnel) -> None:
    """With `tiles` every config of the space is searched, and the report says so."""
    space = Space(AXES)
    everything = replace(funnel, tiles=True, caps=False)
    report = everything.prune(persistent(1024, 256, 132, flatten=False), space)
    assert {v.config for v in report.verdicts} == set(space.configs())
    (note,) = report.notes
    assert note.endswith("its tile axes are searched, as asked")


def test_without_a_default_the_first(search: Search) -> None:
    """Where the user names no default, its tile is that of the first feasible config."""
    space = Space(AXES).where("larger", lambda BLOCK_M: BLOCK_M > 64)
    found = search(persistent(1024, 256, 132, flatten=True), space)
    assert blocks(found.space.configs()) == {(128, 64, 32)}


def test_a_list_is_searched_whole(search: Search) -> None:
    """Who lists his configs wants those, tiles and all; the report still says persistent."""
    space = Space.from_configs(list(Space(AXES)))
    found = search(persistent(1024, 256, 132, flatten=False), space)
    assert found.space is space
    (note,) = found.notes
    assert note.startswith("persistent: ")
    assert note.endswith("; all configs listed are searched")


def test_nothing_to_keep(search: Search) -> None:
    """With one tile in the space only the reason is told."""
    axes = {"BLOCK": (64,), "num_warps": (1, 2)}
    space = Space(axes)
    found = search(running_sums(16), space)
    assert found.space is space
    (note,) = found.notes
    assert "carries state that each step stores" in note
    assert "tile" not in note


def test_a_grid_beyond_the_machine(search: Search) -> None:
    """State on a large grid is no reason to keep anything."""
    space = Space({"BLOCK": (32, 64), "num_warps": (1, 2)})
    assert len(list(search(running_sums(16), space).space)) == 2
    assert search(running_sums(4096), space) == Searched(space)


def test_a_default_that_the_front_end_refuses(search: Search) -> None:
    """Then the whole space is searched, and the report says that nothing is known."""
    space = Space({"BLOCK": (100, 128)}, default=Config({"BLOCK": 100}))
    found = search(scale_problem(), space)
    assert found.space is space
    (note,) = found.notes
    assert note.startswith("whether it is persistent is not known: its default config: kernel")


@pytest.mark.parametrize(
    ("family", "place", "reason"),
    [
        ("matmul_persistent", 0, "walks tiles"),
        ("matmul_persistent", 3, "walks tiles"),
        ("gru_scan", 1, "carries state"),
        ("ssm_scan", 1, "carries state"),
        ("rnn_dot", 1, "multiplies the state"),
    ],
)
def test_families(family: str, place: int, reason: str, target: Target) -> None:
    """Products that walk tiles and recurrences on few programs are found, as they were measured."""
    assert reason in reason_of(family, place, target)


@pytest.mark.parametrize(
    "family",
    ["matmul_splitk", "attention_causal", "attention_decode", "layernorm_bwd_dx", "softmax_online",
     "reduce_columns", "batched_matmul", "welford"],
)  # fmt: skip
def test_ordinary_families(family: str, target: Target) -> None:
    """Sums and products over a loop, on grids of any size, are not."""
    module = load_kernel_module(str(FAMILIES / f"{family}.py"))
    for place in range(len(module.shapes)):
        assert reason_of(family, place, target) == ""


def test_ordinary_grid(search: Search) -> None:
    """A plain product is searched in full, without a word."""
    space = Space(AXES)
    assert search(product_problem(), space) == Searched(space)


def reason_of(family: str, place: int, target: Target) -> str:
    """Why the default config of a family is persistent on one of its shapes."""
    module = load_kernel_module(str(FAMILIES / f"{family}.py"))
    problem = module.problem(module.shapes[place], module.dtypes[0], "meta")
    default = module.space().first(**problem.shape)
    found = Detection(problem, target, 60, {}).reason(default)
    assert not isinstance(found, Failure), found
    return found
