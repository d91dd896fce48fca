"""Host functions on the command line: their launches become reports, without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import asmtune
from asmtune import asm_autotune
from asmtune.base.errors import ArgumentTypeError
from asmtune.core.assumed_import import importing_for
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import import_module
from asmtune.runtime.offline.host_functions import assumed_gpu, only_launch
from tests.command_lines import Commands
from tests.sample_kernels import scale

EXAMPLES = Path(__file__).parents[2] / "examples/host_functions.py"

H200 = load_target("H200")

FILE = """
import torch, triton
import triton.language as tl

SMS = torch.cuda.get_device_properties(0).multi_processor_count

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def fixed(x, block=128):
    double[(triton.cdiv(x.numel(), block),)](x, x.numel(), BLOCK=block, num_warps=2)

def follows(x, limits=None):
    double[lambda values: (triton.cdiv(x.numel(), values["BLOCK"]),)](x, x.numel())

def reads(x):
    if x.float().max().item() < 1e9:
        fixed(x)

def twice(x, y):
    fixed(x); fixed(x); fixed(y); fixed(x, 64)

def other(x):
    return x + 1

def mapped(x):
    return torch.func.vmap(lambda row: fixed(row), out_dims=None)(x)

def compiled(x):
    ruled = triton.heuristics({"BLOCK": lambda _: 64})(double)
    made = ruled.warmup(x, x.numel(), grid=(1,))
    made[(made.metadata.num_warps,)](x, x.numel(), 64)

def fails(x):
    raise ValueError("only " + str(x.device))

assert (torch.ones(4, device="cuda") * 2).sum().item() == 8
values = torch.randn(1 << 22, device="cuda")
assert values.max() > 0
LATER = 1
"""


@pytest.fixture
def file(commands: Commands) -> Path:
    """A file of host functions that asks for the GPU while it is imported."""
    path = commands.folder / "hosts.py"
    path.write_text(FILE)
    return path


def reports(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    """Make reports and return their documents."""
    ran = commands.run("prune-report", *arguments, "--format", "json")
    assert ran.code == 0, ran
    documents: list[dict[str, Any]] = json.loads(ran.out)["reports"]
    return documents


def test_the_launch_of_a_host_function(commands: Commands, file: Path) -> None:
    """Grid, constexprs and options are the launch's own; a note names what the import left out."""
    (report,) = reports(commands, f"{file}:fixed", "--arg", "x=fp32[1000]")
    rows = {row["config"]["num_warps"]: row["features"] for row in report["verdicts"]}
    assert set(rows) == {1, 2, 4, 8}
    assert {row["programs"] for row in rows.values()} == {8}
    assert report["dtypes"] == {"x": "fp32"}
    (note,) = report["notes"]
    assert note.startswith("hosts.py: left out at import")
    assert "line 41" in note


def test_axes_of_a_host_function(commands: Commands, file: Path) -> None:
    """A grid that is a function follows an axis; one that does not must be given."""
    named = ("--arg", "x=bf16[4096]", "--axis", "BLOCK=64,256", "--axis", "num_warps=4")
    for function, grid in (("follows", ()), ("fixed", ("--grid", "cdiv(n, BLOCK)"))):
        (report,) = reports(commands, f"{file}:{function}", *named, *grid)
        programs = {r["config"]["BLOCK"]: r["features"]["programs"] for r in report["verdicts"]}
        assert programs == {64: 64, 256: 16}
        assert report["shape"] == {"n": 4096}
    assert "--grid" in commands.refused("prune-report", f"{file}:fixed", *named)


def test_equal_launches_are_one(commands: Commands, file: Path) -> None:
    """Each launch that differs is reported; `explain` takes one alone."""
    arguments = (f"{file}:twice", "--arg", "x=fp16[512]", "--arg", "y=fp16[64]")
    found = reports(commands, *arguments)
    assert [report["verdicts"][0]["features"]["programs"] for report in found] == [4, 1, 8]
    titles = commands.run("prune-report", *arguments).out.splitlines()
    assert sum(line.startswith("double ") for line in titles) == 3
    assert "3 launches" in commands.refused("explain", *arguments)
    chart = json.loads(commands.run("roofline", *arguments, "--format", "json").out)
    assert [entry["shape"]["n"] for entry in chart["entries"]] == [512, 64, 512]
    assert all("left out at import" in entry["notes"][0] for entry in chart["entries"])
    assert "launches double" in commands.refused("roofline", *arguments, "--kernel", "triple")
    assert "launches double" in commands.refused("prune-report", *arguments, "--kernel", "triple")


def test_functions_that_read_values(commands: Commands, file: Path) -> None:
    """A function that reads values is called on tensors of the CPU, and a note says so."""
    (report,) = reports(commands, f"{file}:reads", "--arg", "x=fp32[2000000]")
    assert any("drawn at random" in note for note in report["notes"])
    assert report["verdicts"][0]["features"]["programs"] == 15625


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("fixed", [], "no value for x"),
        ("fixed", ["y=fp16[4]"], "no parameter 'y'"),
        ("fixed", ["x=fp16[n]"], "'n'"),
        ("other", ["x=fp16[4]"], "launched no Triton kernel"),
        ("fails", ["x=fp16[4]"], "line 37: ValueError: only cuda:0"),
        ("mapped", ["x=fp16[4,64]"], "torch.func's tensors (vmap, grad) have no memory"),
        ("missing", ["x=fp16[4]"], "defines no 'missing'"),
    ],
)
def test_one_line_says_what_is_wrong(
    commands: Commands, file: Path, function: str, arguments: list[str], message: str
) -> None:
    """Bad arguments and functions that raise or launch nothing are one line."""
    given = [part for text in arguments for part in ("--arg", text)]
    assert message in commands.refused("prune-report", f"{file}:{function}", *given)


