"""Bad input: one clear line on stderr, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_lines import Commands

from asmtune.compile.artifacts import ArtifactWarning

REPOSITORY = Path(__file__).parents[2]
H200 = REPOSITORY / "asmtune" / "core" / "hardware" / "devices" / "h200.json"
TIMINGS = REPOSITORY / "tests" / "replay_data" / "timings.json"

PRUNE = ("prune-report", "tiled_matmul")
PLAIN = ("prune-report", "{}/plain.py:plain", "--arg", "x_ptr=fp16", "--arg", "n=1000")
SIZED = ("prune-report", "{}/plain.py:plain", "--arg", "n=1000", "--axis", "BLOCK=128")
DOUBLED = ("prune-report", "{}/doubled.py")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        # kernels
        (("prune-report",), "Missing argument 'KERNEL|REPORT'"),
        (("prune-report", "matmull"), "unknown kernel 'matmull': the kernels are .*mean matmul?"),
        (("prune-report", "{}/absent.py"), "absent.py: no such file"),
        (("prune-report", "{}/plain.py"), "defines no 'kernel'"),
        (("prune-report", "{}/plain.py:plan"), "defines no 'plan'; did you mean plain?"),
        (("prune-report", "{}/plain.py:not_a_kernel"), "is not a Triton kernel"),
        (("prune-report", "{}/syntax.py"), "syntax.py, line 2: invalid syntax"),
        (("explain", "{}/syntax.py"), "syntax.py, line 2: invalid syntax"),
        # saved reports and measured times
        (("prune-report", "{}/gone.json"), "gone.json: cannot be read"),
        (("prune-report", str(TIMINGS)), "timings.json: no report: expected the JSON of"),
        (("prune-report", "{}/gone.json", "--target", "A100"), "--target is for kernels"),
        ((*DOUBLED, "--timings", "x.json"), "--timings x.json: no such run or file"),
        ((*DOUBLED, "--format", "html", "--timings", "x.json"), "no such run or file"),
        ((*DOUBLED, "--format", "html", "--timings", "store"), "no record of doubled.*H200: miss"),
        ((*DOUBLED, "--format", "html", "--timings", str(TIMINGS)), "the report is of doubled"),
        # targets and scorers
        ((*PRUNE, "--target", "H2000"), "target 'H2000' is unknown"),
        ((*PRUNE, "--target", "H200", "--target", "NVIDIA H200"), "a device is given twice"),
        ((*PRUNE, "--target", "{}"), "cannot be read"),
        ((*PRUNE, "--target", "{}/plain.py"), "plain.py"),
        ((*PRUNE, "--scorer", "weight"), "unknown scorer 'weight'"),
        # dtypes and shapes
        ((*PRUNE, "--dtype", "fp17"), "unknown dtype 'fp17'"),
        ((*PRUNE, "--dtype", "fp64"), "matmul does not support fp64: one of fp16"),
        ((*PRUNE, "--shape", "M=4096,N=4096"), "the shape lacks K; write --shape M=4096"),
        ((*PRUNE, "--shape", "M=1,N=1,K=1,Z=1"), "has no dimension 'Z'"),
        ((*PRUNE, "--shape", "M=1,N"), "--shape: 'N' is not NAME=VALUE"),
        ((*PRUNE, "--shape", "M=1,M=2,N=1,K=1"), "--shape: M is given twice"),
        ((*PRUNE, "--shape", "M=x,N=1,K=1"), "tiled_matmul on M=x N=1 K=1: "),
        ((*PRUNE, "--shape", "M=-1,N=1,K=1"), "tiled_matmul on M=-1 N=1 K=1: "),
        # axes
        ((*PRUNE, "--axis", "BLOCK_Q=1"), "unknown axis 'BLOCK_Q': the axes are BLOCK_M"),
        ((*PRUNE, "--axis", "BLOCK_M"), "--axis: 'BLOCK_M' is not NAME=VALUE,VALUE"),
        ((*PRUNE, "--axis", "BLOCK_M=16,"), "--axis: 'BLOCK_M=16,' is not NAME=VALUE,VALUE"),
        ((*PRUNE, "--axis", "BLOCK_M=1", "--axis", "BLOCK_M=2"), "--axis: BLOCK_M is given twice"),
        ((*PRUNE, "--axis", "num_warps=0"), "axis 'num_warps' has 0"),
        ((*PRUNE, "--axis", "num_warps=many"), "axis 'num_warps' has 'many'"),
        ((*PRUNE, "--axis", "BLOCK_M=16,16"), "axis 'BLOCK_M' repeats a value"),
        (
            (*PRUNE, "--axis", "BLOCK_M=16", "--axis", "BLOCK_N=32", "--axis", "num_warps=8"),
            "no feasible point among 12",
        ),
        # plain functions
        (PLAIN, "no value for BLOCK"),
        ((*PLAIN, "--arg", "q=1"), "has no parameter 'q': its parameters are x_ptr, n"),
        ((*PLAIN, "--arg", "BLOCK"), "--arg: 'BLOCK' is not NAME=VALUE"),
        ((*PLAIN, "--arg", "n=1"), "--arg: n is given twice"),
        ((*PLAIN[:2], "--arg", "x_ptr=fp17", "--arg", "n=1"), "unknown dtype 'fp17'"),
        ((*PLAIN, "--shape", "n=4"), "--shape and --dtype are for kernel modules"),
        ((*PLAIN, "--axis", "n=4", "--axis", "BLOCK=64"), "both an argument and an axis"),
        ((*PRUNE, "--arg", "M=4"), "--arg is for a plain function"),
        ((*PRUNE, "--grid", "1"), "--grid is for a plain function"),
        ((*SIZED, "--arg", "x_ptr=fp16[n"), "a pointer is written as x_ptr=fp16[M,K]"),
        ((*SIZED, "--arg", "x_ptr=fp16[m]"), "--arg x_ptr 'm': no number is called 'm'; known: n"),
        ((*SIZED, "--arg", "x_ptr=fp16[2**40,2**40]"), "--arg x_ptr=.*overflow"),
        ((*PLAIN, "--axis", "BLOCK=128", "--grid", "BLOK"), "'BLOK'.*BLOCK.*mean BLOCK?"),
        ((*PLAIN, "--axis", "BLOCK=128", "--grid", "x_ptr"), "no number is called 'x_ptr'"),
        ((*PLAIN, "--axis", "BLOCK=128", "--grid", "n//2000"), "under n=1000, is 0; expected a"),
        # options
        ((*DOUBLED, "--compile", "0"), "compile 0: the least is 1; give auto, a number such as 20"),
        ((*DOUBLED, "--compile", "some"), "compile 'some' is no number of configs; give auto"),
        (
            (*DOUBLED, "--compile", "2", "--scorer", "weights"),
            "compile 2: weights ranks only what is compiled; compile all, or rank by learned",
        ),
        ((*DOUBLED, "--keep", "0"), "keep 0: the least is 1; give auto, a number such as 20"),
        ((*DOUBLED, "--keep", "-3"), "keep '-3' is no number of configs; give auto"),
        ((*DOUBLED, "--keep", "150%"), "keep 150%: above 0% and up to 100%; give auto"),
        ((*DOUBLED, "--keep", "0.0%"), "keep 0%: above 0%"),
        ((*DOUBLED, "--keep", "abc"), "keep 'abc' is no number of configs; give auto"),
        (
            (*DOUBLED, "--keep", "auto", "--scorer", "weights"),
            "keep auto: the error of weights was never measured.*or rank by learned or roofline",
        ),
        ((*DOUBLED, "--format", "xml"), "--format"),
        ((*DOUBLED, "--output", "{}/none/report.json"), "No such file or directory"),
        ((*DOUBLED, "--output", "{}"), "Is a directory"),
        ((*DOUBLED, "--nonsense"), "--nonsense"),
        (("pruned-report",), "No such command"),
        # explain
        (("explain", "{}/doubled.py", "--config", "BLOK=64"), "no axis 'BLOK'; the axes are BLOCK"),
        (("explain", "{}/doubled.py", "--config", "BLOCK"), "--config: 'BLOCK' is not NAME=VALUE"),
        (("explain", "{}/doubled.py", "--config", "num_warps=0"), "axis 'num_warps' has 0"),
        (("explain", "{}/doubled.py", "--config", "num_warps=x"), "axis 'num_warps' has 'x'"),
        # replay
        (("replay", "{}/absent.json", "--kernels", "{}"), "No such file"),
        (("replay", "{}/plain.py", "--kernels", "{}"), "not whole JSON"),
        (("replay", str(TIMINGS)), "--kernels"),
        (("replay", str(TIMINGS), "--kernels", "{}"), "kernel 'barriers' of the oracle: no "),
        (("replay", str(TIMINGS), "--kernels", "{}", "--scorer", "x"), "unknown scorer 'x'"),
    ],
)
def test_one_line(
    arguments: tuple[str, ...], says: str, commands: Commands, session_cache: Path
) -> None:
    """Every mistake is told in one line that names it."""
    before = sorted(path.name for path in commands.folder.iterdir())
    line = commands.refused(*arguments)
    start = 0
    for part in says.split(".*"):
        start = line.index(part, start) + len(part)
    after = sorted(path.name for path in commands.folder.iterdir() if path.name != "__pycache__")
    assert after == before


@pytest.mark.parametrize("command", ["prune-report", "explain"])
def test_a_kernel_that_does_not_compile(command: str, commands: Commands) -> None:
    """The compiler's message comes once, with the line of the kernel, not once a config."""
    line = commands.refused(command, "{}/broken.py")
    assert line.count("missing_name is not defined") == 1
    assert "no config of doubled can run on H200: 4 of 4 fail with kernel" in line
    assert 'line 3 of the kernel, "tl.store(x_ptr + at, missing_name * 2, mask=at < n)"' in line


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda figures: figures.pop("sms"), "sms"),
        (lambda figures: figures.pop("shared_bytes_per_block"), "shared_bytes_per_block"),
        (lambda figures: _negate(figures, "registers_per_sm"), "registers_per_sm"),
        (lambda figures: _negate(figures, "l2_bytes"), "l2_bytes"),
    ],
)
def test_a_target_file(change: Any, says: str, commands: Commands) -> None:
    """A missing or negative field of the user's own target is named."""
    document = json.loads(H200.read_text())
    change(document)
    path = commands.folder / "mine.json"
    path.write_text(json.dumps(document))
    line = commands.refused("prune-report", "{}/doubled.py", "--target", str(path))
    assert says in line
    assert "mine.json" in line


