"""Collecting: rows of the oracle's form, turns, and the budget; the clock is a stand-in."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.measure.timing.clock import Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.replay import collect
from asmtune.workshop.replay.collect import Collector
from asmtune.workshop.replay.oracle import load_oracle
from tests.sample_kernels import scale, scale_problem

DTYPES = {"fp16": torch.float16, "fp32": torch.float32}


class ByBlock:
    """A clock by which a block of 256 takes 256 us, and one of 512 does not launch."""

    def __init__(self, policy: TimingPolicy) -> None:
        """Any policy will do."""

    def warm_up(self, subject: Subject) -> Failure | None:
        """Refuse the blocks of 512."""
        slow = subject.config.kwargs["BLOCK"] == 512
        return Failure("launch", "launch", "too slow") if slow else None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """As many microseconds as the block has elements."""
        return [float(subject.config.kwargs["BLOCK"]) for subject in subjects]


def module(
    name: str, sizes: Sequence[int], dtypes: Sequence[str] = ("fp16",), **axes: Any
) -> KernelModule:
    """`scale` under a name, on some sizes; it insists on a GPU's name."""

    def problem(shape: Shape, dtype: str, device: str) -> Problem:
        assert device == "cuda"
        return replace(scale_problem(shape["n"], DTYPES[dtype]), name=name)

    space = Space({"BLOCK": (128, 256), **axes})
    shapes = tuple({"n": n} for n in sizes)
    return KernelModule(name, scale, lambda: space, problem, shapes, tuple(dtypes))


@pytest.fixture
def collector(target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """A collector whose clock needs no GPU."""
    monkeypatch.setattr(collect, "GpuClock", ByBlock)
    return Collector(Funnel(target, make_scorer("chance"), settings))


def test_rows_of_the_oracle(collector: Collector, tmp_path: Path) -> None:
    """Timed rows have ms and resources, others a reason, and `load_oracle` takes them."""
    blocks = {"BLOCK": (100, 128, 256, 512), "num_warps": (4, 64)}
    (task,) = collector.tasks([module("scale", [4096], **blocks)])
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"meta": {"device": "NVIDIA H200"}, "tasks": [task]}))
    (read,) = load_oracle(path).tasks
    assert (read.kernel, read.shape, read.dtype) == ("scale", {"n": 4096}, "fp16")
    rows = {(row.config.kwargs["BLOCK"], row.config.num_warps): row for row in read.rows}
    assert len(rows) == len(read.rows) == 8
    assert {place: row.ms for place, row in rows.items() if row.ms} == {
        (128, 4): 0.128,
        (256, 4): 0.256,
    }
    timed = rows[256, 4]
    assert set(timed.resources) == {"regs", "spills", "shared"}
    assert timed.resources["regs"] > 0
    assert timed.resources["spills"] == timed.resources["shared"] == 0
    assert rows[512, 4].error == "launch at launch: too slow"
    assert "power of 2" in (rows[100, 4].error or "")
    assert "64 warps" in (rows[128, 64].error or "")


def test_nothing_is_given_up_early(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest config has its five samples too, and the contenders sixteen more."""
    rounds: list[list[int]] = []

    class Counting(ByBlock):
        """A clock that notes who is timed together."""

        def round(self, subjects: Sequence[Subject]) -> list[float]:
            blocks = [subject.config.kwargs["BLOCK"] for subject in subjects]
            rounds.append(sorted(blocks))
            return [{64: 8000.0, 128: 100.0, 256: 110.0}[block] for block in blocks]

    monkeypatch.setattr(collect, "GpuClock", Counting)
    list(collector.tasks([module("scale", [4096], BLOCK=(64, 128, 256))]))
    assert rounds == [[64, 128, 256]] * 5 + [[128, 256]] * 16


@pytest.mark.parametrize(("seconds", "expected"), [(0, 1), (25, 3), (1e9, 5)])
def test_modules_take_turns(
    seconds: float, expected: int, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First shapes of all modules come first, each in all its dtypes, until the time is over.

    Each task takes ten seconds here. A row's config makes the same config again.
    """
    now = [0.0]
    monkeypatch.setattr(collect, "time", SimpleNamespace(monotonic=lambda: now[0]))
    caps = {"maxnreg": (None, 64), "num_stages": (2,)}
    modules = [module("one", [512, 1024, 2048], **caps), module("two", [4096], ("fp16", "fp32"))]
    order = []
    for task in replace(collector, seconds=seconds).tasks(modules):
        order.append((task["kernel"], task["shape"]["n"], task["dtype"]))
        configs = [Config.from_dict(row["config"]) for row in task["rows"]]
        assert task["kernel"] == "two" or configs == [
            Config({"BLOCK": block}, num_stages=2, maxnreg=cap)
            for block in (128, 256)
            for cap in (None, 64)
        ]
        now[0] += 10
    assert (
        order
        == [
            ("one", 512, "fp16"),
            ("two", 4096, "fp16"),
            ("two", 4096, "fp32"),
            ("one", 1024, "fp16"),
            ("one", 2048, "fp16"),
        ][:expected]
    )


KERNEL = """
from asmtune.core.space.space import Space
from tests.sample_kernels import scale as kernel, scale_problem

SHAPES = ({"n": 4096}, {"n": 8192})
DTYPES = ("fp16",)

def space():
    return Space({"BLOCK": (128, 256)})

def problem(shape, dtype, device):
    return scale_problem(shape["n"])
"""


@pytest.mark.parametrize("name", ["found.json", "found.json.gz"])
def test_command(
    name: str,
    collector: Collector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command writes a whole file after each task, and tells what it has done.

    A warning names a task of which nothing runs; the file leaves it out.
    """
    made: list[TimingPolicy] = []

    class FirstFails(ByBlock):
        """A clock that refuses all of the first task."""

        def __init__(self, policy: TimingPolicy) -> None:
            made.append(policy)
            self.refuses = len(made) == 1

        def warm_up(self, subject: Subject) -> Failure | None:
            no = Failure("launch", "launch", "no")
            return no if self.refuses else super().warm_up(subject)

    monkeypatch.setattr(collect, "GpuClock", FirstFails)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    kernel, output = tmp_path / "mine.py", tmp_path / name
    kernel.write_text(KERNEL)
    command = importlib.import_module("asmtune.workshop.replay.command")
    command.collect([str(kernel)], output, 1e9)
    oracle = load_oracle(output)
    assert oracle.device == "NVIDIA H200"
    assert [task.shape["n"] for task in oracle.tasks] == [8192]
    assert [row.ms for row in oracle.tasks[0].rows] == [0.128, 0.256]
    assert output.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("n=4096 fp16: 0 timed, 2 not, none timed")
    assert second.endswith("n=8192 fp16: 2 timed, 0 not, 128.0 to 256.0 us")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(
        [kernel.name, name]
    )
