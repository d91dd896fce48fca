"""`asmtune.bench`, `check`, `prune_report` and `roofline`: the records of the commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import asmtune
from asmtune.base.errors import InputError, MeasureError
from asmtune.cli.app import run as run_command
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.report.documents import report_json
from asmtune.runtime.offline.kernel_sources import reference_of
from asmtune.store.database import Store
from asmtune.tuning.request import key_of, provenance
from asmtune.workshop.regression import processes as bench_processes
from asmtune.workshop.regression.check_page import check_json
from asmtune.workshop.regression.run import read_run, write_run
from asmtune.workshop.roofline.document import chart_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BASE, RUN = RESULTS / "h200_bench_base.json", RESULTS / "h200_bench_run.json"
FAKE = ROOT / "tests" / "workshop" / "regression" / "fake_bench_process.py"

MODULE = """
import torch, triton, triton.language as tl
from asmtune import Problem, Space

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def space():
    return Space({"BLOCK": (128, 256), "num_warps": (2, 4)})

SHAPES = ({"n": 4096}, {"n": 100})
DTYPES = ("fp16", "fp32")

def problem(shape, dtype, device):
    x = torch.empty(shape["n"], dtype=getattr(torch, {"fp16": "float16"}.get(dtype, "float32")),
                    device=device)
    grid = lambda values: (triton.cdiv(shape["n"], values["BLOCK"]),)
    return Problem(kernel, {"x_ptr": x, "n": shape["n"]}, grid, shape, "doubled")
"""


@pytest.fixture
def doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a kernel module, with a store of its own."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(tmp_path / "store.sqlite"))
    path = tmp_path / "doubled.py"
    path.write_text(MODULE)
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command and return what it prints on stdout."""
    capsys.readouterr()
    run_command(arguments)
    return capsys.readouterr().out


def without_times(text: str) -> object:
    """Read a JSON document and drop what differs from run to run."""
    document = json.loads(text)
    for report in document.get("reports", ()):
        del report["seconds"]
    document.pop("date", None)
    return document