def _negate(figures: dict[str, Any], name: str) -> None:
    value = figures[name]
    if isinstance(value, dict):
        value["value"] = -value["value"]
    else:
        figures[name] = -value


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_cut_off_oracle(share: float, zipped: bool, commands: Commands) -> None:
    """A file of timings that is cut off in the middle is told in one line."""
    data = TIMINGS.read_bytes().rstrip()
    data = gzip.compress(data) if zipped else data
    path = commands.folder / "timings"
    path.write_bytes(data[: int(len(data) * share)])
    line = commands.refused("replay", str(path), "--kernels", str(TIMINGS.parent / "kernels"))
    assert "cut off" in line


@pytest.mark.slow
def test_an_unwritable_cache(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that compiles goes on where the folder cannot be, after one warning."""
    (commands.folder / "cache").write_text("in the way")
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ArtifactWarning)
        for command in (
            ("prune-report", "{}/doubled.py"),
            ("explain", "{}/doubled.py"),
            ("replay", str(TIMINGS), "--kernels", str(TIMINGS.parent / "kernels")),
        ):
            ran = commands.run(*command)
            assert (ran.code, ran.err) == (0, "")
            # What stands in for the folder gives the artifact whose code is counted.
            assert command[0] != "explain" or "It has no loop" in ran.out
    (line,) = (str(w.message) for w in told if w.category is ArtifactWarning)
    assert line.startswith("artifact folder")
    assert "ASMTUNE_CACHE_DIR" in line
    assert (commands.folder / "cache").read_text() == "in the way"


def test_a_full_cache(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told as such, and nothing is left half-written."""

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    monkeypatch.setattr(Path, "write_bytes", full)
    assert "free some space" in commands.refused("prune-report", "{}/doubled.py")
    assert [path for path in (commands.folder / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["ASMTUNE_JOBS", "ASMTUNE_COMPILE_TIMEOUT_S"])
def test_a_wrong_environment(
    name: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is no number is named."""
    monkeypatch.setenv(name, "soon")
    assert f"environment variable {name}='soon'" in commands.refused(*DOUBLED)


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
