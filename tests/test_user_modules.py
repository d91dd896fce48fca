"""Kernel files as newcomers have them: neighbours, packages, prints, exits, endless loops."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asmtune.base.errors import ProblemError
from asmtune.core.kernel_module import load_function, load_kernel_module
from asmtune.triton_api.jit_functions import is_kernel

KERNEL = """
import triton, triton.language as tl

@triton.jit
def {name}(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n)
"""
FORM = """
from asmtune import Problem
from asmtune.core.space.space import Space

SHAPES, DTYPES = ({"n": 1024},), ("fp32",)

def space():
    return Space({"BLOCK": (64,)})

def problem(shape, dtype, device):
    import torch
    x = torch.empty(shape["n"], dtype=torch.int32, device=device)
    return Problem(kernel, {"x_ptr": x, "n": shape["n"]}, (1,), shape)
"""
MODULE = KERNEL.format(name="kernel") + FORM


def write(folder: Path, name: str, text: str = "") -> Path:
    """A file of this text, and the folders above it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(reference: object) -> str:
    """The line of the error that loading raises."""
    before = (list(sys.path), sys.stdout, sys.stderr, sys.argv)
    with pytest.raises(ProblemError) as raised:
        load_kernel_module(str(reference))
    assert (list(sys.path), sys.stdout, sys.stderr, sys.argv) == before
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 1000
    return line