def test_prune_report_is_what_the_command_prints(
    doubled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, its loaded module, and its problem with its space give the command's record."""
    options = ("--shape", "n=100", "--dtype", "fp32", "--keep", "2", "--format", "json")
    command = without_times(printed(capsys, "prune-report", str(doubled), *options))
    module = load_kernel_module(str(doubled))
    problem = module.problem({"n": 100}, "fp32", "meta")
    reports = [
        asmtune.prune_report(str(doubled), shape={"n": 100}, dtype="fp32", keep=2, compile="all"),
        asmtune.prune_report(module, shape={"n": 100}, dtype="fp32", keep="2", compile="all"),
        asmtune.prune_report(
            problem, module.space(), target=load_target("H200"), keep=2, compile="all"
        ),
    ]
    for report in reports:
        assert report.target == "H200"
        document = without_times(report_json([report]))
        assert document["reports"][0]["verdicts"] == command["reports"][0]["verdicts"]
        assert document["reports"][0]["selection"] == command["reports"][0]["selection"]


def test_prune_report_refuses(doubled: Path) -> None:
    """A problem without a space, an unknown device or budget, and a plain function."""
    module = load_kernel_module(str(doubled))
    problem = module.problem({"n": 100}, "fp16", "meta")
    for given, options, says in (
        ((problem,), {}, "give its space"),
        ((problem, module.space()), {"shape": {"n": 100}}, "neither shape nor dtype"),
        ((module,), {"target": "H2000"}, "H2000"),
        ((module,), {"keep": "many"}, "keep 'many'"),
        ((module,), {"shape": {"m": 1}}, "lacks n"),
        ((f"{doubled}:kernel",), {}, "is a plain function"),
    ):
        with pytest.raises(InputError, match=says):
            asmtune.prune_report(*given, **options)  # type: ignore[arg-type]


@pytest.mark.slow(seconds=1)
def test_roofline_is_what_the_command_prints(
    doubled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chart of two shapes is the command's, for names, modules, mappings and texts."""
    options = ("--shape", "n=4096", "--shape", "n=100", "--format", "json")
    command = without_times(printed(capsys, "roofline", str(doubled), *options))
    module = load_kernel_module(str(doubled))
    for kernels in (str(doubled), [doubled], module):
        chart = asmtune.roofline(kernels, shapes=[{"n": 4096}, "n=100"])
        assert without_times(chart_json(chart)) == command
    alone = asmtune.roofline(module, target=load_target("H200"), shapes={"n": 100})
    assert [entry.shape for entry in alone.entries] == [{"n": 100}]


def test_check_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The committed runs are judged alike by the command, from files and from records."""
    options = ("--baseline", str(BASE), "--format", "json")
    command = json.loads(printed(capsys, "check", str(RUN), *options))
    result = asmtune.check(str(RUN), BASE)
    assert json.loads(check_json(result)) == command
    assert result.outcome == "fine"
    assert asmtune.check(read_run(RUN), read_run(BASE)) == result
    fast = asmtune.check(RUN, BASE, threshold=1e-9, level=0.5)
    assert fast.terms.words == "threshold 1e-07%, level 50%"


def test_check_refuses(tmp_path: Path) -> None:
    """A file that is not there, and options out of range."""
    with pytest.raises(InputError, match=r"baseline .*none.json: No such file"):
        asmtune.check(RUN, tmp_path / "none.json")
    for name, value in (("threshold", 0), ("level", 0.6)):
        with pytest.raises(InputError, match=f"{name}={value}: "):
            asmtune.check(RUN, BASE, **{name: value})


def test_bench_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says that there is no GPU; an unknown kernel is told first."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasureError) as raised:
        asmtune.bench("softmax")
    assert "needs a CUDA GPU" in str(raised.value)
    with pytest.raises(InputError, match="unknown kernel 'softmaxx'"):
        asmtune.bench("softmaxx")
    with pytest.raises(InputError, match="processes=0: give a number from 1 to 200"):
        asmtune.bench("softmax", processes=0)


def test_bench_times_what_is_stored(
    doubled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run holds every sample of stand-in processes, and `check` takes it as it is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("asmtune.measure.timing.nvml.device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(bench_processes, "COMMAND", (sys.executable, str(FAKE)))
    with pytest.raises(InputError, match="no config is stored for any of it on NVIDIA H200"):
        asmtune.bench(str(doubled))
    module, winner = load_kernel_module(str(doubled)), Config({"BLOCK": 256}, num_warps=2)
    with Store.open(tmp_path / "store.sqlite") as store:
        for n in (4096, 100):
            problem = module.problem({"n": n}, "fp16", "meta")
            key, made = key_of(problem, "NVIDIA H200"), provenance(problem, module.space())
            timings = (Measurement(winner, 5.0, 4.0, 6.0, (5.0,)),)
            store.save(TuneRecord(key, winner, timings, made))
    run = asmtune.bench(module, processes=4, label="abc")
    assert (run.label, len(run.processes)) == ("abc", 4)
    assert [row.subject.shape["n"] for row in run.rows] == [4096, 100]
    assert [len(row.samples) for row in run.rows] == [4, 4]
    assert run.missed == ()
    write_run(tmp_path / "run.json", run)
    assert asmtune.check(tmp_path / "run.json", run, level=0.1).outcome == "fine"
    few = asmtune.bench([str(doubled)], shapes=[{"n": 100}, "n=7"], dtype="fp16", processes=1)
    assert [row.subject.shape["n"] for row in few.rows] == [100]
    assert [missed.subject.shape["n"] for missed in few.missed] == [7]


def test_references_of_kernels(doubled: Path) -> None:
    """Another process finds a module by its name, or by the absolute path of its file."""
    assert reference_of("softmax") == "softmax"
    assert reference_of(load_kernel_module("softmax")) == "softmax"
    assert reference_of(doubled) == str(doubled.resolve())
    assert reference_of(load_kernel_module(str(doubled))) == str(doubled.resolve())
