"""Deterministic choice: the same key gets the same config, and nothing is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import triton

import asmtune
from asmtune.base.errors import CompileError, InputError, MissError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.accuracy import Bound
from asmtune.predict.prune import flow
from asmtune.runtime import options as runtime_options
from asmtune.runtime import rank_agreement
from asmtune.runtime.misses.resolver import MissWarning
from asmtune.runtime.options import is_deterministic
from asmtune.runtime.rank_agreement import RankAgreement, RankJob
from asmtune.store.database import Store
from asmtune.tuning import deterministic as picks
from asmtune.tuning.request import provenance
from asmtune.tuning.tuner import Tuner
from tests import tuning_support as support
from tests.dispatch import torch_kernels
from tests.dispatch.host import Host, described, miss
from tests.dispatch.test_misses import closed
from tests.dispatch.torch_support import Imagined

ROOT = Path(__file__).parents[2]
SIZES = ("131073", "262144", "1048576")


@pytest.fixture(autouse=True)
def switched() -> Iterator[None]:
    """Leave the switch as it was."""
    before = runtime_options._chosen[0]
    yield
    runtime_options._choose(before)
    torch.use_deterministic_algorithms(False)


@triton.jit
def blocks(x_ptr, y_ptr, out_ptr, n, BLOCK, OTHER):
    """Do nothing, in a grid of two blocks."""


def test_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call, the variable and PyTorch's switch turn it on; the call takes precedence."""
    assert not is_deterministic()
    with asmtune.deterministic():
        assert is_deterministic()
        with asmtune.deterministic(False):
            assert not is_deterministic()
        assert is_deterministic()
    assert not is_deterministic()
    torch.use_deterministic_algorithms(True)
    assert is_deterministic()
    with asmtune.deterministic(False):
        assert not is_deterministic()
    torch.use_deterministic_algorithms(False)
    monkeypatch.setenv("ASMTUNE_DETERMINISTIC", "1")
    assert is_deterministic()
    asmtune.deterministic(False)
    assert not is_deterministic()
    with pytest.raises(InputError, match="yes"):
        asmtune.deterministic("yes")  # type: ignore[arg-type]
    runtime_options._choose(None)
    monkeypatch.setenv("ASMTUNE_DETERMINISTIC", "yes")
    with pytest.raises(InputError, match="ASMTUNE_DETERMINISTIC='yes'"):
        is_deterministic()


