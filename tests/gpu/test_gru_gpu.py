"""The persistent GRU with programs that exchange states: sizes, launches in a row, streams."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from asmtune.core.config import Config
from asmtune.core.dtypes import dtype_of
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import case_of, launched_with, module_of

MODULE, WALK = module_of("gru"), module_of("_gru_backward")


def config(units: int, lanes: int, split: int, teams: int, warps: int) -> Config:
    axes = {"UNITS": units, "LANES": lanes, "SPLIT": split, "TEAMS": teams}
    return Config(axes, num_warps=warps, num_stages=1)


CONFIGS = {
    "one lane": config(4, 1, 1, 1, 4),
    "one lane, one warp a unit": config(8, 1, 1, 1, 8),
    "terms split": config(16, 8, 8, 1, 8),
    "terms and units split": config(32, 16, 4, 2, 8),
    "units split": config(64, 8, 1, 4, 4),
    "one product": config(64, 8, 1, 1, 4),
    "more threads than words": config(16, 1, 1, 1, 8),
    "sixteen lanes": config(16, 16, 4, 1, 4),
    "sixteen warps": config(32, 8, 8, 2, 16),
}

SIZES = (
    {"seq": 40, "batch": 1, "input": 16, "hidden": 256},
    {"seq": 33, "batch": 5, "input": 20, "hidden": 200},
    {"seq": 17, "batch": 70, "input": 8, "hidden": 130},
    {"seq": 1, "batch": 3, "input": 8, "hidden": 144},
    {"seq": 2, "batch": 9, "input": 8, "hidden": 161},
    {"seq": 600, "batch": 16, "input": 8, "hidden": 128},
)


def off(given: dict[str, Any], got: tuple[torch.Tensor, ...]) -> float:
    dtype = str(dtype_of(got[0]))
    want = MODULE.baseline(**{name: value.double() for name, value in given.items()})
    rows = case_of("gru").rows("cuda", dtype)
    return max(excess(mine, exact, rows) for mine, exact in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", MODULE.DTYPES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_programs_exchange_states(name: str, shape: dict[str, int], dtype: str) -> None:
    """All programs' states reach all others at every step, whatever the sizes and warps."""
    torch.manual_seed(1)
    given = MODULE.inputs(shape, dtype, "cuda")
    with launched_with(CONFIGS[name], "gru"):
        assert off(given, MODULE.gru(**given)) <= 1


@pytest.mark.parametrize("dtype", MODULE.DTYPES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_programs_exchange_gradients(name: str, shape: dict[str, int], dtype: str) -> None:
    """All programs' gradients of states reach all others, as float64 has them."""
    torch.manual_seed(7)
    given = WALK.problem(shape, dtype, "cuda").arguments
    tensors = [given[f"{name}_ptr"] for name in ("factors", "keep", "dy", "weight")]
    with launched_with(CONFIGS[name], "_gru_backward"):
        made = WALK.state_gradients(*tensors)
        again = WALK.state_gradients(*tensors)
    rows = {"fp32": "tf32 weights" if dtype == "fp32" else f"{dtype} recurrent"}
    for got, repeated, want in zip(made, again, WALK.reference(given).values(), strict=True):
        assert excess(got, want, rows) <= 1
        assert torch.equal(got, repeated)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_launch_finds_the_words_of_another(name: str) -> None:
    """One set of arguments launched again, with other states and another config, stays right."""
    torch.manual_seed(2)
    shape = {"seq": 25, "batch": 11, "input": 8, "hidden": 192}
    problem = MODULE.problem(shape, "fp16", "cuda")
    rows = case_of("gru").rows("cuda", "fp16")
    arguments = dict(problem.arguments)
    for chosen in (CONFIGS[name], CONFIGS["terms split"], CONFIGS[name], CONFIGS[name]):
        arguments["h0_ptr"].normal_()
        arguments["gates_ptr"].normal_()
        arguments["out_ptr"].fill_(float("nan"))
        with launched_with(chosen, "gru"):
            MODULE._tuned[problem.grid](**arguments)
        assert excess(arguments["out_ptr"], MODULE.reference(arguments), rows) <= 1


def test_many_launches_repeat() -> None:
    """A thousand launches give the same bits, also of two streams at once."""
    torch.manual_seed(3)
    shape = {"seq": 64, "batch": 8, "input": 32, "hidden": 256}
    given = MODULE.inputs(shape, "fp16", "cuda")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    with launched_with(CONFIGS["terms split"], "gru"):
        first = MODULE.gru(**given)[0]
        torch.cuda.synchronize()
        for _ in range(5):
            states = []
            for stream in streams * 100:
                with torch.cuda.stream(stream):
                    states.append(MODULE.gru(**given)[0])
            torch.cuda.synchronize()
            assert all(torch.equal(again, first) for again in states)


def test_in_a_graph() -> None:
    """A captured launch replays with other inputs: nothing of it is kept on the host."""
    torch.manual_seed(4)
    given = MODULE.inputs({"seq": 30, "batch": 4, "input": 16, "hidden": 256}, "fp16", "cuda")
    with launched_with(CONFIGS["terms split"], "gru"):
        MODULE.gru(**given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = MODULE.gru(**given)
    for _ in range(3):
        given["x"].normal_()
        graph.replay()
        assert off(given, got) <= 1
