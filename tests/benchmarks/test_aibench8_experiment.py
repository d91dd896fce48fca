"""The experiment: what each bar leaves out, and the arithmetic of the summary."""

from __future__ import annotations

from typing import Any

import pytest

from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from benchmarks.aibench8.summary import BARS, speedups
from benchmarks.aibench8.tasks import TASKS, contract_of, without_contract
from tests.kernels.accuracy import module_of


def ttir(problem: Problem, config: Config, target: Target) -> str:
    """The first IR of a launch."""
    request: Any = Lowering(problem, target, 60).request(config)
    return str(request.ttir)


@pytest.mark.parametrize("name", TASKS)
def test_without_contract(name: str, target: Target) -> None:
    """No divisor of sizes or addresses is known any more, and nothing else has changed."""
    problem = TASKS[name].problem("meta")
    general = without_contract(problem)
    default = module_of(name).space().first(**problem.shape)
    assert set(contract_of(general).values()) <= {1}
    assert contract_of(general).keys() == contract_of(problem).keys()
    assert "tt.divisibility" in ttir(problem, default, target)
    assert "tt.divisibility" not in ttir(general, default, target)
    same = problem.arguments.keys() - contract_of(problem).keys()
    assert all(general.arguments[argument] is problem.arguments[argument] for argument in same)
    assert general.programs(default) == problem.programs(default)


def row(bar: str, p50: float, p20: float | None = None, p80: float | None = None) -> dict[str, Any]:
    """A timed row."""
    return {"bar": bar, "p20_us": p20 or p50, "p50_us": p50, "p80_us": p80 or p50}


KNOWN = [
    row("baseline", 12.0),
    row("baseline", 8.0, 7.0, 9.0),
    row("full", 2.0, 1.75, 2.5),
    row("dispatch_off", 4.0),
    row("contract_off", 16.0),
    *(row("asm_off", us) for us in (2.0, 8.0, 4.0)),
]


def test_speedups_of_a_known_race() -> None:
    """The faster baseline counts, draws by their median, and ranges by both sides' spread."""
    found = speedups(KNOWN)
    assert list(found) == list(BARS)
    assert found["full"] == {"speedup": 4.0, "least": 7.0 / 2.5, "most": round(9.0 / 1.75, 4)}
    assert found["dispatch_off"]["speedup"] == 2.0
    assert found["contract_off"]["speedup"] == 0.5
    assert found["asm_off"] == {"speedup": 2.0, "least": 1.0, "most": 4.0}
