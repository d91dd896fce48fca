"""`asmtune explain` of a kernel's config: among others, its code, and what it refuses."""

from __future__ import annotations

import json

import pytest

from tests.command_lines import HEAD, Commands

DOUBLED = ("explain", "{}/doubled.py")
SUMS = (
    HEAD
    + """
@triton.jit
def sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + at, mask=start + at < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, 0))
"""
)

RAGGED = (
    HEAD
    + """
@triton.jit
def ragged(x_ptr, length_ptr, y_ptr, n, BLOCK: tl.constexpr):
    length = tl.load(length_ptr + tl.program_id(0))
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < length, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, 0))
"""
)


@pytest.fixture
def sums(commands: Commands) -> tuple[str, ...]:
    """A plain function with a loop, and its arguments."""
    (commands.folder / "sums.py").write_text(SUMS)
    values = ("--arg", "x_ptr=fp32[n]", "--arg", "y_ptr=fp32[64]", "--arg", "n=40960")
    axes = ("--axis", "BLOCK=128,1024", "--axis", "num_warps=2,4")
    return ("explain", "{}/sums.py:sums", *values, *axes, "--grid", "64")


@pytest.mark.slow
@pytest.mark.parametrize(("language", "opcode"), [("ptx", "ld.global"), ("sass", "LDG.E")])
def test_code(language: str, opcode: str, commands: Commands, sums: tuple[str, ...]) -> None:
    """The hottest loop in either language, with source lines, and trips of PTX's."""
    ran = commands.run(*sums, "--config", "BLOCK=1024", "--code", language)
    assert (ran.code, ran.err) == (0, "")
    loop = ran.out[ran.out.index(f"Hottest loop in {language.upper()}: depth 1, ") :]
    assert "; lines of sums.py" in loop
    assert ("40 trips a program" in loop) is (language == "ptx")
    source = 1 + SUMS[: SUMS.index("total += ")].count("\n")
    (line, *_) = (line for line in loop.splitlines() if opcode in line)
    assert line.split()[0] == str(source)


@pytest.mark.slow
def test_json(commands: Commands, sums: tuple[str, ...]) -> None:
    """The verdict's document has terms that sum to the time, what to try, and the code."""
    config = ("--config", "BLOCK=1024,num_warps=2")
    ran = commands.run(*sums, *config, "--format", "json", "--code", "ptx")
    document = json.loads(ran.out)
    assert document["format"] == "asmtune-verdict"
    predicted = document["verdict"]["predicted_us"]
    assert sum(document["terms_us"].values()) == pytest.approx(predicted, abs=0.01)
    assert document["code"]["language"] == "PTX"
    assert document["code"]["hot"]["times"] == 40
    (suggestion,) = document["suggestions"]
    assert suggestion["words"].startswith("num_warps 2 -> 4: ")
    assert suggestion["config"]["predicted_us"] < predicted
    largest = max(document["terms_us"], key=lambda name: document["terms_us"][name])
    assert document["verdict"]["bottleneck"] == largest
    bare = json.loads(commands.run(*sums, "--format", "json", "--alone").out)
    assert bare["suggestions"] == []
    assert "code" not in bare


def test_alone_a_config_that_fails_is_explained(commands: Commands) -> None:
    """Stage and reason, with exit code 0: that is what was asked for."""
    ran = commands.run("explain", "{}/broken.py", "--alone")
    assert (ran.code, ran.err) == (0, "")
    assert "dropped at compile, not ranked" in ran.out
    assert ran.out.count("missing_name is not defined") == 1
    assert "does not compile: kernel at lower: line 3 of the kernel" in ran.out


def test_a_guess_is_told(commands: Commands) -> None:
    """Trips that memory decides are called assumed, with their line, in text and JSON."""
    (commands.folder / "ragged.py").write_text(RAGGED)
    values = ("--arg", "x_ptr=fp32[64,n]", "--arg", "length_ptr=i32[64]", "--arg", "y_ptr=fp32[64]")
    asked = ("explain", "{}/ragged.py:ragged", *values, "--arg", "n=4096", "--axis", "BLOCK=128")
    line = 1 + RAGGED[: RAGGED.index("for start")].count("\n")
    guess = f"line {line}: a loop that cannot be evaluated (loaded from memory): 32 trips assumed"
    ran = commands.run(*asked, "--grid", "64", "--alone", "--code", "ptx")
    assert f"\n  a guess: {guess}\n" in ran.out
    assert "32 trips a program" in ran.out
    document = json.loads(commands.run(*asked, "--grid", "64", "--alone", "--format", "json").out)
    assert document["guesses"] == [guess]


def test_what_is_refused(commands: Commands) -> None:
    """One line that names the mistake."""
    for arguments, says in (
        (("--config", "BLOK=64"), "--config: no axis 'BLOK'; the axes are BLOCK"),
        (("--config", "num_warps=x"), "num_warps is 'x': expected a whole number"),
        (("--code", "llvm"), "--code"),
    ):
        assert says in commands.refused(*DOUBLED, *arguments)


def test_code_is_saved(commands: Commands) -> None:
    """A config's code of every stage is a file; one that was not compiled has none."""
    folder = commands.folder / "code"
    ran = commands.run(*DOUBLED, "--alone", "--save-code", str(folder))
    assert ran.code == 0, ran.err
    files = {path.suffix: path.read_bytes() for path in folder.iterdir()}
    assert files.keys() == {".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".sass"}
    assert b".entry kernel" in files[".ptx"]
    assert files[".cubin"].startswith(b"\x7fELF")
    wrong = (*DOUBLED, "--alone", "--config", "BLOCK=3", "--save-code", str(folder))
    assert commands.run(*wrong).code != 0
    assert "--save-code /proc/x" in commands.refused(*DOUBLED, "--alone", "--save-code", "/proc/x")
