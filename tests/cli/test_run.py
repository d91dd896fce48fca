"""`asmtune run`: the program as Python runs it, but for `triton.autotune`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from asmtune.cli.app import run
from asmtune.cli.output import _plain
from asmtune.cli.run import keys_met_table
from asmtune.runtime.events import KeyResolved

REPOSITORY = Path(__file__).parents[2]

TELLS = """
import json, sys
from pathlib import Path
def here(): return __name__
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "name": __name__, "first": sys.path[0], "file": __file__,
    "main": vars(main) is globals(), "module": here.__module__,
}))
"""
ASKS = """
import inspect, triton
from triton import autotune
from triton.runtime.autotuner import Autotuner
print(autotune is triton.autotune, "asmtune" in autotune.__code__.co_filename,
      "asmtune" in Autotuner.run.__code__.co_filename,
      "cache_results" in inspect.signature(triton.autotune).parameters)
"""
RAISES = """
def outer():
    raise LookupError("lost")
outer()
"""


@dataclass(frozen=True)
class Ran:
    """The result of a process."""

    code: int
    out: str
    err: str


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


@pytest.mark.slow(seconds=2)
def test_a_script_finds_what_python_gives_it(tmp_path: Path) -> None:
    """Arguments, options that look like asmtune's, `__main__`, path and file are Python's."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "tells.py").write_text(TELLS)
    arguments = ("inner/tells.py", "--effort", "mine", "--", "-m", "--help")
    ran = asmtune_run(tmp_path, "--effort", "quick", *arguments)
    assert ran.err == ""
    assert json.loads(ran.out) == json.loads(python(tmp_path, *arguments).out)


@pytest.mark.slow(seconds=3)
def test_a_target_is_that_of_the_programs_launches(tmp_path: Path) -> None:
    """A program's launches are ranked by the descriptor that --target names, on any GPU."""
    name = "asmtune.core.hardware.shipped"
    (tmp_path / "tells.py").write_text(
        f"import triton\nfrom {name} import match_device\nprint(match_device('Voodoo 2').name)\n"
    )
    shown = python(tmp_path, "-m", "asmtune", "targets", "show", "L4", "--json").out
    (tmp_path / "mine.json").write_text(shown.replace('"L4"', '"Mine"', 1))
    assert asmtune_run(tmp_path, "--target", "mine.json", "tells.py").out == "Mine\n"
    refused = asmtune_run(tmp_path, "--target", "H2OO", "tells.py")
    assert (refused.code, "target 'H2OO' is unknown" in refused.err) == (2, True)


@pytest.mark.slow(seconds=2)
def test_a_module_finds_what_python_gives_it(tmp_path: Path) -> None:
    """With -m a module of a package runs as `__main__`, with the current folder first."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "tells.py").write_text(TELLS)
    arguments = ("-m", "package.tells", "--store", "mine")
    ran = asmtune_run(tmp_path, *arguments)
    assert ran.err == ""
    assert json.loads(ran.out) == json.loads(python(tmp_path, *arguments).out)


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("archived", [False, True])
def test_a_folder_or_an_archive_runs(tmp_path: Path, archived: bool) -> None:
    """What has a `__main__.py` runs as Python would run it."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "__main__.py").write_text("import sys, beside; print(beside.x, sys.argv[1:])")
    (folder / "beside.py").write_text("x = 3")
    name = "program"
    if archived:
        name = "program.pyz"
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for file in folder.iterdir():
                archive.write(file, file.name)
    assert asmtune_run(tmp_path, name, "a").out == "3 ['a']\n"


