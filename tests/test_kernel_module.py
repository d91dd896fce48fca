"""Kernel modules: every form that is understood, and every way to be none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from asmtune.base.errors import ProblemError
from asmtune.core.config import Config
from asmtune.core.kernel_module import (
    KernelModule,
    from_python_module,
    kernel_names,
    load_function,
    load_kernel_module,
)
from asmtune.triton_api.jit_functions import jit_function

HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    '''Copies.'''

def plain(x_ptr, n):
    '''Not decorated.'''

def space():
    return {"BLOCK": [64, 128]}

SHAPES = [{"n": 1024}, {"n": 1000}]
"""

OURS = (
    HEAD
    + """
from asmtune.core.problem import Problem
DTYPES = ("float16", "fp32")

def problem(shape, dtype, device):
    x = torch.empty(shape["n"], device=device)
    return Problem(kernel, {"x_ptr": x, "out_ptr": x, "n": shape["n"], "EVEN": True}, (1,), shape)
"""
)

ORACLES = (
    HEAD.replace('return {"BLOCK": [64, 128]}', 'yield {"BLOCK": 64, "num_warps": 8}')
    + """
DTYPE = torch.bfloat16

def make(shape, device="cuda"):
    x = torch.empty(shape["n"], device=device, dtype=DTYPE)
    return dict(args=(x, x, shape["n"]), fixed=dict(EVEN=False), grid=lambda m: (m["BLOCK"],))
"""
)

TUNED = (
    HEAD
    + """
configs = [triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 128})]
rules = {"EVEN": lambda values: values["n"] % values["BLOCK"] == 0}
tuned = triton.heuristics(rules)(triton.autotune(configs, key=["n"])(kernel))
"""
)


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    """A kernel file of this text."""
    path = folder / name
    path.write_text(text)
    return path


def test_module_of_our_form(tmp_path: Path) -> None:
    """A file with kernel, space, SHAPES, DTYPES and problem gives all its parts."""
    module = load_kernel_module(str(write(tmp_path, OURS)))
    assert module.name == "mine"
    assert module.dtypes == ("fp16", "fp32")
    assert module.shapes == ({"n": 1024}, {"n": 1000})
    assert [config.kwargs["BLOCK"] for config in module.space()] == [64, 128]
    problem = module.problem({"n": 7}, "fp16", "meta")
    assert problem.bind(Config({"BLOCK": 64}))["n"] == 7


def test_a_problem_that_is_none(tmp_path: Path) -> None:
    """A problem() that forgets to return is told, with what it gave."""
    text = OURS.replace("return Problem(", "Problem(")
    module = load_kernel_module(str(write(tmp_path, text)))
    with pytest.raises(ProblemError, match=r"mine: problem\(\) gave NoneType, not a Problem"):
        module.problem({"n": 7}, "fp16", "meta")


def test_module_of_the_oracles_form(tmp_path: Path) -> None:
    """A file with kernel, space, SHAPES, DTYPE and make gives the same parts."""
    module = load_kernel_module(str(write(tmp_path, ORACLES)))
    assert module.dtypes == ("bf16",)
    assert list(module.space()) == [Config({"BLOCK": 64}, num_warps=8)]
    problem = module.problem({"n": 7}, "bf16", "meta")
    assert problem.name == "mine"
    assert problem.dtypes == {"x_ptr": "bf16", "out_ptr": "bf16"}
    assert problem.bind(Config({"BLOCK": 64}))["EVEN"] is False
    assert problem.programs(Config({"BLOCK": 64})) == (64, 1, 1)


def test_shipped_kernels_by_name() -> None:
    """Every shipped kernel loads by its name and makes its default problem without memory."""
    assert "matmul" in kernel_names()
    for name in kernel_names():
        module = load_kernel_module(name)
        assert module.name == name
        for dtype in module.dtypes:
            problem = module.problem(module.shapes[0], dtype, "meta")
            assert problem.programs(module.space().first(**problem.shape))


