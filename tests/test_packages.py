"""The benchmark over public packages: what it reads, calls equal, and does with failures."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.store.trace.writer import TraceWriter
from benchmarks.packages import processes
from benchmarks.packages.catalogue import AGAIN, FRESH, PLAIN, PROGRAMS, WARM, Program
from benchmarks.packages.processes import Place, run_program
from benchmarks.packages.summary import judged, summary, table
from benchmarks.packages.tolerances import UNITS, compared, difference, worst
from benchmarks.packages.tunings import by_asmtune, by_triton, traces
from tests.trace_runs import ENDING, HEADER

PRINTED = """\
noise
Autotuning kernel fwd with config BLOCK: 64, num_warps: 4
Autotuning kernel fwd with config BLOCK: 128, num_warps: 4
Triton autotuning for function fwd,
with key as (4096, 'torch.bfloat16'),
finished after 1.25s,
best config selected: BLOCK: 64, num_warps: 4;
operation first: first call 1.40 s
Autotuning kernel bmm_kernel with config TILE_M: 32
Triton autotuning for function bmm_kernel finished after 0.50s; key info: (1, 2), best config;
operation second: first call 0.60 s
Autotuning kernel bwd with config BLOCK: 64
Triton autotuning for function bwd,
with key as (),
finished after 0.75s,
best config selected: BLOCK: 64;
"""

TORCH_PROGRAM = """\
import json, os, sys, time
from pathlib import Path
folder, names = Path(sys.argv[1]), sys.argv[3].split(",")
told = {"operations": {}}
for name in names:
    if name == "crashes":
        sys.exit("out of memory")
    if name == "hangs":
        time.sleep(600)
    began = time.time()
    print(f"Autotuning kernel {name} with config BLOCK: 64")
    print(f"Triton autotuning for function {name} finished after 0.25s; key info")
    print(f"operation {name}: first call 0.30 s")
    print("caches in", os.environ["TRITON_CACHE_DIR"])
    told["operations"][name] = {"first_s": 0.3, "first_at": [began, time.time()]}
    (folder / "times.json").write_text(json.dumps(told))
"""


def _program(tmp_path: Path, *operations: str, text: str = TORCH_PROGRAM) -> Program:
    class Written(Program):
        path = tmp_path / "program.py"

    Written.path.write_text(text)
    return Written("program", "torch", operations)


def test_what_triton_tuned() -> None:
    """Keys on four lines and on one are found, with their configs, in the operation they are of."""
    assert by_triton(PRINTED) == {
        "first": [{"kernel": "fwd", "configs": 2, "seconds": 1.25}],
        "second": [{"kernel": "bmm_kernel", "configs": 1, "seconds": 0.5}],
        "": [{"kernel": "bwd", "configs": 1, "seconds": 0.75}],
    }


def test_what_triton_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the installed Triton prints when it tunes is what is read."""
    import triton

    monkeypatch.setattr(triton.knobs.autotuning, "print", True)

    def doubled(n: int, BLOCK: int) -> None:
        """Stands for the function of a kernel."""

    class Kernel:
        fn = staticmethod(doubled)
        arg_names = ("n", "BLOCK")

        def run(self, *args: Any, **keywords: Any) -> None:
            """Launches nothing."""

    def do_bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    configs = [triton.Config({"BLOCK": size}) for size in (64, 128, 256)]
    tuner = triton.runtime.Autotuner(
        Kernel(), Kernel.arg_names, configs, ["n"], None, None, do_bench=do_bench
    )
    tuner.run(4096, grid=(1,))
    (row,) = by_triton(capsys.readouterr().out)[""]
    assert (row["kernel"], row["configs"]) == ("doubled", 3)


def test_what_asmtune_tuned(tmp_path: Path) -> None:
    """A trace is told with its counts, in the operation in which it ended; known ones are not."""
    TraceWriter(tmp_path, HEADER).end(ENDING)
    before = traces(tmp_path)
    TraceWriter(tmp_path, HEADER).end(ENDING)
    (new,) = set(traces(tmp_path)) - set(before)
    os.utime(tmp_path / new, (50.0, 50.0))
    found = by_asmtune(tmp_path, before, {"early": (0.0, 10.0), "late": (40.0, 60.0)})
    ((row,),) = found.values()
    assert list(found) == ["late"]
    assert (row["kernel"], row["compiled"], row["timed"]) == ("doubled", 4, 3)


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


@pytest.mark.slow
def test_failures_are_told(tmp_path: Path) -> None:
    """What ends its process or lasts too long is an error of its own; the others have results."""
    program = _program(tmp_path, "good", "crashes", "fine", "hangs", "last")
    told = run_program(program, PLAIN, Place(tmp_path / "caches", tmp_path / "out", 5.0))
    rows = told["operations"]
    assert rows["crashes"] == {"error": "out of memory"}
    assert rows["hangs"] == {"error": "killed after its limit of 5 s"}
    for name in ("good", "fine", "last"):
        tuned = [{"kernel": name, "configs": 1, "seconds": 0.25}]
        assert rows[name] == {"first_s": 0.3, "tuned_by_triton": tuned, "tuned_by_asmtune": []}
    assert told["seconds"] > 5.0
    assert str(tmp_path / "caches") in (tmp_path / "out" / "stdout").read_text()


