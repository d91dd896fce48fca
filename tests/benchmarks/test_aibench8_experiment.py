"""The experiment: what each bar leaves out, what is raced, and the arithmetic of the summary."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.errors import MeasureError
from asmtune.base.settings import Settings
from asmtune.compile.load import LoadedLaunch
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.dedup import DedupBench
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.tuning.options import EFFORTS
from benchmarks.aibench8 import __main__ as command
from benchmarks.aibench8 import experiment
from benchmarks.aibench8.experiment import Entrant, race
from benchmarks.aibench8.summary import BARS, document, speedups, summary
from benchmarks.aibench8.tasks import TASKS, Task, contract_of, without_contract
from benchmarks.aibench8.tuning import Search, TaskTuner
from tests.kernels.accuracy import module_of
from tests.simulated_gpu import SimulatedClock
from tests.tuning_support import DEVICE, HostMachine
from tests.tuning_support import problem as addition
from tests.tuning_support import space as addition_space


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


@pytest.fixture
def machine() -> HostMachine:
    """Take known times."""
    return HostMachine()


@pytest.fixture
def tuner(tmp_path: Path, machine: HostMachine) -> TaskTuner:
    """Tune on the host."""

    def opener(setup: BenchSetup) -> Any:
        return DedupBench(setup.lowering.problem, LocalBench(setup, machine))

    settings = Settings(cache_dir=tmp_path, jobs=1)
    shared = Settings.from_environment().artifacts_dir
    shared.mkdir(parents=True, exist_ok=True)
    settings.artifacts_dir.symlink_to(shared)
    return TaskTuner(DEVICE, replace(EFFORTS["balanced"], scorer="roofline"), settings, opener)


@pytest.mark.slow(seconds=2)
def test_by_chance(tuner: TaskTuner, machine: HostMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws time as many configs as they are told, differ, and ask no scorer of assembly."""
    asked: list[str] = []

    def watched(name: str, *_: object) -> Scorer:
        asked.append(name)
        return make_scorer(name)

    monkeypatch.setattr("asmtune.tuning.tuner.make_scorer", watched)
    drawn = []
    for seed in (0, 1):
        machine.timed.clear()
        found = tuner.by_chance(Search(addition(), addition_space()), 6, seed)
        assert found.timed == len(set(machine.timed)) == 6
        drawn.append(set(machine.timed))
    assert set(asked) == {"chance"}
    assert drawn[0] != drawn[1]
    default = addition_space().first(n=4096)
    assert default in drawn[0] & drawn[1]


POLICY = TimingPolicy(fine_rounds=5)


def entrant(bar: str, number: int, **changed: Any) -> Entrant:
    """Make an entrant that writes ones, as expected."""
    out = torch.ones(4)  # right before: what a launch does not write must not pass
    launch = changed.pop("launch", lambda: out.fill_(1.0))
    expected = (torch.ones(4, dtype=torch.float64),)
    config = Config({"number": number})
    return Entrant(
        bar=bar, config=config, launch=launch, outputs=(out,), expected=expected, **changed
    )


def raced(entrants: Sequence[Entrant], times_us: Sequence[float]) -> list[dict[str, Any]]:
    """Rows of a race by a clock that knows the times."""
    times = dict(zip((e.config for e in entrants), times_us, strict=True))
    return race(entrants, SimulatedClock(times), POLICY)


def test_only_right_ones_are_timed() -> None:
    """Wrong outputs, outputs left as they were, and what cannot launch have no time."""

    def broken() -> None:
        raise RuntimeError("no such kernel")

    entrants = [
        entrant("baseline", 0),
        entrant("full", 1, launch=lambda: None),
        entrant("dispatch_off", 2, launch=Failure("lower", "kernel", "line 3")),
        entrant("contract_off", 3, launch=broken),
        entrant("asm_off", 4, seed=2),
    ]
    rows = raced(entrants, [4.0, 1.0, 1.0, 1.0, 2.0])
    assert [row.get("p50_us") for row in rows] == [4.0, None, None, None, 2.0]
    assert [row["bar"] for row in rows] == [e.bar for e in entrants]
    assert rows[1]["failed"].startswith("its outputs are wrong")
    assert "line 3" in rows[2]["failed"]
    assert "no such kernel" in rows[3]["failed"]
    assert rows[4]["seed"] == 2
    assert rows[0]["samples"] == 5


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


def test_summary_of_known_races() -> None:
    """Means are geometric and of whole kernels alone; what is slower or failed is named."""
    half = [row("baseline", 2.0), row("full", 2.0), row("dispatch_off", 8.0)]
    half += [row("contract_off", 2.0), row("asm_off", 2.0)]
    cut = [row("baseline", 1.0), row("full", 2.0), {"bar": "asm_off", "failed": "no memory"}]
    results: list[dict[str, Any]] = [
        {"kernel": "one", "race": KNOWN},
        {"kernel": "two", "race": half},
        {"kernel": "three", "race": cut},
        {"kernel": "four", "failed": "it hangs"},
    ]
    found = summary(results)
    assert found["kernels"] == 2
    assert found["geometric_mean"] == pytest.approx(
        {"full": 2.0, "dispatch_off": 0.5**0.5, "contract_off": 0.5**0.5, "asm_off": 2**0.5},
        abs=1e-4,
    )
    assert found["under_1"] == ["three"]
    assert found["failed"] == {"three": "asm_off: no memory", "four": "it hangs"}
    assert found["speedup"]["four"] == {}


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back the folders of caches, which the command sets for its process."""
    for name in ("ASMTUNE_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, os.environ[name])


@pytest.mark.usefixtures("places")
def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has meta, summary and results of all kernels, and the status tells of failures."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(command, "device_name", lambda: DEVICE)
    monkeypatch.setattr(command, "provenance", lambda: {"device": DEVICE})
    path, seen = tmp_path / "aibench8.json", []

    def result(_: experiment.Plan, task: Task, ends_s: float) -> dict[str, Any]:
        seen.append(json.loads(path.read_text())["results"] if path.exists() else [])
        if task.name == "rope":
            raise MeasureError("no room")
        return {"kernel": task.name, "race": KNOWN, "ends": ends_s}

    monkeypatch.setattr(experiment.Plan, "result", result)
    arguments = ["--kernels", "warp,softmax,rope", "--output", str(path), "--rounds", "7"]
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 1
    assert [len(results) for results in seen] == [0, 1, 2]
    found = json.loads(path.read_text())
    assert found["meta"]["race_clock"]["fine_rounds"] == 7
    assert [r["kernel"] for r in found["results"]] == ["softmax", "rope", "warp"]
    assert found["summary"] == summary(found["results"])
    assert "no room" in found["summary"]["failed"]["rope"]
    # The first is measured last.
    assert found["results"][2]["ends"] < found["results"][0]["ends"]
