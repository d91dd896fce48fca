"""`asmtune bench`: which configs it times, in which processes, and what it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.cli.kernel_arguments import KernelArguments
from asmtune.compile.load import Binary
from asmtune.core.config import Config
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, Outcome, Provenance, TuneKey, TuneRecord
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.timing.statistics import summarise
from asmtune.store.database import Store
from asmtune.tuning.request import key_of, provenance
from asmtune.workshop.regression import process_main
from asmtune.workshop.regression import processes as bench_processes
from asmtune.workshop.regression.plan import BenchRequest, launches_of, problem_of, row_to_json
from asmtune.workshop.regression.run import BenchRun, BenchSubject, Environment, read_run
from tests.command_lines import Commands

FAKE = (sys.executable, str(Path(__file__).with_name("fake_bench_process.py")))
WINNER = Config({"BLOCK": 256}, num_warps=2)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An H200 whose processes are played; the user's store is empty."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for place in ("measure.timing.nvml", "runtime.offline.tuning_queue"):
        monkeypatch.setattr(f"asmtune.{place}.device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(bench_processes, "COMMAND", FAKE)
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "own"))


def identity(path: Path, n: int, dtype: str = "fp16") -> tuple[TuneKey, Provenance]:
    """Give the identity that launches of the doubling kernel look for."""
    module = load_kernel_module(str(path))
    problem = module.problem({"n": n}, dtype, "meta")
    return key_of(problem, "NVIDIA H200"), provenance(problem, module.space())


def store(commands: Commands, *sizes: int, **changes: str) -> None:
    """Keep a config of the doubling kernel for each size."""
    folder = commands.folder / "own"
    folder.mkdir(exist_ok=True)
    timings = (Measurement(WINNER, 5.0, 4.0, 6.0, (5.0,)),)
    with Store.open(folder / "store.sqlite") as opened:
        for n in sizes:
            key, made = identity(commands.folder / "doubled.py", n)
            opened.save(TuneRecord(key, WINNER, timings, replace(made, **changes)))


def bench(commands: Commands, *arguments: str) -> tuple[int, str, BenchRun]:
    """Exit code, what it says, and the run that it writes."""
    path = commands.folder / "run.json"
    ran = commands.run("bench", "{}/doubled.py", *arguments, "-o", str(path))
    assert ran.out == ""
    return ran.code, ran.err, read_run(path)


def test_what_is_stored_is_timed(commands: Commands) -> None:
    """Each stored shape has a row of as many processes as asked for, with where it ran."""
    store(commands, 4096, 100)
    code, said, run = bench(commands, "--processes", "3", "--label", "abc")
    assert code == 0
    assert "process 3 of 3: 2 rows" in said
    assert [row.subject for row in run.rows] == [
        BenchSubject("doubled", {"n": n}, "fp16") for n in (4096, 100)
    ]
    first = run.rows[0]
    assert (first.config, first.layer, first.remark) == (WINNER, "store", "")
    assert [len(samples) for samples in first.samples] == [5, 5, 5]
    assert len({samples[0] for samples in first.samples}) == 3
    assert first.median_us == pytest.approx(40.96, rel=0.03)
    assert (run.label, run.environment.gpu, run.environment.board) == ("abc", "NVIDIA H200", "b0")
    assert [process.clocks for process in run.processes] == [{"sm_mhz": 1980}] * 3
    assert run.timing["flush_bytes"] == 256 << 20
    assert run.missed == ()


def test_no_stored_config(commands: Commands) -> None:
    """A shape of which nothing is stored is told with what to do; the others go on; exit 1."""
    store(commands, 4096)
    code, said, run = bench(
        commands, "--shape", "n=4096", "--shape", "n=7", "--dtype", "fp16", "--processes", "1"
    )
    assert code == 1
    advice = "asmtune tune {} --shape n=7 --dtype fp16".format(commands.folder / "doubled.py")
    assert f"asmtune: doubled n=7: no config is stored: {advice}" in said
    assert [row.subject.shape for row in run.rows] == [{"n": 4096}]
    ((subject, why),) = [(one.subject, one.why) for one in run.missed]
    assert (dict(subject.shape), why) == ({"n": 7}, "unknown")


def test_a_stale_record(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed kernel is timed on the config that it had; one out of the space is not timed."""
    store(commands, 4096, source="0" * 64)
    code, said, run = bench(commands, "--processes", "1")
    assert code == 0
    assert run.rows[0].remark == "config of an older record: source differs"
    assert "1 of 1 rows are timed on configs of older records" in said
    path = commands.folder / "doubled.py"
    module = load_kernel_module(str(path))
    space = module.space().replace(BLOCK=(128,))
    assert module.python is not None
    monkeypatch.setattr(module.python, "space", lambda: space)
    asked = BenchRequest([str(path)], ["n=4096"], None, "NVIDIA H200")
    (row,) = asked.plan(Settings.from_environment()).missed
    assert row.reason.startswith("the stored config is not in the space any more: asmtune tune")


