"""Bad input: one clear line on stderr, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactWarning
from asmtune.core.hardware.descriptor import descriptor_of
from asmtune.core.hardware.shipped import load_target
from tests.command_lines import Commands

REPOSITORY = Path(__file__).parents[2]
TIMINGS = REPOSITORY / "tests" / "replay_data" / "timings.json"

DOUBLED, SHOW = ("prune-report", "{}/doubled.py"), ("targets", "show")
FILES = {
    "empty.json": b"",
    "bytes.json": bytes(range(256)),
    "deep.json": b"[" * 100_000,
    "list.json": b"[]",
    "null.json": b"null",
    "empty.py": b"",
    "bytes.py": bytes(range(256)),
    "raises.py": b"1 / 0\n",
    "exits.py": b"import sys\nsys.exit(3)\n",
}
MATMUL = "prune-report tiled_matmul"
PLAIN = "prune-report {}/plain.py:plain --grid 1 --arg x_ptr=fp16[n] --arg n=1000"
MISTAKES = f"""
prune-report | Missing argument 'KERNEL'
prune-report matmull | unknown kernel 'matmull': the kernels are .*mean matmul?
prune-report {{}}/absent.py | absent.py: no such file
prune-report {{}}/plain.py | defines no 'kernel'
prune-report {{}}/plain.py:plan | defines no 'plan'; did you mean plain?
prune-report {{}}/plain.py:not_a_kernel | is not a Triton kernel
prune-report {{}}/raises.py | raises.py, line 1: ZeroDivisionError
prune-report {{}}/ | a folder; name a Python file in it
prune-report {{}}/gone.json | gone.json: no such file
prune-report {{}}/list.json | list.json: not a Python file
{MATMUL} --target H200 --target "NVIDIA H200" | a device is given twice
{MATMUL} --target {{}} | cannot be read
targets show H2000 | target 'H2000' is unknown; did you mean H200?
{MATMUL} --dtype fp64 | matmul does not support fp64: one of fp16
{MATMUL} --shape M=4096,N=4096 | the shape lacks K; write --shape M=4096
{MATMUL} --shape M=1,N | --shape: 'N' is not NAME=VALUE
{MATMUL} --shape M={"9" * 11},N={"9" * 11},K=1 | overflow
{MATMUL} --axis BLOCK_Q=1 | unknown axis 'BLOCK_Q': the axes are BLOCK_M
{MATMUL} --axis BLOCK_M=1 --axis BLOCK_M=2 | --axis: BLOCK_M is given twice
{MATMUL} --axis num_warps=6.5 | axis 'num_warps' has 6.5: expected a power of two
{PLAIN} | no value for BLOCK
prune-report {{}}/plain.py:plain --arg x_ptr=fp16 | a tensor is written as x_ptr=fp16[M,K]
{PLAIN} --shape n=4 | --shape and --dtype are for kernel modules
{MATMUL} --arg M=4 | --arg is for a function
prune-report {{}}/doubled.py --compile 2 --scorer chance | chance ranks only what is compiled
model replay {TIMINGS} | --kernels
roofline {{}}/doubled.py --shapes {{}}/bytes.json | bytes.json: no text
roofline {{}}/doubled.py --shapes {{}}/deep.json | line 1: .*not NAME=VALUE
prune-report {{}}/raises.py -o /proc/o.json | --output /proc/o.json:
prune-report {{}}/raises.py -o {{}}/list.json/o | no such folder
model rows {TIMINGS} --kernels {{}} --output {TIMINGS} | is that file; name another one
roofline {{}}/raises.py -o {{}}/a.bmp | tells no form
explain {{}}/raises.py --scorer x | unknown scorer 'x'
roofline {{}}/raises.py --dtype fp99 | unknown dtype 'fp99'
bench {{}}/raises.py --output {{}}/o.json --processes 0 | --processes
model collect {{}}/raises.py --output {{}}/o.json --seconds nan | --seconds
"""
"""Command lines, each with what its one line of error says: parts between `.*`, in order."""
WRITE = ("prune-report", "tune", "bench", "model collect")


@pytest.mark.parametrize(
    "case",
    [
        *MISTAKES.strip().splitlines(),
        # files to write, before anything is imported or compiled
        *(
            f"{command} {{}}/raises.py --output {path} | {says}"
            for command in WRITE
            for path, says in (("{}/no/o.json", "no such folder"), ("{}", "a folder itself"))
        ),
    ],
)
def test_one_line(case: str, commands: Commands, session_cache: Path) -> None:
    """Every mistake is one line that names it, and no file is written or changed."""
    before = _files(commands.folder)
    command, _, says = case.partition(" | ")
    line = commands.refused(*shlex.split(command))
    start = 0
    for part in says.split(".*"):
        start = line.index(part, start) + len(part)
    assert _files(commands.folder) == before


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def commands(commands: Commands) -> Commands:
    """Run commands beside files that are no kernels, reports or timings."""
    for name, content in FILES.items():
        (commands.folder / name).write_bytes(content)
    return commands


@pytest.mark.parametrize("command", ["prune-report", "explain"])
def test_a_kernel_that_does_not_compile(command: str, commands: Commands) -> None:
    """The compiler's message comes once, with the line of the kernel, not once a config."""
    line = commands.refused(command, "{}/broken.py")
    assert line.count("missing_name is not defined") == 1
    assert "no config of doubled can run on H200: 4 of 4 fail with kernel" in line
    assert 'line 3 of the kernel, "tl.store(x_ptr + at, missing_name * 2, mask=at < n)"' in line


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("sms", None, "sms"),
        ("registers_per_sm", -1, "registers_per_sm"),
        ("clock_hz", 1980, "no device has it below 1e\\+06; .* hertz"),
        ("sms", 10**9, "sms is 1e\\+09, and no device has it above"),
    ],
)
def test_a_target_file(field: str, value: int | None, says: str, commands: Commands) -> None:
    """A missing field of the user's own target, or one that no device has, is named."""
    document = {**descriptor_of(load_target("H200")), field: value}
    path = commands.folder / "mine.json"
    path.write_text(json.dumps({n: v for n, v in document.items() if v is not None}))
    line = commands.refused("prune-report", "{}/doubled.py", "--target", str(path))
    assert re.search(f"mine.json.*{says}", line)


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("{}/none", "cannot be read: No such file or directory; correct ASMTUNE_TARGETS"),
        ("{}/plain.py", "cannot be read: Not a directory; correct ASMTUNE_TARGETS"),
        ("{}/a\0b", "cannot be read: .*null.*; correct ASMTUNE_TARGETS"),
    ],
)
@pytest.mark.parametrize("command", [("targets",), (*SHOW, "H200"), (*DOUBLED, "--target", "L4")])
def test_a_folder_of_targets_that_cannot_be_read(
    command: tuple[str, ...],
    folder: str,
    says: str,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder that the user names must be there, whichever target a command names."""
    settings = Settings(
        cache_dir=commands.folder, targets=folder.replace("{}", str(commands.folder))
    )
    monkeypatch.setattr(Settings, "from_environment", lambda: settings)
    assert re.search(says, commands.refused(*command))


@pytest.mark.slow(seconds=3)
def test_an_unwritable_cache(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that compiles goes on where the folder cannot be, after one warning."""
    kernels = str(TIMINGS.parent / "kernels")
    (commands.folder / "cache").write_text("in the way")
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ArtifactWarning)
        for command in (
            ("prune-report", "{}/doubled.py"),
            ("explain", "{}/doubled.py"),
            ("model", "replay", str(TIMINGS), "--kernels", kernels, "--scorer", "chance"),
        ):
            ran = commands.run(*command)
            assert (ran.code, ran.err) == (0, "")
            # What stands in for the folder gives the artifact whose resources are listed.
            assert command[0] != "explain" or "Resources" in ran.out
    (line,) = (str(w.message) for w in told if w.category is ArtifactWarning)
    assert line.startswith("artifact folder")
    assert "ASMTUNE_CACHE_DIR" in line
    assert (commands.folder / "cache").read_text() == "in the way"


def test_a_full_cache(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told as such, and nothing is left half-written."""
    opened = Path.open

    def full(path: Path, mode: str = "r", **given: Any) -> Any:
        if mode == "wb":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode, **given)

    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    monkeypatch.setattr(Path, "open", full)
    assert "free some space" in commands.refused("prune-report", "{}/doubled.py")
    assert [path for path in (commands.folder / "cache").rglob("*") if path.is_file()] == []


def test_code_of_the_users_that_raises(commands: Commands) -> None:
    """Whatever a kernel module's own functions raise is told in one line."""
    text = (commands.folder / "doubled.py").read_text()
    for old, new in (
        ("    return Space(", "    return nothing(\n"),
        ("    return Problem(", "    1 / 0\n    return Problem("),
        ('values["BLOCK"]', 'values["BLOK"]'),
        ("SHAPES = (", "SHAPES = ({}['n'],"),
    ):
        path = commands.folder / f"raises_{len(old)}.py"
        path.write_text(text.replace(old, new))
        commands.refused("prune-report", str(path))