@pytest.mark.slow(seconds=20)
def test_two_processes_with_other_histories(tmp_path: Path) -> None:
    """Processes with other stores, histories and cores pick the same configs."""
    answers = []
    for number, (history, seed) in enumerate(((0, 0), (1, 7))):
        env = {
            **os.environ,
            "ASMTUNE_CACHE_DIR": str(tmp_path / str(number)),
            "ASMTUNE_DETERMINISTIC": "1",
            "ASMTUNE_JOBS": str(number + 1),
            "ASMTUNE_COMPILE_TIMEOUT_S": str(30 * (number + 1)),
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, str(Path(__file__).with_name("deterministic_process.py"))]
        done = subprocess.run(
            [*command, str(history), str(seed), *SIZES],
            env=env,
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    assert answers[0] == answers[1]
    assert {how for how, _ in answers[0].values()} == {"predicted"}


def test_stored_config_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored config comes first, also with force=True, and nothing is tuned."""
    monkeypatch.setattr(Tuner, "open", closed)
    slow = Config({"BLOCK": 2048, "FLAW": 0}, num_warps=1)
    at = miss()
    with Store.open(host.folder / "store.sqlite") as store:
        timing = Measurement(slow, 5.0, 5.0, 5.0, (5.0,))
        store.save(TuneRecord(at.key, slow, (timing,), provenance(at.problem, at.space)))
    with asmtune.deterministic():
        found = host.resolver(choices={"force": True}).resolve(miss())
    assert described(found) == ("known", True, slow)


def test_model_picks_otherwise(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key gets the model's pick whatever the options of a miss say."""
    monkeypatch.setattr(Tuner, "open", closed)
    other = Config({"BLOCK": 128, "FLAW": 0}, num_warps=1)
    options: list[dict[str, Any]] = [
        {},
        {"on_miss": "background"},
        {"on_miss": "predict"},
        {"skip_tuning_below_us": 1 << 20, "fallback": other},
    ]
    with asmtune.deterministic():
        found = [host.resolver(**each).resolve(miss()) for each in options]
        found.append(host.resolver().resolve(miss(), capturing=True))
    assert len({choice.config for choice in found}) == 1
    assert {(choice.how, choice.final) for choice in found} == {("predicted", True)}
    assert host.machine.timed == []
    with asmtune.deterministic(), pytest.raises(MissError, match="on_miss='raise'"):
        host.resolver(on_miss="raise").resolve(miss())


def test_ranks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank's pick is the model's whatever its job agreed on before; on_miss="raise" raises."""
    monkeypatch.setattr(Tuner, "open", closed)
    job = RankJob(dist.HashStore(), 0)
    monkeypatch.setattr(rank_agreement, "current_job", lambda: job)
    at = miss()
    slow = Config({"BLOCK": 2048, "FLAW": 0}, num_warps=1)
    RankAgreement(job, at.key, at.expected, at.configs).agree(lambda: slow)
    assert rank_agreement.resolve(host.resolver(), at).config == slow
    with asmtune.deterministic():
        with pytest.raises(MissError, match="on_miss='raise'"):
            rank_agreement.resolve(host.resolver(on_miss="raise"), at)
        picked = rank_agreement.resolve(host.resolver(), at)
    assert (picked.how, picked.final) == ("predicted", True)
    assert picked.config != slow


def test_ties_go_by_the_space(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among configs whose scores differ in their last bits at most, the first of the space wins."""
    order = list(miss().space.configs(n=4096))

    def level(*_: Any) -> Any:
        verdicts = [
            Verdict(config, kept=True, score=-1.0 + 1e-13 * place)
            for place, config in enumerate(order[:0:-1])
        ]
        return SimpleNamespace(verdicts=verdicts)

    monkeypatch.setattr(picks, "pick_report", level)
    assert picks.deterministic_pick(miss(), Settings.from_environment()) == order[1]


def test_what_a_key_does_not_hold() -> None:
    """Contents and memory of tensors, and a value's place in its bucket, do not reach the model."""
    first, second = miss(700), miss(1000)
    first, second = (
        replace(at, key=replace(at.key, shape={"pow2(n)": 1024})) for at in (first, second)
    )
    ids = torch.arange(8)
    problem = replace(first.problem, arguments={**first.problem.arguments, "ids": ids})
    configs = list(first.space.configs(n=700))
    canonical = picks.canonical_problem(problem, first.key, configs)
    assert canonical.arguments["n"] == 1024
    assert canonical.arguments["ids"].is_meta
    assert isinstance(canonical.index_table("ids"), str)
    assert problem.arguments["ids"] is ids
    other = picks.canonical_problem(second.problem, second.key, configs)
    assert other.arguments["n"] == 1024


@pytest.mark.parametrize("n", [1025, 1500, 2047])
@pytest.mark.parametrize(
    "grid",
    [
        lambda n: lambda v: (triton.cdiv(n, v["BLOCK"]),),
        lambda n: lambda v: (8, triton.cdiv(n, v["BLOCK"]), 3),
        lambda n: lambda v: (triton.cdiv(n, v["BLOCK"]) * triton.cdiv(640, v["OTHER"]),),
        lambda n: (n, 4),
        lambda _: lambda v: (triton.cdiv(v["n"], v["BLOCK"]),),
        lambda _: lambda v: (132, v["OTHER"]),
        lambda _: lambda v: (triton.cdiv(640, v["OTHER"]),),
    ],
)
def test_grids_at_the_end_of_a_bucket(grid: Any, n: int) -> None:
    """A grid counts blocks of the bucket's end, whether it reads its arguments or not."""
    at = miss(n)
    configs = [Config({"BLOCK": b, "OTHER": o}) for b in (64, 128, 1024) for o in (32, 256)]
    problem = replace(at.problem, kernel=blocks, grid=grid(n))
    found = picks.bucket_end_grid(problem, {"n": 2048}, configs)
    ended = replace(problem, grid=found, arguments={**problem.arguments, "n": 2048})
    true = replace(ended, grid=grid(2048))
    for config in configs:
        assert ended.programs(config) == true.programs(config)


def test_a_grid_at_the_end_of_a_bucket_beside_one_that_raises() -> None:
    """A config without a grid does not keep those of the others from the bucket's end."""
    configs = [Config({"BLOCK": block, "OTHER": 1}) for block in (64, 128, 256)]
    grid = lambda v: (triton.cdiv(1500, v["BLOCK"]) + 0 // (v["BLOCK"] - 64),)  # noqa: E731
    problem = replace(miss(1500).problem, kernel=blocks, grid=grid)
    found = picks.bucket_end_grid(problem, {"n": 2048}, configs)
    assert replace(problem, grid=found).programs(configs[1]) == (16, 1, 1)


@pytest.mark.parametrize("kind", ["timeout", "memory", "lost"])
def test_slow_machine_is_told(host: Host, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A config that only this machine could not compile gives one line; a next launch tries it."""
    real = flow.Funnel.prune

    def slow(self: flow.Funnel, problem: Problem, space: Any) -> Any:
        self.known["digest"] = Failure("ptxas", kind, "ended after 3 s")
        if kind == "lost":
            raise CompileError("no config can run")
        return real(self, problem, space)

    with asmtune.deterministic():
        with monkeypatch.context() as patch:
            patch.setattr(flow.Funnel, "prune", slow)
            with pytest.raises(CompileError, match="could not be compiled on this") as caught:
                host.resolver().resolve(miss())
        assert "\n" not in str(caught.value)
        assert host.resolver().resolve(miss()).how == "predicted"


@pytest.mark.parametrize("choices", [{"check": "bits"}, {"check": Bound(p99=1e-2)}])
def test_nothing_unchecked_is_launched(
    host: Host, monkeypatch: pytest.MonkeyPatch, choices: dict[str, Any]
) -> None:
    """With check="bits" or a bound, an untuned key gets the default wherever nothing is timed."""
    monkeypatch.setattr(Tuner, "open", closed)
    untimed = host.resolver(on_miss="predict", choices=choices)
    found = [untimed.resolve(miss())]
    found.append(host.resolver(choices=choices).resolve(miss(), capturing=True))
    with asmtune.deterministic():
        found.append(host.resolver(choices=choices).resolve(miss()))
    assert [choice.config for choice in found] == [support.DEFAULT] * 3
    assert [choice.final for choice in found] == [True, False, True]


def test_switch_reaches_planned_launches(machine: Imagined) -> None:
    """A key that was launched before the switch is chosen anew after it, and back again."""
    kernel = asmtune.asm_autotune(
        space={"BLOCK": [64, 128], "num_warps": [4, 8]}, key=["n"], skip_tuning_below_us=None
    )(torch_kernels.add)
    x = torch.arange(1000.0)
    chosen = Config({"BLOCK": 64}, num_warps=4)

    def launch() -> int:
        kernel[lambda v: (triton.cdiv(1000, v["BLOCK"]),)](x, x, torch.empty_like(x), 1000)
        return int(machine.launches[-1]["BLOCK"])

    assert launch() == 128
    forgotten: list[bool] = []
    kernel.cache.on_change = lambda: forgotten.append(is_deterministic())
    with asmtune.deterministic():
        assert forgotten == [True]
        key = next(iter(kernel.cache))
        kernel.cache[(*key, "deterministic")] = chosen
        assert launch() == 64
        torch.use_deterministic_algorithms(True)
    assert launch() == 64  # PyTorch's switch alone
    torch.use_deterministic_algorithms(False)
    assert launch() == 128
    assert forgotten[-1] is False
    assert len(machine.tuned) == 1


@pytest.mark.slow(seconds=2)
def test_compiled_graphs(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of `torch.compile` launches the config of an earlier launch, else the default.

    PyTorch's compiler does not tell the grid, without which nothing can be predicted.
    """
    monkeypatch.setattr(picks, "shipped_target", lambda _: load_target("H200"))
    n = 1 << 16

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[lambda v: (triton.cdiv(n, v["BLOCK"]),)](x, y, out, n)
        return out

    def decorated() -> Any:
        axes = {"BLOCK": [16, 64, 1024], "num_warps": [1, 8]}
        return asmtune.asm_autotune(space=axes, key=["n"])(torch_kernels.add)

    torch.use_deterministic_algorithms(True)
    kernel = decorated()
    x = torch.randn(n)
    graph = {"backend": "aot_eager", "fullgraph": True}
    torch.testing.assert_close(add(x, x), x + x)
    torch.testing.assert_close(torch.compile(add, **graph)(x, x), x + x)
    kernel = decorated()
    torch.compiler.reset()
    with pytest.warns(MissWarning, match="launch the key once before it is traced"):
        torch.testing.assert_close(torch.compile(add, **graph)(x, x), x + x)
    first, second, third = [(made["BLOCK"], made["num_warps"]) for made in machine.launches]
    assert first == second != third == (16, 1)
    assert machine.tuned == []