def test_an_import_is_of_its_target(file: Path) -> None:
    """A file that asks is imported anew for another target, and goes on after its failures."""
    seen = {}
    for name in ("H200", "A100", "H200"):
        with importing_for(assumed_gpu(load_target(name))):
            module = import_module(str(file))
        seen[name] = module.SMS
        assert module.LATER == 1
    assert seen == {"H200": 132, "A100": 108}
    assert not torch.cuda.is_available() or torch.cuda.get_device_name() != "A100"


CALLS = {
    "matmul": (["a=fp16[2048,1024]", "b=fp16[1024,512]"], {(16, 4, 1), (32, 8, 1), (8, 2, 1)}),
    "softmax": (["x=fp32[4096,2000]"], None),
    "grouped_matmul": (
        ["a=[fp16[1024,512],fp16[512,512]]", "b=[fp16[512,1024],fp16[512,512]]"],
        {(132, 1, 1)},
    ),
    "layer_norm": (["x=bf16[4096,4096]", "weight=bf16[4096]"], {(4096, 1, 1)}),
}


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("name", CALLS)
def test_examples(commands: Commands, name: str) -> None:
    """Functions as Triton's tutorials have them are reported: descriptors, addresses, autograd."""
    arguments, grids = CALLS[name]
    given = [part for text in arguments for part in ("--arg", text)]
    (report,) = reports(commands, f"{EXAMPLES}:{name}", *given, "--compile", "2", "--keep", "1")
    assert report["verdicts"][0]["kept"]
    assert report["verdicts"][0]["predicted_us"] > 1
    if grids is not None:
        programs = {v["features"]["programs"] for v in report["verdicts"] if v["features"]}
        assert programs & {x * y * z for x, y, z in grids}


def halved(x: torch.Tensor, out: torch.Tensor) -> None:
    """Launch a kernel under a decorator with a space."""
    kernel = asm_autotune(space={"BLOCK": [64, 128, 256], "num_warps": [1, 2]}, key=["n"])(scale)
    kernel[lambda values: (-(-x.numel() // values["BLOCK"]),)](x, out, x.numel())


def test_a_function_in_python() -> None:
    """`prune_report` takes a function with its arguments, and finds the decorator's space."""
    x = torch.empty(4096, device="meta")
    report = asmtune.prune_report(halved, x, x, target="H200")
    assert len(report.verdicts) == 6
    assert report.shape == {"n": 4096}
    with pytest.raises(ArgumentTypeError, match="is a kernel"):
        asmtune.prune_report(scale, x, x)
    real = torch.ones(4096)
    loaded = only_launch(halved, (real, real), load_target("H200"))
    assert loaded.problem.arguments["x_ptr"].is_meta
    assert loaded.problem.programs(loaded.space.first(n=4096)) == (64, 1, 1)
    assert "triton" in sys.modules


def test_a_report_leads_on(commands: Commands, file: Path) -> None:
    """The kept configs of a report are code that runs."""
    named = ("--axis", "BLOCK=64,256", "--arg", "x=fp16[4096]", "--keep", "2")
    (report,) = reports(commands, f"{file}:follows", *named)
    kept = [verdict["config"] for verdict in report["verdicts"] if verdict["kept"]]
    asked = ("prune-report", f"{file}:follows", *named, "--format")
    listed = eval(commands.run(*asked, "triton-configs").out, {"triton": triton})
    scope: dict[str, Any] = {}
    exec(commands.run(*asked, "python").out, scope)  # what the command has just printed
    for configs in (listed, scope["CONFIGS"]):
        assert [asmtune.Config.of(one).to_dict() for one in configs] == kept


def test_a_warmup_under_a_rule(commands: Commands, file: Path) -> None:
    """A kernel under `@triton.heuristics` is compiled by `warmup`, which is no launch."""
    (report,) = reports(commands, f"{file}:compiled", "--arg", "x=fp16[512]")
    assert report["verdicts"][0]["features"]["programs"] == 4


def test_an_automatic_space(commands: Commands, file: Path) -> None:
    """`--space auto` finds block sizes, warps and bounds by the source and the launch's sizes."""
    named = ("--arg", "x=fp32[2000]", "--space", "auto", "--keep", "100%")
    (report,) = reports(commands, f"{file}:follows", *named, "--compile", "all")
    rows = {(v["config"]["BLOCK"], v["config"]["num_warps"]) for v in report["verdicts"]}
    assert rows == {(b, w) for b in (64, 128, 256, 512, 1024, 2048) for w in (1, 2, 4, 8, 16)}
    assert any(note.startswith("space auto") for note in report["notes"])
    assert "--space" in commands.refused("prune-report", "tiled_matmul", "--space", "auto")
    assert "expected auto" in commands.refused("prune-report", f"{file}:follows", "--space", "all")


LASTING = """
import torch, triton
import triton.language as tl

torch.set_default_device("cuda")

@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

HELD = add_one[(1,)]
"""


def test_nothing_lasts(commands: Commands) -> None:
    """The default device is put back, and a launcher that was kept launches for itself."""
    path = commands.folder / "lasting.py"
    path.write_text(LASTING)
    with importing_for(assumed_gpu(load_target("H200"))):
        module = import_module(str(path))
    assert torch.zeros(1).device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="0 active drivers"):
            module.HELD(torch.zeros(4), 4, BLOCK=4)
