"""`asmtune diagnose`: kernels with a planted fault, each named, and right ones, where none is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.errors import InputError
from asmtune.workshop.kernel_checks.reports import Diagnosis
from asmtune.workshop.kernel_checks.subjects import filled_in, named_sizes
from tests.command_lines import Commands

MODULE = """
import random, torch, triton, triton.language as tl
from asmtune import Config, Problem, Space
from asmtune.core.dtypes import torch_dtype

def noise():
    return random.random()

@triton.jit
def kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
        total += x
    tl.store(y_ptr + row, tl.sum(total.to(tl.float32), 0))

OUTPUTS = ("y_ptr",)
DTYPES = ("fp16", "fp32")
SHAPES = ({"rows": 4096, "cols": 4096},)

def space():
    return Space({"BLOCK": (16, 32), "num_warps": (4,)}, default=Config({"BLOCK": 32}))

def problem(shape, dtype, device):
    x = torch.randn(shape["rows"], shape["cols"], device=device).to(torch_dtype(dtype))
    y = torch.zeros(shape["rows"], dtype=torch.float32, device=device)
    grid = (shape["rows"],)
    return Problem(kernel, {"x_ptr": x, "y_ptr": y, **shape}, grid, shape, "rows")

def reference(arguments):
    return arguments["x_ptr"].double().sum(1)
"""

ALIGNED = "(x_ptr.to(tl.int64) // 16 * 16).to(tl.pointer_type(x_ptr.dtype.element_ty))"
STORE = "    tl.store(y_ptr + row, tl.sum(total.to(tl.float32), 0))"

FAULTS = {
    "mask": [(", mask=at < cols, other=0.0", "")],
    "race": [
        (STORE, "    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(total, 0))"),
        (".double().sum(1)", ".double().sum().reshape(1)"),
        ('torch.zeros(shape["rows"]', "torch.zeros(1"),
    ],
    "alignment": [("tl.load(x_ptr", f"tl.load({ALIGNED}")],
    "bounds": [("y_ptr + row,", "y_ptr + row + 1,")],
    "accumulator rounded to fp16 at each step": [
        ("total += x", "total = (total + x).to(tl.float16).to(tl.float32)"),
    ],
    "mask under an autotuner": [
        (", mask=at < cols, other=0.0", ""),
        ("@triton.jit", '@triton.autotune([triton.Config({"BLOCK": 64})], key=[])\n@triton.jit'),
    ],
    # Each run is wrong in another way.
    "race of all runs": [("+= x", "+= x + noise()")],
    # Rows of x lie 2 * cols apart.
    "bounds by a stride": [
        (
            'torch.randn(shape["rows"], shape["cols"]',
            'torch.randn(shape["rows"], 2 * shape["cols"]',
        ),
        (".to(torch_dtype(dtype))", ".to(torch_dtype(dtype))[:, : shape['cols']]"),
    ],
}
"""Replacements in the module, by the cause that they plant."""

STRIDED = [*FAULTS["bounds by a stride"], ("row * cols", "row * 2 * cols")]
DIGITS = [("+= x", "+= x * (1 + 1e-6 * noise())")]

COUNTS = """
import torch, triton, triton.language as tl
from asmtune import Config, Problem, Space

@triton.jit
def kernel(x_ptr, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0)
    tl.atomic_add(counts[0] + x, 1, mask=inside)
    tl.store(counts[1] + at, x > 3, mask=inside)
    tl.store(counts[2] + at, (x - 4).to(tl.int8), mask=inside)

OUTPUTS = ("counts.0", "counts.1", "counts.2")
DTYPES = ("i32",)
SHAPES = ({"n": 4096},)

def space():
    return Space({"BLOCK": (16,), "num_warps": (4,)}, default=Config({"BLOCK": 16}))

def problem(shape, dtype, device):
    n = shape["n"]
    x = torch.zeros(n, dtype=torch.int32, device=device)
    if device != "meta":
        x = torch.randint(0, 8, (n,), dtype=torch.int32, device=device)
    counts = (torch.zeros(8, dtype=torch.int32, device=device),
              torch.empty(n, dtype=torch.bool, device=device),
              torch.empty(n, dtype=torch.int8, device=device))
    return Problem(kernel, {"x_ptr": x, "counts": counts, "n": n},
                   lambda v: (triton.cdiv(n, v["BLOCK"]),), shape, "counts")

