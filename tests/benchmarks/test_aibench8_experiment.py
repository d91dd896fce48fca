"""The experiment: what each bar leaves out, what is raced, and the arithmetic of the summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.load import LoadedLaunch
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.tuning.options import EFFORTS
from benchmarks.aibench8 import experiment
from benchmarks.aibench8.summary import BARS, document, speedups, summary
from benchmarks.aibench8.tasks import TASKS, Task, contract_of, without_contract
from benchmarks.aibench8.tuning import TaskTuner
from tests.kernels.accuracy import module_of
from tests.tuning_support import DEVICE, HostMachine


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


POLICY = TimingPolicy(fine_rounds=5)


class ReferenceMachine(HostMachine):
    """Launches of our kernel do on the host what it would do."""

    def launch(self, binary: Any, values: Any, pre_hook: Any) -> LoadedLaunch:  # noqa: ARG002
        """Write what is right."""
        return LoadedLaunch(lambda: None, lambda: write_reference(values))


WARPS = [Config({"ROWS": 1, "BLOCK": 1024, "STAGES": 1}, num_warps=n) for n in (4, 8, 16)]


def write_reference(arguments: Mapping[str, Any]) -> None:
    """Compute what softmax should write."""
    arguments["y_ptr"].copy_(module_of("softmax").reference(arguments))


def softmax_us(config: Config) -> float:
    """Of 16 warps the baseline's half, of others as long; the untuned kernel has no axes."""
    return 5.0 if config.num_warps == 16 and config.kwargs else 10.0


@pytest.mark.slow
def test_a_kernel_from_tuning_to_result(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bars are raced, each with the config that its run found, and all times are kept."""
    machine = ReferenceMachine(softmax_us)

    def opener(setup: BenchSetup) -> Any:
        return DedupBench(setup.lowering.problem, LocalBench(setup, machine))

    settings = Settings(cache_dir=tmp_path, jobs=1)
    effort = replace(EFFORTS["balanced"], scorer="roofline")
    tuner = TaskTuner(DEVICE, effort, settings, opener)

    def launched(problem: Problem, *_: Any) -> Any:
        return lambda: write_reference(problem.arguments)

    monkeypatch.setattr(experiment, "plain", launched)
    monkeypatch.setattr(experiment, "compiled", launched)
    monkeypatch.setattr(experiment, "GpuClock", lambda _: machine)
    task = Task("softmax", {"rows": 64, "cols": 520})
    monkeypatch.setattr(task.module, "space", lambda: Space.of(WARPS))
    plan = experiment.Plan(tuner, target, POLICY, seeds=3, device="cpu")
    found = plan.result(task, ends_s=float("inf"))
    bars = [row["bar"] for row in found["race"]]
    (full,) = found["tuning"]["full"]
    tried = full["timed"]
    assert tried == found["configs"] == len(WARPS)  # so that one draw is enough
    assert bars == ["baseline", "dispatch_off", "full", "contract_off", "asm_off"]
    by_bar = dict(zip(bars, found["race"], strict=True))
    assert by_bar["full"]["config"] == WARPS[2].to_dict()
    assert by_bar["dispatch_off"]["config"] == WARPS[0].to_dict()
    assert found["contract"] == {"MULTIPLE": 8}
    assert speedups(found["race"])["full"]["speedup"] == 2.0
    assert json.loads(json.dumps(found)) == found
    content = {"meta": {"device": "NVIDIA H200"}, "summary": summary([found])}
    assert "| softmax | 2.00 | 1.00 | 2.00 | 2.00 |" in document(content)


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
