"""The benchmark over public packages: what it reads, calls equal, and does with failures."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packages.catalogue import FOLDER, FRESH, PLAIN, PROGRAMS, Program, Way
from benchmarks.packages.processes import Place
from benchmarks.packages.programs import stopwatch
from benchmarks.packages.programs.stopwatch import ROUNDS
from benchmarks.packages.rounds import run_ways
from benchmarks.packages.summary import document, judged, summary
from benchmarks.packages.tolerances import UNITS, compared, difference

TORCH_PROGRAM = f"""\
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
import torch
from stopwatch import main

def operation(name):
    def make(place):
        if name == "crashes":
            sys.exit("out of memory")
        x = torch.randn(64)
        print("no answer")
        assert "triton_cache_dir" in os.environ["TRITON_CACHE_DIR"]
        calls = []
        def call():
            calls.append(1)
            if name == "later" and len(calls) > 4:
                sys.exit("lost in a round")
            return {{"y": x * 2}}
        return call
    return make

main({{name: operation(name) for name in ("good", "crashes", "later", "last")}})
"""
ORIGIN = {"date": "2026-11-28T12:00:00", "commit": "abc"}
CPU = ("--device", "cpu", "--small")


def _run(
    program: Program, folder: Path, ways: Sequence[Way], limit_s: float = 600.0
) -> dict[str, dict[str, Any]]:
    """Run a program on the CPU in some ways, each with its outputs in a folder of its name."""
    places = {
        way: Place(folder / way.caches, folder / "out" / way.name, limit_s, arguments=CPU)
        for way in ways
    }
    return run_ways(program, places)


def _program(tmp_path: Path, *operations: str, text: str = TORCH_PROGRAM) -> Program:
    class Written(Program):
        path = tmp_path / "program.py"

    Written.path.write_text(text)
    return Written("program", "torch", operations)


@pytest.mark.parametrize("dtype", UNITS)
@given(seed=st.integers(0, 1000), share=st.floats(0.0, 0.9))
def test_rounding_is_equal(dtype: torch.dtype, seed: int, share: float) -> None:
    """Values off by less than a unit everywhere are equal; the same are equal bit for bit."""
    values = torch.randn(64, generator=torch.Generator().manual_seed(seed)).to(dtype)
    off = (values.double() * (1 + share * UNITS[dtype] / 2)).to(dtype)
    assert difference(values, off)["equal"]
    same = difference(values, values.clone())
    assert same["bitwise"]
    assert same["max_abs"] == 0.0


@pytest.mark.parametrize("dtype", UNITS)
@given(place=st.integers(0, 63), units=st.floats(20.0, 1e4))
def test_one_wrong_value_is_not_equal(dtype: torch.dtype, place: int, units: float) -> None:
    """One value that is off by more than rounding explains makes an output differ."""
    values = torch.linspace(-1.0, 1.0, 10_000, dtype=torch.float64).to(dtype)
    wrong = values.clone()
    wrong[place] += units * UNITS[dtype]
    assert not difference(values, wrong)["equal"]


@pytest.mark.parametrize("dtype", UNITS)
def test_all_slightly_wrong_is_not_equal(dtype: torch.dtype) -> None:
    """Values that are all off by 3 units are none that rounding explains, though none is far."""
    values = torch.linspace(0.5, 1.0, 64, dtype=torch.float64).to(dtype)
    row = difference(values, values + 3 * UNITS[dtype])
    assert row["max_share"] < 8 * UNITS[dtype]
    assert not row["equal"]


def test_odd_values() -> None:
    """Infinities and NaN must stand at the same places; integers and forms must be the same."""
    odd = torch.tensor([float("inf"), float("nan"), 1.0])
    assert difference(odd, odd.clone())["equal"]
    assert not difference(odd, torch.tensor([float("-inf"), float("nan"), 1.0]))["equal"]
    assert not difference(odd, torch.tensor([float("inf"), 0.0, 1.0]))["equal"]
    whole = torch.tensor([1, 2, 1000])
    assert difference(whole, whole.clone())["equal"]
    assert not difference(whole, torch.tensor([1, 2, 1001]))["equal"]
    assert "float16(2,)" in difference(torch.ones(2), torch.ones(2).half())["why"]
    assert not compared({"y": whole}, {})["y"]["equal"]
    assert difference(torch.zeros(3), torch.full((3,), 1e-9))["max_share"] == float("inf")
    assert difference(torch.ones(0), torch.ones(0))["equal"]


@pytest.mark.slow(seconds=15)
def test_rounds_alternate(tmp_path: Path) -> None:
    """Live processes are timed in turns; one that ends fails its own operation alone.

    `asmtune run` runs the same file with the same arguments.
    """
    program = _program(tmp_path, "good", "crashes", "later", "last")
    ran = _run(program, tmp_path, [PLAIN, FRESH])
    plain, own = ran["plain"]["operations"], ran["asmtune"]["operations"]
    for rows in (plain, own):
        assert rows["crashes"] == {"error": "ended with exit code 1: out of memory"}
    # The process of the good one ended with the crash.
    assert plain["good"].keys() == {"first_s"}
    assert "the plain program's process has ended" in own["good"]["later_error"]
    assert plain["later"]["later_error"].endswith("lost in a round")
    assert "the plain program's process has ended" in own["last"]["later_error"]
    ran = _run(_program(tmp_path, "good", "last"), tmp_path / "again", [PLAIN, FRESH])
    plain, own = ran["plain"]["operations"], ran["asmtune"]["operations"]
    assert len(own["good"]["rounds"]["speed_of_call"]) == ROUNDS
    assert own["good"]["rounds"]["plain"]["call_us"] == plain["good"]["call_us"] > 0.0
    assert own["good"]["calls_a_round"] == plain["good"]["calls_a_round"] == 1
    rows = judged(ran, {name: tmp_path / "again" / "out" / name for name in ran})
    assert rows["good"]["verdict"] == "equal"
    assert rows["good"]["speed_of_call"]["asmtune"] > 0.0


def test_overlaps_count_once() -> None:
    """The GPU is busy as long as any kernel runs; the gaps between kernels are not its time."""
    assert stopwatch.busy_us([(10.0, 12.0), (0.0, 4.0), (1.0, 2.0), (3.0, 5.0)]) == 7.0
    assert stopwatch.busy_us([]) == 0.0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs(program: Program) -> None:
    """A program runs the operations that the catalogue has, and does not know asmtune."""
    text = program.path.read_text()
    assert "asmtune" not in text
    (call,) = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "main"
    )
    (operations,) = call.args
    assert isinstance(operations, ast.Dict)
    assert tuple(ast.literal_eval(key) for key in operations.keys if key) == program.operations


def _told(first_s: float, speed: float | None = None) -> dict[str, Any]:
    """Make the result of an operation: the plain program's, or one that was timed beside it."""
    row: dict[str, Any] = {"first_s": first_s}
    if speed is not None:
        # Second is 4/9 of the speed of first, whoever that is; the last round has no partner.
        around = [speed * share for share in (1.5, 2 / 3, 0.6, 1.35, 1.65, 2.2 / 3, 9.0)]
        row["rounds"] = {"speed": around, "speed_of_call": around}
    return {"operations": {"op": row}}