@pytest.mark.slow
def test_a_program_under_asmtune(tmp_path: Path) -> None:
    """`asmtune run` runs the same file with the same arguments, and its failure is told alike."""
    program = _program(tmp_path, "good", "crashes")
    told = run_program(program, FRESH, Place(tmp_path / "caches", tmp_path / "out", 60.0))
    assert told["operations"]["good"]["first_s"] == 0.3
    assert told["operations"]["crashes"] == {"error": "out of memory"}
    assert told["predicted"] == []


def test_no_process_after_the_end(tmp_path: Path) -> None:
    """Once the time of all together is over nothing is started, and it is said so."""
    program = _program(tmp_path, "good")
    told = run_program(program, PLAIN, Place(tmp_path / "caches", tmp_path / "out", 5.0, end=0.0))
    assert "not started" in told["operations"]["good"]["error"]
    assert not (tmp_path / "out" / "stdout").exists()


def test_ways() -> None:
    """Both plain ways share caches, and both of asmtune's; the program's file comes last."""
    assert PLAIN.caches == AGAIN.caches != FRESH.caches == WARM.caches
    assert PLAIN.command == ()
    assert FRESH.command == WARM.command == ("-m", "asmtune", "run")
    environment = processes._environment(Place(Path("a"), Path("b"), 1.0))
    assert len({environment[name] for name in processes._CACHES}) == len(processes._CACHES)


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


def _told(first_s: float, gpu_us: float, own: int = 0) -> dict[str, Any]:
    """Make an operation that tuned one key: asmtune of `own` compiled configs, or Triton of 9."""
    row: dict[str, Any] = {"first_s": first_s, "gpu_us": gpu_us, "call_us": 2 * gpu_us}
    triton = {"kernel": "k", "configs": 9, "seconds": first_s / 2}
    asmtune = {"kernel": "k", "compiled": own, "timed": own - 1, "seconds": first_s / 4}
    row["tuned_by_triton"] = [] if own else [triton]
    row["tuned_by_asmtune"] = [asmtune, {"kernel": "killed"}] if own else []
    return {"operations": {"op": row}}


def _save(folder: Path, first: torch.Tensor, last: torch.Tensor) -> Path:
    folder.mkdir()
    torch.save({"first": {"y": first}, "last": {"y": last}}, folder / "op.pt")
    return folder


def test_judged(tmp_path: Path) -> None:
    """The first call under asmtune counts as the last does, and times are plain over asmtune's."""
    right, wrong = torch.ones(8), torch.tensor([1.0] * 7 + [2.0])
    told = {
        "plain": _told(9.0, 30.0),
        "asmtune": _told(4.0, 20.0, own=5),
        "asmtune_warm": _told(1.0, 40.0),
    }
    outputs = {
        "plain": _save(tmp_path / "plain", right, right),
        "asmtune": _save(tmp_path / "asmtune", wrong, right),
        "asmtune_warm": _save(tmp_path / "warm", right, right),
    }
    row = judged(told, outputs)["op"]
    assert row["equal"] is False
    assert row["outputs"]["asmtune"]["y"]["max_abs"] == 1.0
    assert row["outputs"]["asmtune_warm"]["y"]["equal"]
    assert row["speed"] == {"asmtune": 1.5, "asmtune_warm": 0.75}
    assert row["first_s"] == {"plain": 9.0, "asmtune": 4.0, "asmtune_warm": 1.0}
    counts = {"keys": 2, "keys_by_triton": 0, "compiled": 5, "timed": 4, "seconds": 1.0}
    assert row["tuning"]["asmtune"] == counts
    plain = {"keys": 1, "keys_by_triton": 1, "compiled": 9, "timed": 9, "seconds": 4.5}
    assert row["tuning"]["plain"] == plain
    _save(tmp_path / "repaired", right, right)
    repaired = judged(told, {**outputs, "asmtune": tmp_path / "repaired"})
    assert repaired["op"]["equal"] is True
    programs = [{"program": "p", "operations": repaired}]
    whole = summary(programs)
    assert (whole["operations"], whole["equal"], whole["unequal"]) == (1, 1, 0)
    assert whole["first_s"] == {"asmtune": 4.0, "asmtune_warm": 1.0, "plain": 9.0}
    assert whole["tuning"]["asmtune"] == counts
    assert whole["speed"]["asmtune"] == {"geomean": 1.5, "worst": 1.5}
    assert "p op" in table(programs)


@pytest.mark.parametrize("failed", ["plain", "asmtune"])
def test_judged_without_a_result(tmp_path: Path, failed: str) -> None:
    """Where one way has no result nothing is called equal, and the error is kept."""
    told: dict[str, Any] = {"plain": _told(9.0, 30.0), "asmtune": _told(3.0, 20.0)}
    told[failed] = {"operations": {"op": {"error": "killed"}}}
    result = judged(told, {})
    assert result["op"]["equal"] is None
    assert result["op"]["errors"] == {failed: "killed"}
    assert result["op"]["speed"] == {}
    programs = [{"program": "p", "operations": result}]
    assert summary(programs)["without_result"] == 1
    assert "killed" in table(programs)


def test_worst() -> None:
    """An output that cannot be compared counts as further off than any that can."""
    rows = [{"max_share": 0.5}, {"why": "shape"}, {"max_share": 0.75}]
    assert worst(rows) == {"why": "shape"}
    assert worst(rows[::2]) == {"max_share": 0.75}