def command(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "asmtune", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


# neighbours and packages


def test_neighbours(tmp_path: Path) -> None:
    """A file imports neighbours and packages beside it, now and inside its functions."""
    write(tmp_path, "sizes.py", "N = 1024\n")
    write(tmp_path, "later.py", "BLOCKS = (64, 128)\n")
    write(tmp_path, "pack/__init__.py", "from .inner import DTYPES\n")
    write(tmp_path, "pack/inner.py", "DTYPES = ('fp16',)\n")
    text = (
        MODULE.replace("SHAPES, DTYPES", "from sizes import N\nfrom pack import DTYPES\nSHAPES, _")
        .replace("1024", "N")
        .replace("    return Space(", "    from later import BLOCKS\n    return Space(")
        .replace("(64,)", "BLOCKS")
    )
    before = (list(sys.path), set(sys.modules))
    module = load_kernel_module(str(write(tmp_path, "mine.py", text)))
    assert (module.shapes, module.dtypes) == (({"n": 1024},), ("fp16",))
    assert [config.kwargs["BLOCK"] for config in module.space()] == [64, 128]
    assert sys.path == before[0]
    assert {"sizes", "later", "pack", "pack.inner"}.isdisjoint(sys.modules)


def test_neighbours_of_one_name(tmp_path: Path) -> None:
    """Files in two folders each find their own neighbour, also when they ask again later."""
    text = MODULE.replace("SHAPES, DTYPES", "from common import N\nSHAPES, DTYPES") + (
        "\ndef late():\n    import common\n    return common.N\n"
    )
    text = text.replace("(64,)", "(late(),)").replace("1024", "N")
    modules = []
    for number in (64, 128):
        write(tmp_path, f"{number}/common.py", f"N = {number}\n")
        modules.append(load_kernel_module(str(write(tmp_path, f"{number}/mine.py", text))))
    assert [module.shapes[0]["n"] for module in modules] == [64, 128]
    blocks = [next(iter(m.space())).kwargs["BLOCK"] for m in modules]
    assert blocks == [64, 128]


def test_paths_that_the_file_adds(tmp_path: Path) -> None:
    """A file that puts another folder on the path finds it there, and leaves the path as it was."""
    write(tmp_path, "lib/far.py", "BLOCKS = (64, 256)\n")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\nimport far\n" + MODULE
    text = text.replace("    return Space(", "    import far\n    return Space(")
    before = list(sys.path)
    module = load_kernel_module(str(write(tmp_path, "kernels/mine.py", text)))
    assert len(list(module.space())) == 1
    assert sys.path == before
    assert "far" not in sys.modules


def test_relative_imports(tmp_path: Path) -> None:
    """A file imports its neighbours relatively, in a package or in plain folders, each once."""
    write(tmp_path, "pack/__init__.py")
    write(tmp_path, "pack/sizes.py", "N = 512\n")
    text = MODULE.replace("SHAPES, DTYPES", "from .sizes import N\nSHAPES, DTYPES")
    module = load_kernel_module(str(write(tmp_path, "pack/mine.py", text.replace("1024", "N"))))
    assert module.shapes == ({"n": 512},)
    write(tmp_path, "plain/sizes.py", "N = 256\n")
    module = load_kernel_module(str(write(tmp_path, "plain/mine.py", text.replace("1024", "N"))))
    assert module.shapes == ({"n": 256},)
    line = refusal(write(tmp_path, "alone.py", text))
    assert re.search(r"alone.py, line 11: .*No module named '.*sizes'", line)


def test_a_module_of_a_package_is_not_executed_again(tmp_path: Path) -> None:
    """What a package has imported itself is taken; its modules hide no installed ones."""
    write(tmp_path, "pack/__init__.py", "from pack import mine")
    write(tmp_path, "pack/typer.py", "raise ZeroDivisionError")
    text = "import typer\nfrom . import __path__\n" + MODULE
    count = "import builtins\nbuiltins.executed = getattr(builtins, 'executed', 0) + 1\n"
    load_kernel_module(str(write(tmp_path, "pack/mine.py", count + text)))
    assert vars(builtins).pop("executed") == 1


def test_dotted_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`package.module` and `package.module:kernel` are looked up in the working directory too."""
    write(tmp_path, "my_pack/__init__.py")
    write(tmp_path, "my_pack/kernels/mine.py", "from my_pack.sizes import N\n" + MODULE)
    write(tmp_path, "my_pack/sizes.py", "N = 512\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    module = load_kernel_module("my_pack.kernels.mine")
    assert load_function("my_pack.kernels.mine:kernel") is module.kernel
    assert load_kernel_module("my_pack.kernels.mine").kernel is module.kernel
    assert module.kernel.fn.__module__ == "my_pack.kernels.mine"
    assert sys.path == before
    assert "ModuleNotFoundError" in refusal("my_pack.kernels.none")
    write(tmp_path, "my_pack/bare.py", KERNEL.format(name="only"))
    assert refusal("my_pack.bare").endswith("is named as my_pack.bare:only")
    assert "unknown kernel 'your_pack.mine'" in refusal("your_pack.mine")
    write(tmp_path, "single.py", MODULE)
    assert "did you mean single.py?" in refusal("single")


# several kernels


def test_several_kernels_are_listed(tmp_path: Path) -> None:
    """A file of functions lists its own, however it is named; those it imports are not its own."""
    write(tmp_path, "other.py", KERNEL.format(name="foreign"))
    text = "from other import foreign\n" + KERNEL.format(name="scaled")
    tuned = KERNEL.format(name="tuned").replace(
        "@triton.jit", "@triton.autotune([], [])\n@triton.jit"
    )
    path = write(tmp_path, "many.py", text + tuned + "def plain(x): pass\n")
    assert refusal(path).endswith(
        "a single function is named as many.py:scaled; its Triton functions are scaled, tuned"
    )
    for name in ("scale", ""):
        with pytest.raises(ProblemError, match=r"; its Triton functions are scaled, tuned$"):
            load_function(f"{path}:{name}")
    assert all(is_kernel(load_function(f"{path}:{name}")) for name in ("scaled", "tuned", "plain"))


def test_names_that_are_no_kernel(tmp_path: Path) -> None:
    """A class, a number, a builtin, a module or a lambda is refused in a line."""
    text = "import os as dotted\nclass Class: pass\nnumber, builtin = 3, len\nshort = lambda x: x\n"
    path = write(tmp_path, "others.py", text)
    for name in ("Class", "number", "builtin", "dotted", "short"):
        with pytest.raises(ProblemError) as raised:
            load_function(f"{path}:{name}")
        assert "\n" not in str(raised.value)


# what a file prints


PRINTS = """
import io, os, sys
print("by Python")
os.write(1, b"by the descriptor\\n")
os.system("echo by a child")
import ctypes
ctypes.CDLL(None).puts(b"by C")
sys.__stdout__.write("by the first stdout\\n")
"""


def test_prints_go_to_stderr(tmp_path: Path) -> None:
    """What a file prints, by Python or C, at its import or in its functions, is no result."""
    text = PRINTS + MODULE.replace("    return Space(", "    print('in space')\n    return Space(")
    done = command("explain", write(tmp_path, "prints.py", text), "--config", "BLOK=1")
    assert done.returncode == 2
    assert done.stdout == ""
    by = ("by Python", "by the descriptor", "by a child", "by C", "by the first stdout", "in space")
    for words in by:
        assert done.stderr.count(words) == 1, words


# what ends an import


ENDS = {
    "import sys\nsys.exit(0)": "line 2: sys.exit(0)",
    "\nexit('enough')": "line 2: sys.exit('enough')",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()": (
        "line 4: sys.exit(2)"
    ),
    "class Own(BaseException): pass\nraise Own('deep')": "line 2: Own: deep",
    "raise StopIteration": "line 1: StopIteration",
    "raise ExceptionGroup('many', [ValueError(1)])": "line 1: ExceptionGroup: many (1 sub",
    "raise ValueError('two\\nlines')": "line 1: ValueError: two lines",
    "raise ValueError('x' * 100_000)": "line 1: ValueError: xxx",
    "def f(): f()\nf()": "line 1: RecursionError: maximum recursion depth",
    "x = (\n": "line 1: '(' was never closed",
    "import fails": "ends.py: fails.py, line 2: ZeroDivisionError: division by zero",
    "import broken": "ends.py: broken.py, line 3: invalid syntax",
    "import exits": "ends.py: exits.py, line 1: sys.exit(5)",
}


@pytest.mark.parametrize("source", ENDS)
def test_what_ends_an_import(tmp_path: Path, source: str) -> None:
    """Whatever a file raises is told in one line, with the line that raised."""
    write(tmp_path, "helper.py")
    write(tmp_path, "fails.py", "\n1 / 0\n")
    write(tmp_path, "broken.py", "\n\nx = = 1\n")
    write(tmp_path, "exits.py", "raise SystemExit(5)\n")
    line = refusal(write(tmp_path, "ends.py", source + "\n"))
    assert ENDS[source] in line
    assert line.startswith(f"{tmp_path / 'ends.py'}")


def test_a_function_that_exits(tmp_path: Path) -> None:
    """`sys.exit` in a file's own function ends no program either."""
    text = MODULE.replace("    return Space(", "    exit(4)\n    return Space(")
    module = load_kernel_module(str(write(tmp_path, "exits.py", text)))
    with pytest.raises(ProblemError, match=r"exits.py: sys.exit\(4\)"):
        module.space()


def test_main_guards_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands under a guard is not run, and a parser sees no arguments but defaults."""
    guard = (
        "import argparse\nassert vars(argparse.ArgumentParser().parse_args()) == {}\n"
        "if __name__ == '__main__':\n    raise SystemExit('a program')\n"
    )
    monkeypatch.setattr(sys, "argv", ["asmtune", "prune-report", "--shape", "n=1"])
    module = load_kernel_module(str(write(tmp_path, "guarded.py", MODULE + guard)))
    assert module.name == "guarded"
    assert sys.argv[1] == "prune-report"


# what is no Python file


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders, notebooks, devices and other files are told as what they are."""
    (tmp_path / "folder.py").mkdir()
    write(tmp_path, "notes.ipynb", "{}")
    write(tmp_path, "data.csv", "1,2")
    monkeypatch.chdir(tmp_path)
    assert "folder.py: a folder; name a Python file in it" in refusal(tmp_path / "folder.py")
    assert "a folder" in refusal(tmp_path)
    assert "a folder" in refusal("./")
    assert "/dev/null: not a regular file" in refusal("/dev/null")
    assert "no such file" in refusal("a" * 5000 + ".py")
    assert "unknown kernel 'aaa" in refusal("a" * 5000)
    assert "no such file" in refusal("nul\0.py")
    assert "data.csv: not a Python file" in refusal("data.csv")
    for reference in ("notes.ipynb", "./notes.ipynb", tmp_path / "notes.ipynb"):
        assert "a notebook, not a Python file; write its cells to one with" in refusal(reference)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x = '\xff\xfe'\n", "utf-8"),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
        (b"", "defines no 'kernel'"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, says: str) -> None:
    """A file that is no UTF-8, or no text, is told so."""
    path = tmp_path / "bytes.py"
    path.write_bytes(content)
    assert re.search(f"bytes.*{says}", refusal(path))
