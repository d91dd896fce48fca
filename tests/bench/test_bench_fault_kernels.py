"""The kernels that go wrong on a GPU, as compiled without one: each goes wrong in its own way."""

from __future__ import annotations

import pytest
import torch

from asmtune.core.hardware.model import Target
from asmtune.measure.checks.effects import Effects
from tests.gpu import fault_kernels as kernels
from tests.gpu.fault_kernels import FAULT, HANG, NOTHING, SMASH, WRONG


@pytest.fixture
def texts(target: Target) -> dict[int, str]:
    """PTX of `double` by BAD."""
    modes = [0, FAULT, HANG, NOTHING, WRONG, SMASH]
    problem = kernels.problems(4096, "cpu")["double"]
    prepared = kernels.prepare(problem, [kernels.config(mode) for mode in modes], target)
    pairs = zip(modes, prepared.entrants, strict=True)
    return {mode: entrant.artifact.outputs["ptx"] for mode, entrant in pairs}


def test_each_mode_is_in_its_code(texts: dict[int, str]) -> None:
    """FAULT stores twice as often, HANG spins on a volatile load, NOTHING stores nothing."""
    stores = {mode: text.count("st.global") for mode, text in texts.items()}
    assert stores[FAULT] == stores[SMASH] == 2 * stores[0] > 0
    assert stores[NOTHING] == 0
    assert stores[WRONG] == stores[HANG] == stores[0]
    assert [mode for mode, text in texts.items() if "ld.volatile" in text] == [HANG]


def test_effects_are_read_off_the_code(target: Target) -> None:
    """In place is read and written; a total is updated atomically; what SMASH writes counts."""
    effects: dict[str, Effects] = {}
    for name, problem in kernels.problems(4096, "cpu").items():
        prepared = kernels.prepare(problem, [kernels.config()], target)
        effects[name] = prepared.setup.effects
        assert isinstance(prepared.before["x_ptr"], torch.Tensor)
        assert prepared.is_whole()
    assert effects["double"].writes == {"y_ptr"}
    assert effects["in place"].reads == effects["in place"].writes == {"x_ptr"}
    assert effects["atomics"].atomics == {"total_ptr"}
