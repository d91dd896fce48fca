"""`asmtune new`: the files work as written, and bad input writes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asmtune.base.errors import InputError
from asmtune.workshop.kernel_checks.new_kernel import KernelSignature, kernel_files, write_kernel
from tests.command_lines import Commands
from tests.interpreter import Interpreter

SIGNATURES = {
    "shifted": ("x: (M, N) bf16, w: (N,) bf16", "(M, N)"),
    "twice": ("x: (K,) fp32", "(K,)"),
    "outer": ("a: (B, M, N) fp16, b: (B, M) fp32, c: (M,) fp16", "(B, M, N)"),
    "dots": ("x: (M, N) fp16, w: (N,) fp32", "(M,)"),
    "sums": ("x: (B, M, N) fp32, v: (B,) fp32", "(B, M)"),
}


def signature(name: str) -> KernelSignature:
    """Return a signature of the table."""
    return KernelSignature.parse(name, *SIGNATURES[name])


@pytest.mark.slow(seconds=20)
def test_written_tests_pass(tmp_path: Path, interpreter: Interpreter) -> None:
    """The tests pass under the interpreter for each dtype, and the benchmarks run."""
    for name in SIGNATURES:
        write_kernel(signature(name), tmp_path)
    outcomes = interpreter.call("tests.workshop.kernel_checks.interpreted:run_tests", str(tmp_path))
    assert set(outcomes.values()) == {"passed"}, outcomes
    assert len(outcomes) == 3 * len(SIGNATURES)
    printed = interpreter.call(
        "tests.workshop.kernel_checks.interpreted:run_benchmarks", str(tmp_path)
    )
    assert printed.keys() == SIGNATURES.keys()
    assert all("bench_" in text or " us, PyTorch " in text for text in printed.values())


@pytest.mark.slow
def test_written_tests_fail_with_a_wrong_formula(tmp_path: Path, interpreter: Interpreter) -> None:
    """An edit of the kernel alone, of either kind, is found by the written test."""
    for name in ("twice", "dots"):
        # The process keeps modules of tests by their names.
        parsed = KernelSignature.parse(f"wrong_{name}", *SIGNATURES[name])
        module, *_ = write_kernel(parsed, tmp_path)
        module.write_text(module.read_text().replace("  # edit this line", " + 1  # edit this"))
    outcomes = interpreter.call(
        "tests.workshop.kernel_checks.interpreted:run_tests", str(tmp_path), "-k", "fp32"
    )
    assert len(outcomes) == 2
    assert all("comparisons are wrong" in text for text in outcomes.values()), outcomes


def test_files_are_clean(tmp_path: Path) -> None:
    """Ruff has nothing to say about the files."""
    for name in SIGNATURES:
        write_kernel(signature(name), tmp_path)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    ran = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
def test_prune_report_takes_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], session_cache: Path
) -> None:
    """A report for an H200 ranks the written space."""
    write_kernel(signature("dots"), tmp_path)
    commands = Commands(tmp_path, capsys)
    ran = commands.run("prune-report", "{}/dots.py", "--target", "H200", "--axis", "BLOCK=1024")
    assert ran.code == 0, ran.err
    assert "kept" in ran.out


@pytest.mark.parametrize(
    ("name", "inputs", "output", "message"),
    [
        ("2x", "x: (M,) fp32", "(M,)", "the name '2x' is not a Python name"),
        ("class", "x: (M,) fp32", "(M,)", "the name 'class' is not a Python name"),
        ("kernel", "x: (M,) fp32", "(M,)", "has a meaning in the files"),
        ("json", "x: (M,) fp32", "(M,)", "is the name of an installed module"),
        ("zip", "x: (M,) fp32", "(M,)", "the name 'zip' has a meaning"),
        ("Config", "x: (M,) fp32", "(M,)", "the name 'Config' has a meaning"),
        ("conftest", "x: (M,) fp32", "(M,)", "'conftest' (has a meaning|is the name of)"),
        ("_new", "x: (M,) fp32", "(M,)", "begins with _"),
        ("new", "out: (M,) fp32", "(M,)", "the input 'out' has a meaning"),
        ("new", "x: (arguments,) fp32", "(arguments,)", "the size 'arguments' has a meaning"),
        ("new", "range: (M, N) fp32", "(M,)", "the input 'range' has a meaning in the files"),
        ("new", "x: (num_warps,) fp32", "(num_warps,)", "the size 'num_warps' has a meaning"),
        ("new", "x: (self,) fp32", "(self,)", "the size 'self' has a meaning"),
        ("new", "x: (M,) fp32; y: (M,) fp32", "(M,)", r"'x: .*; y: .*' is not NAME: \(SIZES\)"),
        ("new", "x_ptr: (M,) fp32, x: (M,) fp32", "(M,)", "x_ptr is a pointer's name"),
        ("new", "x: (x_ptr,) fp32", "(x_ptr,)", "x_ptr is a pointer's name"),
        ("new", "", "(M,)", "--inputs: empty"),
        ("new", "x (M,) fp32", "(M,)", "is not NAME: \\(SIZES\\) DTYPE"),
        ("new", "x: (M, M) fp32", "(M,)", "is no list of different sizes"),
        ("new", "x: () fp32", "(M,)", "is no list of different sizes"),
        ("new", "x: (4, M) fp32", "(M,)", "the size '4' is not a Python name"),
        ("new", "x: (M,) i32", "(M,)", "x is i32; it must be one of fp32, fp16, bf16"),
        ("new", "x: (M,) fp12", "(M,)", "unknown dtype 'fp12'"),
        ("new", "x: (M,) fp32, x: (M,) fp32", "(M,)", "--inputs"),
        ("new", "M: (M,) fp32", "(M,)", "M is both a tensor and a size"),
        ("new", "x: (M, N) fp32", "(N, M)", "does not broadcast to"),
        ("new", "x: (M,) fp32", "(M, N)", "no input has the size N"),
        ("new", "x: (A, B, C, D, E) fp32", "(A, B, C, D, E)", "5 sizes; at most 4"),
    ],
)
def test_bad_signatures(name: str, inputs: str, output: str, message: str) -> None:
    """Each mistake is one line that says what is wrong."""
    with pytest.raises(InputError, match=message) as caught:
        KernelSignature.parse(name, inputs, output)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("pow", "x: (M,) fp32", "(M,)"),
        ("total", "baseline: (M, N) fp32, inputs: (N,) fp32", "(M,)"),
        ("new", "grid: (row,) fp32, range: (row,) fp32", "(row,)"),
    ],
)
def test_names_that_mean_nothing_else_are_taken(name: str, inputs: str, output: str) -> None:
    """Names are free that the files use where the kernel's do not reach."""
    texts = kernel_files(KernelSignature.parse(name, inputs, output))
    assert f"def {name}(" in texts[f"{name}.py"]


