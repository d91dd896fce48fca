"""Counters of `ncu`: its CSV, its failures, and the model beside them; a stand-in is the tool."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import triton.language as tl

from asmtune.cli.app import run
from asmtune.core.config import Config
from asmtune.core.kernel_module import load_kernel_module
from asmtune.report.explain.ncu import (
    METRICS,
    CountedLaunch,
    CountersError,
    launch_twice,
    parse_csv,
    read_counters,
)

PLACES = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Block Size","Grid Size","Device","CC"'
)
LAUNCH = CountedLaunch("softmax", {"rows": 64, "cols": 1024}, "fp32", (), None, {"num_warps": 4})
VALUES = {
    "time": ("ns", "12,480"),
    "DRAM": ("%", "61.5"),
    "dram_bytes": ("byte", "134,217,728"),
    "load_sectors": ("sector", "4,194,304"),
    "load_requests": ("request", "131,072"),
    "registers": ("register/thread", "18"),
    "tensor": ("", "n/a"),
}


def csv_text(values: dict[str, tuple[str, str]] = VALUES) -> str:
    """The raw page as Nsight Compute documents it: headings, units, one row a launch."""
    names = ",".join(f'"{METRICS[name]}"' for name in values)
    units = ",".join(f'"{unit}"' for unit, _ in values.values())
    numbers = ",".join(f'"{number}"' for _, number in values.values())
    place = '"0","4711","python3","127.0.0.1","copy","1","7","(128, 1, 1)","(4096, 1, 1)","0","9.0"'
    empty = ",".join(['""'] * 11)
    profile = '==PROF== Connected to process 4711\n==PROF== Profiling "copy" - 0: 0%....100%\n'
    return f"{profile}warm\n{PLACES},{names}\n{empty},{units}\n{place},{numbers}\n"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ncu, first on PATH: it notes its arguments, and prints what the test wrote."""
    script = tmp_path / "bin" / "ncu"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'arguments').write_text(json.dumps(sys.argv[1:]))\n"
        "(here / 'launch').write_text(os.environ['ASMTUNE_COUNTED_LAUNCH'])\n"
        "answer = json.loads((here / 'answer').read_text())\n"
        "sys.stdout.write(answer['out']); sys.stderr.write(answer['err'])\n"
        "sys.stdout.flush(); time.sleep(answer['sleep']); sys.exit(answer['code'])\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return script.parent


def answer(tool: Path, out: str = "", err: str = "", code: int = 0, sleep: float = 0) -> None:
    """Set what the stand-in prints, how it ends and how long it takes."""
    text = json.dumps({"out": out, "err": err, "code": code, "sleep": sleep})
    (tool / "answer").write_text(text)


MODULE = """
import torch, triton
import triton.language as tl
from asmtune.core.problem import Problem
DTYPES, SHAPES = ("fp32",), [{"n": 64}]

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr, DTYPE: tl.constexpr, TILE: tl.constexpr):
    pass

def space():
    return {"BLOCK": [64], "DTYPE": [tl.float16, tl.float32], "TILE": [(1, 2)]}

def problem(shape, dtype, device):
    return Problem(kernel, {"x_ptr": torch.empty(64)}, (1,), shape)
"""


def test_dtypes_and_tuples_reach_the_process_that_launches(tool: Path, tmp_path: Path) -> None:
    """What JSON has no form for is found again in the kernel module's space."""
    module = tmp_path / "typed.py"
    module.write_text(MODULE)
    config = Config({"BLOCK": 64, "DTYPE": tl.float32, "TILE": (1, 2)})
    launch = CountedLaunch(str(module), {"n": 64}, "fp32", (), None, config.to_dict())
    answer(tool, csv_text())
    read_counters(launch, "kernel")
    sent = CountedLaunch(**json.loads((tool / "launch").read_text()))
    problem = load_kernel_module(sent.kernel).problem({"n": 64}, "fp32", "cpu")
    assert sent.own_config(problem) == config


def test_the_raw_page_is_read() -> None:
    """Numbers have separators, the units stand in a row of their own, and n/a is left out."""
    counters = parse_csv(csv_text())
    assert counters == {
        "time": 12480, "DRAM": 61.5, "dram_bytes": 134217728, "load_sectors": 4194304,
        "load_requests": 131072, "registers": 18,
    }  # fmt: skip
    scaled = csv_text({"time": ("us", "12.48"), "dram_bytes": ("Mbyte", "134.2")})
    assert parse_csv(scaled) == {"time": 12480, "dram_bytes": pytest.approx(134.2e6)}
    assert parse_csv("==WARNING== No kernels were profiled.\n") is None
    assert parse_csv(csv_text().rpartition('"0","4711"')[0]) is None


