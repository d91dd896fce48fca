"""Recurrences keep their tiles, unless asked otherwise; walks and others are searched in full."""

from __future__ import annotations

import gzip
import json
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
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.tiles import SearchedSpace
from asmtune.predict.score.scorers import make_scorer
from tests.launch_kernels import persistent, pointers
from tests.sample_kernels import scale, scale_problem

FAMILIES = Path(__file__).parents[1] / "benchmarks" / "corpus" / "families"
AXES = {"BLOCK_M": (64, 128), "BLOCK_N": (64,), "BLOCK_K": (32, 64), "num_warps": (4, 8)}
Search = Callable[..., SearchedSpace]


@triton.jit
def running_sum(x_ptr, y_ptr, steps, BLOCK: tl.constexpr):
    """Store the sum so far in each step."""
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
def search(funnel: Funnel) -> Search:
    """Give the function that finds the space to search on a problem."""

    def searched(problem: Problem, space: Space, *, tiles: bool = False) -> SearchedSpace:
        return replace(funnel, tiles=tiles).searched(funnel.front(problem), space)

    return searched


def test_a_walk_is_searched(search: Search) -> None:
    """Tiles of a persistent product are searched in full, without a word, default or not."""
    for default in (None, Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32})):
        space = Space(AXES, default=default)
        for flatten in (False, True):
            assert search(persistent(1024, 256, 132, flatten), space) == SearchedSpace(space)


SUMS = {"BLOCK": (32, 64, 128, 256), "num_warps": (1, 2)}


def test_tiles_of_a_recurrence_are_held(funnel: Funnel) -> None:
    """Only warps are searched, at the default's tile; the report says why and what to do."""
    space = Space(SUMS, default=Config({"BLOCK": 128}, num_warps=1))
    report = funnel.prune(running_sums(16), space)
    assert {v.config.kwargs["BLOCK"] for v in report.verdicts} == {128}
    assert {v.config.num_warps for v in report.verdicts} == {1, 2}
    note = report.notes[0]
    assert note.startswith("recurrence: a sequential loop carries state that each step stores")
    assert "(line " in note
    assert note.endswith(
        "; held at BLOCK=128; search_held_tiles=True (--search-held-tiles) searches all"
    )


def test_searched_whole(search: Search) -> None:
    """With `tiles`, and of a list, every config is searched; the note still says what it is."""
    space, listed = Space(SUMS), Space.from_configs(list(Space(SUMS)))
    for own, asked, end in ((space, True, "its tile axes are"), (listed, False, "listed are")):
        found = search(running_sums(16), own, tiles=asked)
        assert found.space is own
        (note,) = found.notes
        assert note.startswith("recurrence: ")
        assert note.endswith(f"{end} searched")


def test_without_a_default_the_least(search: Search) -> None:
    """Where the user names no default, the two least feasible tiles are searched."""
    space = Space({**SUMS, "BLOCK": (256, 32, 128, 64)}).where("wide", lambda BLOCK: BLOCK > 32)
    found = search(running_sums(16), space)
    assert found.space.axes["BLOCK"] == (64, 128)
    (note,) = found.notes
    assert "held at BLOCK=64 or 128 (the least, as no default is named)" in note


def test_axes_without_the_state_are_searched(search: Search) -> None:
    """Chunks, stages and copies of a loop are searched; what shapes its state is held."""
    for family, held in (("ssm_scan", {"ROWS"}), ("gru_scan", {"BLOCK"}), ("rnn_dot", {"BLOCK"})):
        module = load_kernel_module(str(FAMILIES / f"{family}.py"))
        space = module.space()
        found = search(module.problem(module.shapes[1], module.dtypes[0], "meta"), space)
        assert {n for n, values in found.space.axes.items() if values != space.axes[n]} == held


RECORDED = {
    "h200_families": ("cumsum", "gru_scan", "rnn_dot", "ssm_scan"),
    "h200_families2": ("rwkv_scan",),
}


@pytest.mark.slow(seconds=10)
def test_holding_loses_nothing(search: Search) -> None:
    """Of recorded recurrences without a named default, the held tiles have the fastest config."""
    shares = []
    for file, names in RECORDED.items():
        path = FAMILIES.parents[1] / "results" / f"{file}.json.gz"
        for task in json.loads(gzip.decompress(path.read_bytes()))["tasks"]:
            if task["kernel"] in names:
                module = load_kernel_module(str(FAMILIES / f"{task['kernel']}.py"))
                space = module.space()
                found = search(module.problem(task["shape"], task["dtype"], "meta"), space)
                rows = [row for row in task["rows"] if "ms" in row]
                held = [row["ms"] for row in rows if allowed(row["config"], found.space)]
                if found.space is not space:
                    shares.append(min(row["ms"] for row in rows) / min(held))
    assert len(shares) == 8
    assert min(shares) > 0.99


def allowed(config: dict[str, Any], space: Space) -> bool:
    """Say whether a recorded config's tiles are those of a space."""
    return all(value in space.axes.get(name, (value,)) for name, value in config.items())


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


def test_a_grid_beyond_the_machine(search: Search) -> None:
    """State on a large grid is no reason to keep anything."""
    default = Config({"BLOCK": 32}, num_warps=1)
    space = Space({"BLOCK": (32, 64), "num_warps": (1, 2)}, default=default)
    assert len(list(search(running_sums(16), space).space)) == 2
    assert search(running_sums(4096), space) == SearchedSpace(space)


def test_a_default_that_the_front_end_refuses(search: Search) -> None:
    """Then the whole space is searched, and the report says that nothing is known."""
    space = Space({"BLOCK": (100, 128)}, default=Config({"BLOCK": 100}))
    found = search(scale_problem(), space)
    assert found.space is space
    (note,) = found.notes
    assert note.startswith("whether tiles must be held is not known: its default config: kernel")


@pytest.mark.parametrize(
    ("family", "place", "reason"),
    [
        ("gru_scan", 1, "carries state"),
        ("rnn_dot", 1, "multiplies the state"),
        *((family, 0, "") for family in ("matmul_persistent", "matmul_streamk", "matmul_grouped")),
        *((family, 1, "") for family in ("attention_causal", "softmax_online", "welford")),
    ],
)
def test_families(family: str, place: int, reason: str, funnel: Funnel) -> None:
    """Recurrences on few programs are found; walks over tiles, sums and products are not."""
    state = work_of(family, place, funnel).state
    assert reason in state.reason if state else reason == ""


def work_of(family: str, place: int, funnel: Funnel) -> Work:
    """The work of a family's default config on one of its shapes."""
    module = load_kernel_module(str(FAMILIES / f"{family}.py"))
    problem = module.problem(module.shapes[place], module.dtypes[0], "meta")
    default = module.space().first(**problem.shape)
    found = funnel.front(problem).work(default)
    assert not isinstance(found, Failure), found
    return found