def test_triton_is_patched_in_the_program(tmp_path: Path) -> None:
    """A program's `triton.autotune`, and the class behind it, are asmtune's, with Triton's form."""
    (tmp_path / "asks.py").write_text(ASKS)
    assert asmtune_run(tmp_path, "asks.py").out == "True True True True\n"


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no more')", 1, "no more\n"),
        ("import os; os._exit(5)", 5, ""),
        ("from asmtune.base.errors import InputError; raise InputError('mine')", 1, None),
        ("x = (", 1, None),
        (RAISES, 1, None),
        ("import warnings; warnings.warn('look', stacklevel=1)", 0, None),
        (
            "import atexit, sys; atexit.register(lambda: print(sys.modules['__main__'].y)); y=1",
            0,
            "",
        ),
    ],
)
def test_a_program_ends_as_under_python(
    tmp_path: Path, source: str, code: int, says: str | None
) -> None:
    """Exit codes, messages, warnings and tracebacks are those of Python, to the letter."""
    (tmp_path / "ends.py").write_text(source)
    ran, plain = asmtune_run(tmp_path, "ends.py"), python(tmp_path, "ends.py")
    assert ran == plain
    assert ran.code == code
    assert says in (None, ran.err)


@pytest.mark.slow(seconds=2)
def test_a_programs_own_hook_is_called(tmp_path: Path) -> None:
    """An exception hook that the program sets sees its exception."""
    source = "import sys\nsys.excepthook = lambda kind, *_: print(kind.__name__)\n1 / 0"
    (tmp_path / "hooked.py").write_text(source)
    ran = asmtune_run(tmp_path, "hooked.py")
    assert (ran.code, ran.out, ran.err) == (1, "ZeroDivisionError\n", "")


MEETS = """
import os, sys, triton
from asmtune.runtime.events import KeyResolved, emit
print(os.environ["ASMTUNE_STORE_URL"])
emit(KeyResolved(kernel="lib.scale", how="tuned", compiled=40, timed=12, seconds=2.25))
emit(KeyResolved(kernel="lib.add", how="known"))
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


def test_rules_of_buckets_that_name_nothing(tmp_path: Path) -> None:
    """A rule that changed no key of the program is told in one line, and the exit code stays."""
    (tmp_path / "rules.txt").write_text("pow2(seqlen)\n")
    (tmp_path / "plain.py").write_text("import sys; sys.exit(3)")
    ran = asmtune_run(tmp_path, "--buckets", "rules.txt", "-q", "plain.py")
    line = "asmtune: bucket pow2(seqlen) changed no key: no kernel of triton.autotune was met\n"
    assert (ran.code, ran.err) == (3, line)


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
    keys = json.loads((tmp_path / "keys.json").read_text())
    sizes = [key["shape"]["n"] for key in keys["keys"]]
    assert sizes[:2] == [64, 65]
    assert sorted(sizes) == [16, 17, 32, 33, 64, 65]
    assert {key["kernel"] for key in keys["keys"]} == {"__main__.double"}
    ran = asmtune_run(tmp_path, "-q", "--keys", "keys.json", "serves.py", "64", "meet(9)")
    lines = ran.err.splitlines()
    assert lines[0].startswith("asmtune: 1 of 2 keys met is not in ")
    assert lines[1].startswith("asmtune: not listed: kernel __main__.double at n=9, x_ptr fp32")
    assert len(lines) == 2


def test_table_of_one_kernel() -> None:
    """One kernel has no line of sums; what was neither tuned nor stored was picked."""
    met = [KeyResolved(kernel="k", how=how) for how in ("predicted", "nearest", "tuned")]
    text = _plain(keys_met_table(met))
    assert [cell.strip() for cell in text.splitlines()[-1].split("│")][-1] == "2"
    assert "kernels" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-m", "-c", "absent"), "-m and -c: PROGRAM is either a module's name or code"),
        (("--effort", "hard", "absent.py"), "unknown effort 'hard': the efforts are quick"),
        (("--on-miss", "cry", "absent.py"), "on_miss='cry': give one of tune"),
        (("--bucket", "pow2", "absent.py"), "bucket 'pow2' is no rule: write pow2(M)"),
        (("--buckets", "absent.txt", "absent.py"), "rules of buckets absent.txt: No such file"),
        (("--keys", "absent.json", "/dev/null"), "keys absent.json: No such file or directory"),
        (
            ("--record", "absent/keys.json", "/dev/null"),
            "--record absent/keys.json: no such folder",
        ),
        ((), "Missing argument 'program'"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What cannot be run is refused in one line, with exit code 2."""
    assert run(["run", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"asmtune: {says}")
    assert printed.err.count("\n") == 1
