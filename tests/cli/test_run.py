"""`asmtune run`: the program as Python runs it, but for `triton.autotune`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_lines import Commands, Ran

REPOSITORY = Path(__file__).parents[2]


def python(folder: Path, *arguments: str, **environment: str) -> Ran:
    """A new Python in a folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def asmtune_run(folder: Path, *arguments: str) -> Ran:
    """`asmtune run` in a folder."""
    return python(folder, "-m", "asmtune", "run", *arguments)


def test_python_without_site_is_refused(tmp_path: Path) -> None:
    """Nothing can be put before a program of `python -S`, and one line says so."""
    packages = os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])
    ran = python(tmp_path, "-S", "-m", "asmtune", "run", "-c", "print(3)", PYTHONPATH=packages)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("asmtune: Python's option -S")
    assert ran.err.count("\n") == 1


MEETS = """
import os, sys, triton
from asmtune.runtime.events import KeyResolved, emit
print(os.environ["ASMTUNE_STORE_URL"])
emit(KeyResolved(kernel="lib.scale", how="tuned", compiled=40, timed=12, seconds=2.25))
emit(KeyResolved(kernel="lib.add", how="known"))
from asmtune.runtime.launch_counts import LaunchCounts
LaunchCounts.launch_bound = lambda self: ["launch-bound: lib.add"]
sys.exit(3)
"""


@pytest.mark.slow(seconds=2)
def test_what_was_met_is_told_at_the_end(tmp_path: Path) -> None:
    """A table on stderr tells it, however the program ends, unless it is to be quiet."""
    (tmp_path / "meets.py").write_text(MEETS)
    ran = asmtune_run(tmp_path, "--store", "other.sqlite", "meets.py")
    assert (ran.code, ran.out) == (3, "other.sqlite\n")
    lines = [[cell.strip() for cell in line.split("│")] for line in ran.err.splitlines()]
    assert ["lib.add", "0", "0", "0", "0.0", "1", "0"] in lines
    assert ["lib.scale", "1", "40", "12", "2.2", "0", "0"] in lines
    assert ["2 kernels", "1", "40", "12", "2.2", "1", "0"] in lines
    assert ["asmtune: launch-bound: lib.add"] in lines
    (tmp_path / "closes.py").write_text(f"import sys\nsys.stderr = None\n{MEETS}")
    closed = asmtune_run(tmp_path, "--store", "other.sqlite", "closes.py")
    assert closed == Ran(3, "other.sqlite\n", "")
    quiet = asmtune_run(tmp_path, "--quiet", "--store", "other.sqlite", "meets.py")
    assert (quiet.code, quiet.err) == (3, "")


LATE = """
import os, sys, threading, time
from asmtune.runtime.events import KeyResolved, emit
from triton.runtime.autotuner import Autotuner
def late():
    threading.main_thread().join()
    print("asmtune" in Autotuner.run.__code__.co_filename)
    emit(KeyResolved(kernel="lib.late", how="tuned"))
threading.Thread(target=late).start()
if os.fork() == 0:
    emit(KeyResolved(kernel="lib.child", how="tuned"))
    sys.exit(0)
os.wait()
"""


@pytest.mark.slow(seconds=2)
def test_threads_outlive_the_script(tmp_path: Path) -> None:
    """Triton is patched until the last thread is done; a forked process tells nothing."""
    (tmp_path / "late.py").write_text(LATE)
    ran = asmtune_run(tmp_path, "late.py")
    assert ran.out == "True\n"
    assert "lib.late" in ran.err
    assert "lib.child" not in ran.err


