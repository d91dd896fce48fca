"""Outputs that depend on the config by construction, told from ordinary and from wrong ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from workspace_cases import ORDINARY, WORKSPACES, Case

from asmtune.base.json_codec import to_json
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.bench.messages import slots_of
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.workspaces import workspaces_of
from tests.workload.workload_lowering import call, lower, pointer

CASES = {name: case for name, (case, _) in WORKSPACES.items()} | ORDINARY


def values_of(case: Case, name: str) -> dict[str, Any]:
    config = {n: value for n, value in case.configs[name].items() if n != "num_stages"}
    return {**dict.fromkeys(case.shapes, pointer()), **case.numbers, **config}


@lru_cache
def kernel_of(case_name: str, name: str) -> Kernel:
    case = CASES[case_name]
    return Kernel(lower(case.kernel, **values_of(case, name)))


def slots_in(case_name: str, name: str) -> ConfigSlots:
    """Where a config writes."""
    case = CASES[case_name]
    launch = call(case.programs(name), **values_of(case, name))
    return kernel_of(case_name, name).slots(launch)


def facts_of(case_name: str) -> dict[str, Any]:
    """Effects and slots of a case as JSON values."""
    case = CASES[case_name]
    values = values_of(case, "default")
    work = kernel_of(case_name, "default").work(call(case.programs("default"), **values))
    effects = Effects.of([work], values)
    named = {n: sorted(names) for n, names in vars(effects).items() if n != "foreign"}
    return {
        "effects": named,
        "slots": {name: to_json(slots_in(case_name, name)) for name in case.configs},
    }


@pytest.mark.parametrize("name", WORKSPACES)
def test_workspaces_are_recognised(name: str) -> None:
    """An argument with another number of slots is a workspace; all others of the kernel are not."""
    case, argument = WORKSPACES[name]
    default = slots_in(name, "default")
    assert workspaces_of(default, default) == {}
    for config in case.configs:
        if config not in ("default", "short"):
            assert list(workspaces_of(slots_in(name, config), default)) == [argument], config


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_outputs_are_not(name: str) -> None:
    """Tiles of any size, walks of any number of programs and grids that are too small are none."""
    default = slots_in(name, "default")
    for config in CASES[name].configs:
        if config != "apart":  # its slots are none of the default's, which the check shows
            assert workspaces_of(slots_in(name, config), default) == {}, config


def test_what_is_compared_is_said() -> None:
    """Sums that all programs scale alike are compared; maxima and means of a tile are not."""
    state = workspaces_of(slots_in("state", "wide"), slots_in("state", "default"))
    assert str(state["partial_ptr"]) == (
        "partial_ptr: workspace of each config (rows = programs along axis 0), compared by its sums"
    )
    summed = {}
    for name, (case, argument) in WORKSPACES.items():
        other = list(case.configs)[1]
        workspaces = workspaces_of(slots_in(name, other), slots_in(name, "default"))
        summed[name] = workspaces[argument].summed
    assert summed == dict.fromkeys(WORKSPACES, True) | {"means": False, "maxima": False}


@pytest.mark.parametrize("name", CASES)
def test_slots_travel_to_the_process_that_times(name: str) -> None:
    """They are the same after they were JSON."""
    slots = slots_in(name, "default")
    assert slots_of(json.loads(json.dumps(to_json(slots)))) == slots


EXPECTED = {
    "state": {"hole": "unwritten", "short": "unwritten"},
    "rows": {"short": "unwritten"},
    "parts": {"short": "unwritten"},
    "means": {"short": "unwritten"},
    "maxima": {"short": "unwritten"},
    "tiles": {"short": "unwritten"},
    "split": {"short": "unwritten"},
    "walk": {"short": "wrong_output"},
    "scale": {
        "short": "unwritten",
        "short and wide": "unwritten",
        "overlapping": "unwritten",
        "apart": "unwritten",
    },
    "walked": {"short": "unwritten"},
    "softmax": {"short": "unwritten"},
    "sums": {"short": "unwritten"},
}


@pytest.mark.slow(seconds=20)
def test_real_kernels_in_the_interpreter() -> None:
    """Right configs pass whatever they write; holes, short grids and wrong strides do not."""
    facts = json.dumps({name: facts_of(name) for name in CASES})
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("interpreted_workspaces.py"), facts],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    results = json.loads(ran.stdout.splitlines()[-1])
    for name, case in CASES.items():
        right = dict.fromkeys(case.configs) | EXPECTED[name]
        assert results[name]["verdicts"] == right, name
        said = [note for note in results[name]["notes"] if "workspace" in note]
        assert len(said) == (name in WORKSPACES), said
        assert results[name]["kept"]
