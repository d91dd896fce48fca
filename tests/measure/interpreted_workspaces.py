"""Checks of real kernels' configs on CPU tensors, for Triton's interpreter.

They are given effects and slots by case and config, for the interpreter makes no IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from asmtune.base.json_codec import JsonCodec, scalar_of, text_of
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from tests.measure.workspace_cases import ORDINARY, WORKSPACES, Case

CODEC = JsonCodec(decoders={str: text_of, int: scalar_of, bool: scalar_of})


def verdicts(case: Case, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the check's verdict on each config, and its notes."""
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(*size, generator=generator) for name, size in case.shapes.items()}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    effects = Effects(**{name: frozenset(names) for name, names in facts["effects"].items()})
    slots = {
        name: CODEC.read(ConfigSlots, value, "slots") for name, value in facts["slots"].items()
    }

    def launch(name: str) -> Callable[[], None]:
        values = {n: value for n, value in case.configs[name].items() if n != "num_stages"}
        return lambda: case.kernel[case.programs(name)](**tensors, **case.numbers, **values)

    with OutputChecker(tensors, effects, CheckOptions()) as checker:
        failure = checker.set_reference(launch("default"), slots=slots["default"])
        assert failure is None, failure
        found = {}
        for name in case.configs:
            failure = checker.check(launch(name), slots=slots[name])
            found[name] = failure.kind if failure else None
        notes = list(checker.notes)
    kept = all(torch.equal(tensors[name], before[name]) for name in before)
    return {"verdicts": found, "notes": notes, "kept": kept}


def all_verdicts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdicts of all cases by their names."""
    cases = {name: case for name, (case, _) in WORKSPACES.items()} | ORDINARY
    return {name: verdicts(case, facts[name]) for name, case in cases.items()}
