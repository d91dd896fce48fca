"""`asmtune prune-report` and `explain` of Gluon kernels, and what they refuse in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_lines import Commands

ROOT = Path(__file__).parents[2]
ROWS = (
    f"{ROOT}/tests/gluon_kernels.py:row_sum", "--arg", "x_ptr=fp16[1000,columns]", "--arg",
    "y_ptr=fp32[1000]", "--arg", "columns=5000", "--grid", "1000", "--axis", "num_warps=4",
)  # fmt: skip
GEMM = (f"{ROOT}/examples/gluon_matmul.py", "--shape", "M=1000,N=520,K=200")


def test_a_gluon_function_is_reported(commands: Commands) -> None:
    """Its configs are ranked for each device."""
    targets = ("--target", "H200", "--target", "A100")
    ran = commands.run("prune-report", *ROWS, "--axis", "BLOCK=512,1024", *targets)
    assert (ran.code, ran.err) == (0, "")
    assert "Kept on A100, best first" in ran.out


def test_a_gluon_config_is_explained(commands: Commands) -> None:
    """Its time, its accesses by line, and its PTX are shown."""
    ran = commands.run("explain", *ROWS, "--axis", "BLOCK=512,1024", "--code", "ptx")
    assert (ran.code, ran.err) == (0, "")
    for part in ("predicted", "Memory accesses by line", "load of x_ptr", "Hottest loop in PTX"):
        assert part in ran.out


@pytest.mark.slow(seconds=15)
def test_the_gemm_is_reported_and_explained(commands: Commands) -> None:
    """The 24 configs are judged, and the copy engine's accesses are named by argument."""
    ran = commands.run("prune-report", *GEMM, "--target", "H200", "--format", "json")
    assert ran.code == 0
    (report,) = json.loads(ran.out)["reports"]
    assert len(report["verdicts"]) == 24
    assert not [verdict for verdict in report["verdicts"] if verdict["failure"]]
    ran = commands.run("explain", *GEMM, "--target", "H200")
    assert (ran.code, ran.err) == (0, "")
    for part in ("load of a_desc", "load of b_desc", "store to c_desc", "by TMA"):
        assert part in ran.out


def test_a_gluon_kernel_that_no_config_fits_is_refused_in_a_line(commands: Commands) -> None:
    """AMD's warps have 64 threads: the error names kernel, line and layout."""
    ran = commands.run("prune-report", *ROWS, "--axis", "BLOCK=512", "--target", "MI300X")
    assert (ran.code, ran.out) == (2, "")
    assert "no config of row_sum can run on MI300X" in ran.err
    assert "Layout has 32 threads per warp" in ran.err
    assert ran.err.count("\n") == 1


def test_a_kernel_that_a_pass_refuses_is_told_once(commands: Commands) -> None:
    """The error names file, line and cause, and nothing of the compiler's log after it."""
    kernel = (f"{ROOT}/tests/gluon_kernels.py:undecided", "--arg", "x_ptr=fp32[n]", "--arg", "n=64")
    given = ("--grid", "1", "--axis", "BLOCK=64", "--axis", "num_warps=4", "--target", "H200")
    ran = commands.run("prune-report", *kernel, *given)
    assert (ran.code, ran.out) == (2, "")
    assert "gluon_kernels.py line " in ran.err
    assert ran.err.count("Failed to infer") == 1
    assert "PassManager" not in ran.err