def _save(folder: Path, first: torch.Tensor, last: torch.Tensor) -> Path:
    folder.mkdir()
    torch.save({"first": {"y": first}, "last": {"y": last}}, folder / "op.pt")
    return folder


def test_judged(tmp_path: Path) -> None:
    """The first call under asmtune counts as the last does; a speed is that of round pairs."""
    right, wrong = torch.ones(8), torch.tensor([1.0] * 7 + [2.0])
    told = {
        "plain": _told(9.0),
        "asmtune": _told(4.0, speed=1.5),
        "asmtune_warm": _told(1.0, speed=0.75),
    }
    outputs = {
        "plain": _save(tmp_path / "plain", right, right),
        "asmtune": _save(tmp_path / "asmtune", wrong, right),
        "asmtune_warm": _save(tmp_path / "warm", right, right),
    }
    row = judged(told, outputs)["op"]
    assert row["equal"] is False
    assert row["verdict"] == "differ"
    assert row["outputs"]["asmtune"]["y"]["max_abs"] == 1.0
    assert row["outputs"]["asmtune_warm"]["y"]["equal"]
    assert row["speed"] == {"asmtune": 1.5, "asmtune_warm": 0.75}
    assert row["first_s"] == {"plain": 9.0, "asmtune": 4.0, "asmtune_warm": 1.0}
    _save(tmp_path / "repaired", right, right)
    repaired = judged(told, {**outputs, "asmtune": tmp_path / "repaired"})
    assert repaired["op"]["equal"] is True
    programs = [{"package": "p 1.0", "provenance": ORIGIN, "operations": repaired}]
    whole = summary(programs)
    assert (whole["operations"], whole["equal"], whole["unequal"]) == (1, 1, 0)
    assert whole["first_s"] == {"asmtune": 4.0, "asmtune_warm": 1.0, "plain": 9.0}
    assert whole["speed"]["asmtune"] == {"geomean": 1.5, "worst": 1.5}
    assert "| p, op | 9.0 s | 4.0 s | 1.00 s | 1.500 | equal | 2026-11-28, abc |" in document(
        programs
    )