def reference(arguments):
    x = arguments["x_ptr"]
    return torch.bincount(x, minlength=8), x > 3, (x - 4).to(torch.int8)
"""


PRODUCT = (Path(__file__).parents[3] / "kernels" / "tiled_matmul.py").read_text()
PRODUCT_FAULTS = {
    "mask": [
        (", mask=offs_k[None, :] < left, other=0.0", ""),
        (", mask=offs_k[:, None] < left, other=0.0", ""),
    ],
    "mask of the results": [("ty), mask=inside)", "ty))")],
    "accumulator": [("else tl.float32", "else tl.float16")],
    "bounds": [("c_ptr + stride_cm *", "c_ptr + stride_am *")],
}
"""Replacements in the template, by the cause."""


COUNTS_FAULTS = {
    "mask": [("counts[1] + at, x > 3, mask=inside", "counts[1] + at, x > 3")],
    "race": [
        (
            "tl.atomic_add(counts[0] + x, 1, mask=inside)",
            "tl.store(counts[0] + x, tl.load(counts[0] + x, mask=inside) + 1, mask=inside)",
        )
    ],
    "bounds": [("counts[2] + at,", "counts[2] + at - 1,")],
}
"""Replacements in a histogram with flags and bytes in a tuple, by the cause."""


def planted(folder: Path, replacements: list[tuple[str, str]], module: str = MODULE) -> str:
    """Write a module with replacements; return its path."""
    for old, new in replacements:
        assert old in module
        module = module.replace(old, new)
    path = folder / "rows.py"
    path.write_text(module)
    return str(path)


def findings(found: Diagnosis) -> dict[str, str]:
    """Return the outcome by cause."""
    return {one.cause: one.outcome for one in found.findings}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "module", "replacements"),
    [
        *((cause, MODULE, changes) for cause, changes in FAULTS.items()),
        *((cause, COUNTS, changes) for cause, changes in COUNTS_FAULTS.items()),
        *((cause, PRODUCT, changes) for cause, changes in PRODUCT_FAULTS.items()),
    ],
)
def test_planted_faults_are_named(
    cause: str,
    module: str,
    replacements: list[tuple[str, str]],
    tmp_path: Path,
    found_in: Callable[[str], Diagnosis],
) -> None:
    """The first cause that is named is the fault that was planted, with what to do."""
    found = found_in(planted(tmp_path, replacements, module))
    assert found.wrong
    assert found.cause is not None, found.text()
    assert found.cause.cause == cause.split()[0], found.text()
    assert found.cause.seen
    assert found.cause.advice in found.conclusion


@pytest.mark.slow
@pytest.mark.parametrize(
    "replacements", [[], STRIDED, COUNTS, "softmax", "tiled_matmul", "layernorm", "cross_entropy"]
)
def test_right_kernels_have_no_cause(
    replacements: Any, tmp_path: Path, found_in: Callable[[str], Diagnosis]
) -> None:
    """Nothing is named about kernels that compute the right thing, nor any risk."""
    kernel = replacements
    if isinstance(replacements, list):
        kernel = planted(tmp_path, replacements)
    elif replacements == COUNTS:
        kernel = planted(tmp_path, [], COUNTS)
    found = found_in(kernel)
    assert not found.wrong, found.text()
    assert set(findings(found).values()) == {"fine"}, found.text()


@pytest.mark.slow
def test_a_read_behind_the_end_is_a_risk(
    tmp_path: Path, found_in: Callable[[str], Diagnosis]
) -> None:
    """Memory that is read behind the end, and has no part in the result, is told all the same."""
    unmasked = [("tl.load(x_ptr + at, mask=inside, other=0)", "tl.load(x_ptr + at)")]
    found = found_in(planted(tmp_path, unmasked, COUNTS))
    assert not found.wrong, found.text()
    assert findings(found)["mask"] == "risk", found.text()
    assert "x_ptr has 132 bytes and is accessed up to byte 192" in found.findings[0].seen
    assert "risk: mask: mask loads and stores along n" in found.conclusion


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "cause", "says"),
    [
        (
            [("+= x", "+= (x * x).to(tl.float32)"), (".double()", ".double().square()")],
            "accumulator",
            "no sum of the code is in fp16",
        ),
        (DIGITS, "", ""),
        ([(STORE, STORE.replace("tl.sum(", "2 * tl.sum("))], "", "compare the formula"),
        (
            [
                ("row = tl.program_id(0)", "row = tl.program_id(0) % rows"),
                ('grid = (shape["rows"],)', "grid = (132,)"),
                ("(16, 32)", "(2048,)"),
                ('"BLOCK": 32', '"BLOCK": 2048'),
            ],
            "",
            "rows=32, cols=4096",
        ),
    ],
    ids=["a rounded value", "digits that differ", "a wrong formula", "a persistent kernel"],
)
def test_what_no_cause_explains(
    changes: list[tuple[str, str]],
    cause: str,
    says: str,
    tmp_path: Path,
    found_in: Callable[[str], Diagnosis],
) -> None:
    """Rounded values are told from sums, runs may differ in digits, and a formula may be wrong.

    Where fewer rows make no fewer programs, each has less to do: the interpreter is slow.
    """
    found = found_in(planted(tmp_path, changes))
    assert (found.cause.cause if found.cause else "") == cause, found.text()
    assert found.wrong == (says not in ("", "rows=32, cols=4096")), found.text()
    assert says in found.text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        ((".double().sum(1)", ".double().sum(2)"), "reference: IndexError"),
        (('("y_ptr",)', '("y_ptr", "z")'), "'z' is no tensor of"),
        (('("y_ptr",)', '("y_ptr", "x_ptr")'), "the reference gives 1 results"),
    ],
)
def test_references_that_do_not_fit(
    replacement: tuple[str, str],
    message: str,
    tmp_path: Path,
    found_in: Callable[[str], Diagnosis],
) -> None:
    """A reference that raises, or names other outputs, is one line, and no wrong result."""
    with pytest.raises(InputError, match=message):
        found_in(planted(tmp_path, [replacement]))


@pytest.mark.slow(seconds=12)
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], session_cache: Path) -> None:
    """A wrong kernel is diagnosed by the command in a process of its own: exit 1, and JSON."""
    planted(tmp_path, FAULTS["mask"])
    commands = Commands(tmp_path, capsys)
    ran = commands.run("diagnose", "{}/rows.py", "--device", "cpu", "--format", "json")
    assert ran.code == 1, ran
    document = json.loads(ran.out)
    first = next(one for one in document["findings"] if one["outcome"] == "cause")
    assert first["cause"] == "mask"
    assert "at cols=65 the result depends on memory around the arguments" in first["seen"]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_fault_at_the_given_size_alone(
    wrong: bool, tmp_path: Path, found_in: Callable[..., Diagnosis]
) -> None:
    """A kernel is launched at the sizes that the user gives, and judged by them as well."""
    changes = [("total += x", f"total += x * (1 + (cols == {100 if wrong else 101}))")]
    found = found_in(planted(tmp_path, changes), shape={"rows": 4, "cols": 100})
    assert found.wrong == wrong, found.text()
    assert found.cause is None
    assert ("at rows=4, cols=100 the result is wrong" in found.conclusion) == wrong


HOSTS = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SMS = torch.cuda.get_device_properties(0).multi_processor_count

@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64)], key=["cols"])
@triton.jit
def summed(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    tl.store(y + row, tl.sum(total, 0))

@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2)

@triton.jit
def added(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))

@triton.jit
def raced(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y, tl.load(y) + tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))

def hook(launch):
    launch["x"].block_shape = launch["y"].block_shape = [launch["BLOCK"], 16]

@triton.autotune([triton.Config({"BLOCK": b}, pre_hook=hook) for b in (16, 32)], key=[])
@triton.jit
def copied(x, y, BLOCK: tl.constexpr):
    y.store([tl.program_id(0) * BLOCK, 0], x.load([tl.program_id(0) * BLOCK, 0]))

def sums(x):
    assert x.is_cuda and SMS == 132
    y = torch.empty(x.shape[0], device=x.device)
    summed[(x.shape[0],)](x, y, x.shape[1])
    return y

def flat(kernel, x, y):
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64, num_warps=2)

def in_two(x, columns):
    partial = sums(x)
    assert columns == x.shape[1]
    total = torch.zeros(1, device="cuda")
    flat(added, partial, total)
    return total

def twice(x):
    flat(doubled, x, torch.empty_like(x))

def racing(x):
    flat(raced, x, torch.zeros(1, device="cuda"))

def copy(x):
    made = [TensorDescriptor.from_tensor(one, [1, 1]) for one in (x, torch.empty_like(x))]
    copied[lambda values: (triton.cdiv(x.shape[0], values["BLOCK"]),)](*made)

def looks_up(x):
    made = summed.fn.warmup(x, x, 16, BLOCK=16, grid=(1,))
    summed.fn[(made.n_regs,)](x, x, 16, BLOCK=16)

def exact(arguments):
    return arguments["x"].double().sum(1)

def exact_total(arguments):
    return arguments["x"].double().sum().reshape(1)

def off_by_one(arguments):
    return exact(arguments) + 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "values", "reference", "cause"),
    [
        ("sums", ("x=fp32[4096,1000]",), "", ""),
        ("sums", ("x=fp16[rows,1000]", "rows=4096"), "exact", ""),
        ("sums", ("x=fp32[4096,1000]",), "off_by_one", "formula"),
        ("in_two", ("x=fp32[4096,1000]", "columns=1000"), "exact_total", ""),
        ("twice", ("x=fp32[100000]",), "", "mask"),
        ("racing", ("x=fp32[100000]",), "", "race"),
        ("copy", ("x=fp16[4096,16]",), "", ""),
    ],
)
def test_launches_of_host_functions(
    function: str,
    values: tuple[str, ...],
    reference: str,
    cause: str,
    tmp_path: Path,
    found_in: Callable[..., Diagnosis],
) -> None:
    """A function is called at sizes of its arguments; memory, order and a reference judge it."""
    path = tmp_path / "hosts.py"
    path.write_text(HOSTS)
    given = f"{path}:{reference}" if reference else None
    only = "added" if function == "in_two" else None
    found = found_in(f"{path}:{function}", values=values, reference=given, only=only)
    assert found.wrong == bool(cause), found.text()
    assert (found.cause.cause if found.cause else "") == cause.replace("formula", ""), found.text()
    assert ("compare the formula" in found.conclusion) == (cause == "formula")
    assert any("--reference" in note for note in found.notes) == (not reference)
    if function == "twice":
        assert "right at x.0=128; at x.0=129 63 elements behind" in found.cause.seen


@pytest.mark.parametrize(
    ("function", "values", "message"),
    [
        ("in_two", ("x=fp32[64,32]", "columns=32"), "makes 2 launches, of summed, added"),
        ("doubled", ("x=fp32[64]",), "is a kernel: name the function that launches it"),
        ("sums", ("x=fp32[8,4]",), "no --arg gives a size of 16 or more"),
        ("looks_up", ("x=fp32[64,64]",), "warmup compiles nothing under Triton's interpreter"),
    ],
)
def test_host_functions_that_cannot_be_diagnosed(
    function: str,
    values: tuple[str, ...],
    message: str,
    tmp_path: Path,
    found_in: Callable[..., Diagnosis],
) -> None:
    """What has no launch, size or meaning under the interpreter is one line."""
    path = tmp_path / "hosts.py"
    path.write_text(HOSTS)
    with pytest.raises(InputError, match=message):
        found_in(f"{path}:{function}", values=values)


@pytest.mark.parametrize(
    ("values", "sizes", "doubled"),
    [
        (("x=fp16[4096,8]", "n=4096"), {"x.0": 4096}, ["fp16[8192,8]", "8192"]),
        (
            ("x=fp16[M,2*K].T", "M=64", "K=32"),
            {"M": 64, "K": 32},
            ["fp16[128,2*64].T", "128", "64"],
        ),
        (("a=[i32[64], fp16[64,32]]",), {"a.0": 64, "a.2": 32}, ["[i32[128], fp16[128,64]]"]),
    ],
)
def test_sizes_of_arguments(
    values: tuple[str, ...], sizes: dict[str, int], doubled: list[str]
) -> None:
    """Sizes are named by the user or by their place; equal numbers are one size."""
    texts, found = named_sizes(values, 16)
    assert found == sizes
    twice = {name: 2 * size for name, size in found.items()}
    assert [str(twice.get(name, filled_in(text, twice))) for name, text in texts.items()] == doubled