def test_the_command(tool: Path) -> None:
    """The second launch of the kernel by its name is counted, with all metrics, in base units."""
    answer(tool, csv_text())
    assert read_counters(LAUNCH, "copy")["time"] == 12480
    arguments = json.loads((tool / "arguments").read_text())
    options = dict(pairwise(arguments))
    assert options["--kernel-name"] == "copy"
    assert (options["--launch-skip"], options["--launch-count"]) == ("1", "1")
    assert options["--metrics"].split(",") == list(METRICS.values())
    assert (options["--page"], options["--print-units"]) == ("raw", "base")
    assert json.loads((tool / "launch").read_text())["kernel"] == "softmax"


@pytest.mark.parametrize(
    ("out", "err", "code", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "", 1, "administrators"),
        ("==PROF== Connected\n", "asmtune: no CUDA GPU\n", 1, "there is no CUDA GPU"),
        ("", "Traceback\nValueError: BLOCK is missing\n", 1, "ValueError: BLOCK is missing"),
        ("==WARNING== No kernels were profiled.\n", "", 0, "counted no launch of copy"),
        ("", "", 0, "it printed nothing"),
    ],
)
def test_failures_are_one_line(tool: Path, out: str, err: str, code: int, says: str) -> None:
    """Whatever ncu prints, the reason is one line that says what to do."""
    answer(tool, out, err, code)
    with pytest.raises(CountersError) as raised:
        read_counters(LAUNCH, "copy")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_counters(tool: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tool that hangs is ended; without ncu, or a GPU for it, the line says what is missing."""
    answer(tool, sleep=60)
    with pytest.raises(CountersError, match=r"longer than 0\.5 s"):
        read_counters(LAUNCH, "copy", limit_s=0.5)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CountersError, match="ncu is not on PATH: install Nsight Compute"):
        read_counters(LAUNCH, "copy")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="asmtune: no CUDA GPU"):
        launch_twice()


KERNEL = """
import triton, triton.language as tl
def copy(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride, mask=at < n)
    tl.store(y_ptr + at, x, mask=at < n)
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A strided copy for `asmtune explain`."""
    (tmp_path / "copy.py").write_text(KERNEL)
    sizes = ("x_ptr=fp32[33554432]", "y_ptr=fp32[4194304]", "n=4194304", "stride=8")
    values = [word for size in sizes for word in ("--arg", size)]
    axes = ["--axis", "BLOCK=1024", "--axis", "num_warps=4", "--grid", "cdiv(n, BLOCK)"]
    return ["explain", f"{tmp_path}/copy.py:copy", *values, *axes, "--alone"]


def test_explain_sets_the_model_beside_them(
    tool: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares, sectors of a request and registers stand in two columns, and in JSON."""
    answer(tool, csv_text())
    assert run([*options, "--counters"]) == 0
    text = capsys.readouterr().out
    table = text[text.index("The model against counters") : text.index("Resources")]
    rows = {
        cells[0].strip(): cells[1:] for line in table.splitlines() if (cells := line.split("│"))
    }
    assert [cell.strip() for cell in rows["time of the kernel"]][1] == "12.5 us"
    assert [cell.strip() for cell in rows["sectors of a load's request"]] == ["32", "32"]
    assert [cell.strip() for cell in rows["DRAM, of peak"]][1] == "62%"
    assert "the tensor cores, of peak" not in rows
    assert run([*options, "--counters", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    pairs = {row["name"]: row for row in document["counters"]["counters"]}
    assert pairs["registers"]["measured"] == 18
    assert pairs["load_sectors"]["model"] == 32
    (finding,) = document["why"]["findings"]
    assert (finding["kind"], finding["line"]) == ("uncoalesced access", 5)
    assert [one["pattern"] for one in document["why"]["accesses"]] == ["strided", "sequential"]


def test_explain_tells_a_failure_and_goes_on(
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without ncu the rest of the explanation stands, and one line says why no counters do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run([*options, "--counters"]) == 0
    text = capsys.readouterr().out
    assert text.count("\ncounters: ncu is not on PATH") == 1
    assert "line 5: load of x_ptr: strided by 32 B: 32 sectors asked for" in text
    assert "Resources" in text