EVERY_ORDER = """
import importlib, os, sys
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(name)
        from triton.runtime.autotuner import Autotuner
        print(name, "asmtune" in Autotuner.run.__code__.co_filename, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow(seconds=8)
def test_a_module_of_asmtune_is_imported_first(tmp_path: Path) -> None:
    """Whichever a program imports before Triton, it is loaded whole, and Triton is patched."""
    (tmp_path / "first.py").write_text(EVERY_ORDER)
    names = ("compile.lower", "compile.source", "core.alternatives", "core.problem",
             "runtime.events", "triton_api.autotuners", "triton_api.launching")  # fmt: skip
    ran = asmtune_run(tmp_path, "first.py", *(f"asmtune.{name}" for name in names))
    assert ran.out.splitlines() == [f"asmtune.{name} True" for name in names], ran.err


SERVES = """
import os, sys, torch, triton, triton.language as tl
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.events import emit_launch

CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})]

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

def meet(n):
    given = {"x_ptr": torch.ones(n), "n": n}
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    request = double.request(given, {}, grid, "NVIDIA H200")
    emit_launch(request, KernelCall(grid, tuple(given.values()), {}, double.arg_names))

if __name__ == "__main__":
    meet(int(sys.argv[1]))
    if os.fork() == 0:
        meet(int(sys.argv[1]) + 1)
        os._exit(0)
    os.wait()
    exec(sys.argv[2])
"""
"""Meets a key of its own kernel, and a child another one, without a GPU."""


@pytest.mark.slow(seconds=12)
def test_keys_are_recorded_however_the_program_ends(tmp_path: Path) -> None:
    """Each process adds its keys to the file, and no exception or exit loses one."""
    (tmp_path / "serves.py").write_text(SERVES)
    ran = asmtune_run(tmp_path, "--record", "keys.json", "serves.py", "64", "1 / 0")
    told = "asmtune: 1 of 1 key met were new to"
    assert (ran.code, told in ran.err) == (1, True), ran.err
    command = [sys.executable, "-m", "asmtune", "run", "--record", "keys.json", "serves.py"]
    ranks = [
        subprocess.Popen([*command, *ends], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for ends in (("32", "sys.exit(5)"), ("16", "os._exit(6)"))
    ]
    errors = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [5, 6], errors
    assert [told in error for error in errors] == [True, False]
    keys = [json.loads(line) for line in (tmp_path / "keys.json").read_text().splitlines()]
    sizes = [key["shape"]["n"] for key in keys]
    assert sizes[:2] == [64, 65]
    assert sorted(sizes) == [16, 17, 32, 33, 64, 65]
    assert {key["kernel"] for key in keys} == {"__main__.double"}


INTERPRETED = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import sys, torch, triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)
x = torch.ones(64)
double[lambda values: (triton.cdiv(64, values["BLOCK"]),)](x, 64)
print(x.sum().item())
sys.exit(3)
"""


@pytest.mark.slow(seconds=3)
def test_interpreted_launches_cannot_be_recorded(tmp_path: Path) -> None:
    """One line says so, before the program where its environment tells it, else as it ends."""
    (tmp_path / "interpreted.py").write_text(INTERPRETED)
    given = ("-m", "asmtune", "run", "--record", "keys.json", "interpreted.py")
    ran = python(tmp_path, *given, TRITON_INTERPRET="1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--record: TRITON_INTERPRET is set" in ran.err
    ran = python(tmp_path, *given)
    assert (ran.code, ran.out) == (3, "128.0\n"), ran.err
    assert ran.err.startswith("asmtune: nothing can be recorded in ")
    assert "TRITON_INTERPRET is set" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-m", "-c", "absent"), "-m and -c: PROGRAM is either a module's name or code"),
        (("--effort", "hard", "absent.py"), "unknown effort 'hard': the efforts are quick"),
        (("--on-miss", "cry", "absent.py"), "on_miss='cry': give one of tune"),
        (("--bucket", "pow2", "absent.py"), "bucket 'pow2' is no rule: write pow2(M)"),
        (("--record", "absent/keys.json", "x.py"), "--record absent/keys.json: no such folder"),
        ((), "Missing argument 'program'"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], says: str, commands: Commands) -> None:
    """What cannot be run is refused in one line, with exit code 2."""
    assert commands.refused("run", *arguments).startswith(f"asmtune: {says}")
