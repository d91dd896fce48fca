"""Index tensors on the command line: what a report says of them."""

from __future__ import annotations

import inspect
import json

import pytest

from tests.command_lines import HEAD, Commands, page_report
from tests.workload import workload_kernels

JAGGED = HEAD + inspect.getsource(workload_kernels.jagged.fn).replace("starts_ptr", "indptr")
MODULE = (
    JAGGED.replace("def jagged", "def kernel")
    + """
import torch
from asmtune import Problem, Space

SHAPES, DTYPES = [{"rows": 8}], ["fp32"]

def space():
    return Space({"BLOCK": (64,), "num_warps": (4,)})

def problem(shape, dtype, device):
    ends = torch.arange(shape["rows"] + 1, dtype=torch.int32) * 640
    x = torch.empty(int(ends[-1]), device=device)
    arguments = {"x_ptr": x, "indptr": ends.to(device), "y_ptr": torch.empty(8, device=device)}
    return Problem(kernel, arguments, (shape["rows"],), shape)
"""
)
STEERS = "loops and branches that indptr steers"


@pytest.mark.slow(seconds=3)
def test_a_module_gives_values_which_reports_name(commands: Commands) -> None:
    """Text, JSON and page name where the trips are from; nothing is called a guess."""
    (commands.folder / "module.py").write_text(MODULE)
    said = f"{STEERS} follow the kernel module's values"
    ran = commands.run("explain", "{}/module.py", "--alone", "--code", "ptx")
    assert said in ran.out
    assert "10 trips a program" in ran.out
    assert "a guess" not in ran.out
    for form in ("text", "json"):
        ran = commands.run("prune-report", "{}/module.py", "--format", form)
        assert said in ran.out, form
    page = commands.run("prune-report", "{}/module.py", "--format", "html").out
    assert said in json.dumps(page_report(page))
    assert said in commands.run("roofline", "{}/module.py").out