def test_one_file_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file loads once whatever path names it, and files of one name do not collide."""
    path = write(tmp_path, OURS)
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", ORACLES)
    monkeypatch.chdir(tmp_path)
    first = load_kernel_module(str(path))
    assert load_kernel_module("./other/../mine.py").kernel is first.kernel
    assert load_kernel_module("other/mine.py").dtypes == ("bf16",)
    assert load_kernel_module(str(other)).kernel is not first.kernel


def test_missing_part_of_our_form() -> None:
    """A module that lacks a part, or has no dtypes, is refused with the part's name."""
    parts = {"kernel": None, "space": dict, "SHAPES": [], "DTYPES": ["fp16"], "problem": None}
    for part in ("kernel", "space", "SHAPES", "DTYPES"):
        module = ModuleType("mine")
        module.__file__ = "mine.py"
        vars(module).update(parts)
        assert from_python_module(module).dtypes == ("fp16",)
        delattr(module, part)
        with pytest.raises(ProblemError, match=f"^kernel module mine defines no '{part}'"):
            from_python_module(module)


def test_interrupted_import_leaves_no_module(tmp_path: Path) -> None:
    """An import that ends with an error of another kind is not taken for done."""
    path = write(tmp_path, "raise KeyboardInterrupt\n", "interrupted.py")
    with pytest.raises(KeyboardInterrupt):
        load_kernel_module(str(path))
    assert not [name for name in sys.modules if "interrupted" in name]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("matmull", r"unknown kernel 'matmull': the kernels are .*matmul.*; did you mean matmul\?"),
        ("__main__", "unknown kernel '__main__'"),
        ("nowhere/kernel.py", "kernel file nowhere/kernel.py: no such file"),
        ("json.nothing", "json.nothing: ModuleNotFoundError: No module named 'json.nothing'"),
        ("json.decoder", "kernel module decoder defines no 'kernel'"),
    ],
)
def test_unknown_references(monkeypatch: pytest.MonkeyPatch, reference: str, message: str) -> None:
    """What names no kernel is refused in one line that shows it."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as under `python -c`
    with pytest.raises(ProblemError, match=f"^{message}") as caught:
        load_kernel_module(reference)
    assert "\n" not in str(caught.value)


def test_shape_must_have_the_modules_dimensions() -> None:
    """Missing and unknown dimensions are named, with a shape that works; optional ones added."""
    module = load_kernel_module("tiled_matmul")
    shape = {"M": 1, "N": 2, "K": 3}
    assert module.check_shape(shape) == shape
    batched = load_kernel_module("matmul")
    assert batched.check_shape(shape) == {"batch": 1, **shape}
    assert batched.check_shape({"batch": 3, **shape})["batch"] == 3
    for wrong, message in (
        ({"M": 1}, "the shape lacks N, K; write --shape M=4096,N="),
        ({**shape, "L": 1}, "matmul has no dimension 'L'; write --shape M=4096"),
        ({**shape, "M": 4.0}, "M is 4.0; expected a whole number, written as 4"),
        ({**shape, "M": 0}, "M is 0; expected a whole number from 1"),
    ):
        with pytest.raises(ProblemError, match=message):
            module.check_shape(wrong)
    free = KernelModule("free", None, dict, dict, (), ("fp16",))
    assert free.check_shape({"any": 1}) == {"any": 1}


def test_single_functions(tmp_path: Path) -> None:
    """`file.py:name` gives a Triton function; a plain one is decorated; others are refused."""
    path = write(tmp_path, TUNED)
    assert load_function(f"{path}:kernel").arg_names[0] == "x_ptr"
    assert load_function(f"{path}:plain").arg_names == ["x_ptr", "n"]
    assert jit_function(load_function(f"{path}:tuned")) is load_function(f"{path}:kernel")
    assert load_function("asmtune.kernels.tiled_matmul:kernel").arg_names[:2] == ["a_ptr", "b_ptr"]
    for name, message in (("kernal", "did you mean kernel"), ("SHAPES", "is not a Triton kernel")):
        with pytest.raises(ProblemError, match=message):
            load_function(f"{path}:{name}")