@pytest.mark.parametrize(
    ("size", "says"),
    [(13, "its process died with SIGABRT"), (14, "registers at ptxas: too many")],
)
def test_a_row_that_fails(size: int, says: str, commands: Commands) -> None:
    """A kernel that fails, or ends its process, costs itself alone; it is told; exit 1."""
    store(commands, 100, size, 300)
    shapes = [option for n in (100, size, 300) for option in ("--shape", f"n={n}")]
    code, said, run = bench(commands, *shapes, "--processes", "2")
    assert code == 1
    assert f"asmtune: doubled n={size}: {says}" in said
    assert [(row.subject.shape["n"], len(row.samples)) for row in run.rows] == [(100, 2), (300, 2)]
    (missed,) = run.missed
    assert (missed.why, missed.reason) == ("failed", says)


@pytest.mark.slow
def test_a_row_that_hangs(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that says nothing any more is ended, and the others are timed."""
    monkeypatch.setattr(bench_processes, "PATIENCE_S", 2.0)
    store(commands, 15, 300)
    code, said, run = bench(commands, "--shape", "n=15", "--shape", "n=300", "--processes", "1")
    assert code == 1
    assert "n=15: its process gave no answer for 2 s" in said
    assert [row.subject.shape["n"] for row in run.rows] == [300]


HOSTS = """
import torch, triton
import triton.language as tl

SMS = torch.cuda.get_device_properties(0).multi_processor_count

@triton.jit
def doubled(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (128, 256)], key=["n"])(doubled)

def both(x, steps=2):
    assert x.is_cuda and SMS == 132
    tuned[lambda values: (triton.cdiv(x.numel(), values["BLOCK"]),)](x, x.numel())
    for step in range(steps):
        doubled[(triton.cdiv(x.numel(), 64),)](x, x.numel() - step, BLOCK=64, num_warps=2)
