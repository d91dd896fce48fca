"""The persistent GRU's machine code, and who waits for whom; tests/gpu has what it computes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import _gru, _gru_backward, gru
from asmtune.kernels._gru import grid, most_units
from asmtune.runtime.checks import launch_options
from tests.interpreter import Interpreter
from tests.kernels.made import artifact_of

SHAPE = {"seq": 64, "batch": 16, "input": 64, "hidden": 256}


def config(**axes: int) -> Config:
    return Config({**gru.DEFAULT.kwargs, **axes}, num_warps=8, num_stages=1)


def compiled(lanes: int, dtype: str, settings: Settings, target: Target) -> Artifact:
    problem = gru.problem(SHAPE, dtype, "meta")
    split = {"SPLIT": 1, "UNITS": 8} if lanes == 1 else {}
    return artifact_of(problem, config(LANES=lanes, **split), settings, target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "dtype", "words"),
    [(1, "fp16", 1), (8, "fp16", 4), (8, "bf16", 4), (8, "fp32", 8), (16, "bf16", 8)],
)
def test_weights_stay_in_registers(
    lanes: int, dtype: str, words: int, settings: Settings, target: Target
) -> None:
    """Within the steps nothing but states, gates and words is loaded, and nothing spills."""
    artifact = compiled(lanes, dtype, settings, target)
    ptx = artifact.outputs["ptx"]
    before, _, steps = ptx.partition("RECEIVE_")
    # Words of 16-bit states have two, and the compiler makes no copies of code that it may move.
    assert ptx.count("ld.relaxed.gpu.global.b64") == words
    assert ptx.count("RECEIVE_") == 2  # its label, and the branch back
    if dtype != "fp32":
        operands = len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.", before))
        again = len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x\d", steps))
        assert again <= max(1, lanes // 8), "the states' operand alone"
        assert (operands > 0) == (lanes > 1)
    assert "ld.global.v4" not in steps
    assert read_cubin(artifact.cubin).spill_words == 0


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
def test_backward_compiles(device: str, settings: Settings) -> None:
    """The gradients of gates spill nothing, with fp32 among halves."""
    half, full = (torch.empty(16, 768, dtype=d, device="meta") for d in (torch.half, torch.float))
    halves = ("of_x", "of_h", "before", "d_x", "d_h", "factors")
    given = {f"{name}_ptr": half for name in halves}
    given |= {f"{name}_ptr": full for name in ("grad", "keep")}
    given |= {"size": 16 * 256, "hidden": 256}
    for fn in (_gru_backward.factors, _gru_backward.gates):
        own = {name: given[name] for name in fn.arg_names if name in given}
        problem = Problem(fn, own, lambda _: (16,), {}, fn.__name__)
        artifact = artifact_of(problem, Config({"BLOCK": 256}), settings, device)
        assert read_cubin(artifact.cubin).spill_words == 0


@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize(
    ("lanes", "split", "teams", "hidden", "batch", "seq"),
    [(8, 1, 1, 32, 11, 3), (8, 2, 2, 32, 3, 4), (8, 2, 1, 24, 9, 2), (1, 1, 1, 27, 2, 3)],
)
def test_gradients_of_states(
    interpreter: Interpreter,
    lanes: int, split: int, teams: int, hidden: int, batch: int, seq: int,
) -> None:  # fmt: skip
    """Every share of a product gives the gradients that float64 does, whatever the sizes."""
    sizes = (lanes, split, teams, hidden, batch, seq)
    found = interpreter.call("tests.kernels.interpreted_backward:states", *sizes)
    assert max(found) <= 1


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_states_that_are_kept_keep_their_gradients(dtype: str, interpreter: Interpreter) -> None:
    """Over 200 steps of update gates near 1 the first state's gradient is float64's.

    In bf16 the gates' own values would be off by a third in the end.
    """
    assert interpreter.call("tests.kernels.interpreted_backward:kept", dtype) <= 1


def test_too_many_units_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that registers cannot hold, or a GPU cannot run at once, is left to PyTorch's."""
    states = torch.empty(3, 1024, dtype=torch.half, device="meta")
    assert most_units(states) == 1024
    assert most_units(states.float()) == 512
    monkeypatch.setattr(_gru, "processors", lambda _: 58)
    assert most_units(states) == 58 * 16
    given = gru.inputs({**SHAPE, "hidden": 1024}, "fp16", "meta")
    with pytest.raises(ValueError, match=r"gru: h0 .* must have 928 hidden units at most"):
        gru.gru(**given)


@pytest.mark.parametrize("sms", [20, 64, 108, 132])
def test_configs_run_at_once(monkeypatch: pytest.MonkeyPatch, sms: int) -> None:
    """A space has no config of more programs than the GPU has multiprocessors."""
    monkeypatch.setattr(_gru, "processors", lambda _: sms)
    for module in (gru, _gru_backward):
        given = module.problem({**SHAPE, "hidden": 512, "batch": 1}, "fp16", "meta").arguments
        units = [one.kwargs["UNITS"] for one in module.space().configs(**given)]
        assert max(-(-512 // held) for held in units) <= sms
        assert (4 in units) == (sms >= 128)


def values(**changed: Any) -> dict[str, Any]:
    return {**gru.problem(SHAPE, "fp16", "meta").arguments, **gru.DEFAULT.kwargs, **changed}


def test_programs_run_at_once() -> None:
    """Tiles of the batch come one after the other where not all programs have a processor."""
    assert grid(values()) == (16, 2)
    assert grid(values(batch=1000)) == (16, 8)
    assert grid(values(batch=1000, RESIDENT=20)) == (16, 1)
    with pytest.raises(
        ValueError, match=r"16 programs that wait .* runs 15 at once: take a larger"
    ):
        grid(values(RESIDENT=15))


def test_the_launch_is_cooperative(settings: Settings, target: Target) -> None:
    """A driver that cannot place all programs at once is to refuse, not to hang."""
    problem = gru.problem(SHAPE, "fp16", "meta")
    assert problem.bind(gru.DEFAULT)["launch_cooperative_grid"] is True
    artifact = compiled(8, "fp16", settings, target)
    assert artifact.metadata["launch_cooperative_grid"] is True
    # As a tuned launch has it, where the option is a keyword among the arguments.
    named = launch_options(gru.kernel, problem.arguments, gru.space())
    assert named - {"num_warps", "num_stages"} == problem.options == {"launch_cooperative_grid"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("hidden", [16, 100, 256, 512, 1024])
@pytest.mark.parametrize("batch", [1, 8, 64, 300])
def test_every_shape_has_few_configs(batch: int, hidden: int, dtype: str) -> None:
    """A space is small, and has a config for all sizes that registers hold."""
    problem = gru.problem({"seq": 2, "batch": batch, "input": 8, "hidden": hidden}, dtype, "meta")
    configs = list(gru.space().configs(**problem.arguments))
    assert len(configs) < 40
    assert configs or hidden > most_units(problem.arguments["h0_ptr"])