def test_dtypes_in_capitals_and_a_last_comma() -> None:
    """A dtype may be in capitals, and a comma may follow the last input."""
    plain = KernelSignature.parse("new", "x: (M,) bf16", "(M,)")
    assert KernelSignature.parse("new", "x: (M,) BF16, ", "(M,)") == plain


def test_all_files_or_none(tmp_path: Path) -> None:
    """Nothing is written where one of the files exists, or the folder takes none."""
    (tmp_path / "bench_dots.py").write_text("mine")
    with pytest.raises(InputError, match=r"bench_dots\.py exists"):
        write_kernel(signature("dots"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bench_dots.py"]
    assert (tmp_path / "bench_dots.py").read_text() == "mine"
    with pytest.raises(InputError, match="No such file"):
        write_kernel(signature("dots"), tmp_path / "none")


def test_a_failed_write_removes_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up after the first file leaves none."""
    from asmtune.workshop.kernel_checks import new_kernel

    write, count = new_kernel.write_whole, [0]

    def full(path: Path, data: bytes) -> None:
        count[0] += 1
        if count[0] == 3:
            raise OSError(28, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(new_kernel, "write_whole", full)
    with pytest.raises(InputError, match="No space left"):
        write_kernel(signature("dots"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(kernel_files(signature("dots"))) == 3