"""


def test_launches_of_a_function(commands: Commands) -> None:
    """A launch under an autotuner is timed on what is stored for it, others as they are made."""
    (commands.folder / "hosts.py").write_text(HOSTS)
    function = KernelArguments(f"{commands.folder}/hosts.py:both", values=("x=fp16[1024]",))
    arguments = ("bench", function.kernel, "--arg", "x=fp16[1024]", "-o", "{}/run.json")
    ran = commands.run(*arguments)
    assert ran.code == 1
    assert f"no config is stored: asmtune tune {function.kernel}, with the same" in ran.err
    launches = launches_of(function)
    request = launches.request(launches.launches[0], "NVIDIA H200")
    winner = Config({"BLOCK": 256})
    (commands.folder / "own").mkdir(exist_ok=True)
    with Store.open(commands.folder / "own/store.sqlite") as opened:
        timings = (Measurement(winner, 5.0, 4.0, 6.0, (5.0,)),)
        opened.save(TuneRecord(request.key, winner, timings, request.expected))
    assert commands.run(*arguments).code == 0
    rows = read_run(commands.folder / "run.json").rows
    assert {row.subject.dtype for row in rows} == {"fp16"}
    assert {row.subject.shape["x"] for row in rows} == {"fp16[1024]"}
    found = {
        row.subject.kernel: (row.layer, row.config.kwargs, row.config.num_warps) for row in rows
    }
    own = ("launch", {}, 2)
    assert found.pop("both/doubled") == ("store", {"BLOCK": 256}, 4)
    assert found == {"both/doubled#2": own, "both/doubled#3": own}
    plan = BenchRequest([function], (), None, "NVIDIA H200").plan(Settings.from_environment())
    for row in plan.rows:
        problem, config = problem_of(json.loads(json.dumps(row_to_json(row))), "cpu")
        assert config == row.config
        assert problem.arguments["x_ptr"].device.type == "cpu"
        assert problem.programs(config) == ((4,) if row.layer == "store" else (16,)) + (1, 1)
    assert [problem_of(row_to_json(row), "meta")[0].arguments["n"] for row in plan.rows] == [
        *(1024, 1024, 1023)
    ]


class Played:
    """Stands for a bench on a GPU: takes binaries of an H200, and gives known times."""

    def __init__(self, setup: BenchSetup) -> None:
        self._setup = setup

    def final(self, entrants: Sequence[TimingCandidate]) -> list[Outcome]:
        """As a `LocalBench`; the binary must be one that can be launched."""
        (entrant,) = entrants
        binary = Binary.of(self._setup.lowering, entrant.config, entrant.artifact)
        assert isinstance(binary, Binary)
        assert self._setup.effects.writes == {"x_ptr"}
        return [(entrant.config, summarise(entrant.config, [7.0, 8.0, 9.0]))]

    def close(self) -> None:
        """Nothing is kept."""


def said(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Collect the messages of the process, as its parent hears them."""
    for message in process_main.answers(plan):
        yield json.loads(json.dumps(message))


@pytest.mark.slow(seconds=1)
def test_a_process(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles each row's config for its GPU and times it, in an order by the seed."""
    here = Environment("NVIDIA H200", "", "580", {})
    original = process_main.problem_of
    monkeypatch.setattr(process_main, "environment_here", lambda: here)
    monkeypatch.setattr(process_main, "problem_of", lambda row, _: original(row, "meta"))
    monkeypatch.setattr(process_main, "read_clocks", lambda: {"sm_mhz": 1980})
    monkeypatch.setattr(process_main, "LocalBench", Played)
    row = {
        "reference": str(commands.folder / "doubled.py"),
        "sizes": {"n": 4096},
        "dtype": "fp16",
        "config": WINNER.to_dict(),
    }
    rows = {"0": row, "1": {**row, "sizes": {"n": 64}}, "2": {**row, "config": {"BLOCK": 7}}}
    rows["3"] = {**row, "reference": str(commands.folder / "broken.py")}
    first, *between, last = said({"rows": rows, "seed": 1})
    assert first == {
        "environment": {"gpu": "NVIDIA H200", "board": "", "driver": "580", "versions": {}}
    }
    assert last == {"clocks": {"sm_mhz": 1980}}
    found = {message["row"]: message for message in between if "row" in message}
    load = {"unit": "fp32", "flops": 4096.0, "bytes": 16384.0}
    assert found["0"] == {"row": "0", "samples": [7.0, 8.0, 9.0], "load": load}
    assert found["1"]["samples"] == [7.0, 8.0, 9.0]
    assert "its space has changed meanwhile" in found["2"]["failure"]
    assert "missing_name" in found["3"]["failure"]

    def order(seed: int) -> list[str]:
        plan = {"rows": rows, "seed": seed}
        return [message["running"] for message in said(plan) if "running" in message]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(4)}) > 1
