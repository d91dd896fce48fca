"""Bad input: one clear line on stderr, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
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

PRUNE = ("prune-report", "tiled_matmul")
PLAIN = ("prune-report", "{}/plain.py:plain", "--arg", "x_ptr=fp16", "--arg", "n=1000")
SIZED = ("prune-report", "{}/plain.py:plain", "--arg", "n=1000", "--axis", "BLOCK=128")
DOUBLED = ("prune-report", "{}/doubled.py")
ROOFLINE, EXPLAIN = ("roofline", "{}/doubled.py"), ("explain", "{}/doubled.py")
TUNE, BENCH = ("tune", "{}/doubled.py"), ("bench", "{}/doubled.py")
CHECK, TRAIN = ("check", "{}/a.json", "--baseline", "{}/b.json"), ("train", str(TIMINGS))
SHOW = ("targets", "show")
MINE = json.dumps(descriptor_of(load_target("H200")) | {"name": "mine", "aliases": []}).encode()
NEGATIVE = json.dumps(json.loads(MINE) | {"sms": -1}).encode()
GRID = (*SIZED, "--arg", "x_ptr=fp16", "--grid")
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
    "interrupted.py": b"raise KeyboardInterrupt\n",
}
WHOLE = "expected a whole number"


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
        (("run", "--target", "{}/plain.json", "{}/plain.py"), "plain.json: cannot be read"),
        ((*SHOW, "H2000"), "target 'H2000' is unknown; did you mean 'H200'?"),
        ((*SHOW, "H200", "--driver"), "--driver is of the GPU here, and 'H200' is named"),
        ((*SHOW, "--driver"), "this needs a CUDA GPU; PyTorch finds none on this machine"),
        (("targets", "measure"), "this needs a CUDA GPU; PyTorch finds none on this machine"),
        (("targets", "measure", "--output"), "--output"),
        ((*PRUNE, "--scorer", "weight"), "unknown scorer 'weight'"),
        # dtypes and shapes
        ((*PRUNE, "--dtype", "fp17"), "unknown dtype 'fp17'"),
        ((*PRUNE, "--dtype", "fp64"), "matmul does not support fp64: one of fp16"),
        ((*PRUNE, "--shape", "M=4096,N=4096"), "the shape lacks K; write --shape M=4096"),
        ((*PRUNE, "--shape", "M=1,N=1,K=1,Z=1"), "has no dimension 'Z'"),
        ((*PRUNE, "--shape", "M=1,N"), "--shape: 'N' is not NAME=VALUE"),
        ((*PRUNE, "--shape", "M=1,M=2,N=1,K=1"), "--shape: M is given twice"),
        ((*PRUNE, "--shape", "M=x,N=1,K=1"), "tiled_matmul: M is 'x'; expected a whole number"),
        ((*PRUNE, "--shape", "M=-1,N=1,K=1"), "tiled_matmul: M is -1; expected a whole number"),
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
        ((*SIZED, "--arg", "x_ptr=fp16[m]"), "no number is called 'm'; known: n, BLOCK"),
        ((*SIZED, "--arg", "x_ptr=fp16[1099511627776,1099511627776]"), "--arg x_ptr=.*overflow"),
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
        ((*DOUBLED, "--output", "{}/none/report.json"), "no such folder"),
        ((*DOUBLED, "--output", "{}"), "or a folder itself; name a file"),
        ((*DOUBLED, "--nonsense"), "--nonsense"),
        (("pruned-report",), "No such command"),
        # explain
        (("explain", "{}/doubled.py", "--config", "BLOK=64"), "no axis 'BLOK'; the axes are BLOCK"),
        (("explain", "{}/doubled.py", "--config", "BLOCK"), "--config: 'BLOCK' is not NAME=VALUE"),
        (
            ("explain", "{}/doubled.py", "--config", "num_warps=x"),
            "num_warps is 'x': expected a whole",
        ),
        # replay
        (("replay", "{}/absent.json", "--kernels", "{}"), "No such file"),
        (("replay", "{}/plain.py", "--kernels", "{}"), "not whole JSON"),
        (("replay", str(TIMINGS)), "--kernels"),
        (("replay", str(TIMINGS), "--kernels", "{}"), "kernel 'barriers' of the oracle: no "),
        (("replay", str(TIMINGS), "--kernels", "{}", "--scorer", "x"), "unknown scorer 'x'"),
        (("replay", "{}/empty.json", "--kernels", "{}"), "empty.json"),
        (("replay", "{}/bytes.json", "--kernels", "{}"), "bytes.json"),
        (("replay", "{}", "--kernels", "{}"), "Is a directory"),
        # sizes
        ((*PRUNE, "--shape", "M=0,N=1,K=1"), f"M is 0; {WHOLE} from 1"),
        ((*PRUNE, "--shape", "M=1e9,N=1,K=1"), f"{WHOLE}, written as 1000000000"),
        ((*PRUNE, "--shape", "M=1.5,N=1,K=1"), f"M is 1.5; {WHOLE}"),
        ((*PRUNE, "--shape", "M=nan,N=1,K=1"), f"M is nan; {WHOLE}"),
        ((*PRUNE, "--shape", "M=true,N=1,K=1"), f"M is True; {WHOLE}"),
        ((*PRUNE, "--shape", "M=none,N=1,K=1"), f"M is None; {WHOLE}"),
        ((*PRUNE, "--shape", f"M={'9' * 23},N=1,K=1"), f"M is {'9' * 23}; {WHOLE}"),
        ((*PRUNE, "--shape", f"M={'9' * 11},N={'9' * 11},K=1"), "overflow"),
        ((*PRUNE, "--shape", ""), "--shape: '' is not NAME=VALUE"),
        ((*EXPLAIN, "--shape", "n=0"), f"n is 0; {WHOLE}"),
        ((*ROOFLINE, "--shape", "n=0"), f"n is 0; {WHOLE}"),
        ((*ROOFLINE, "--shapes", "{}"), "Is a directory"),
        ((*ROOFLINE, "--shapes", "{}/bytes.json"), "bytes.json: no text"),
        ((*ROOFLINE, "--shapes", "{}/deep.json"), "not JSON"),
        ((*TUNE, "--shape", "n=1e9"), "written as 1000000000"),
        ((*TUNE, "--shapes", "{}/empty.json"), "not JSON"),
        ((*BENCH, "--output", "{}/o.json", "--shape", "n="), "'n=' is not NAME=VALUE"),
        ((*PLAIN, "--axis", "BLOCK=128", "--arg", "rows=4"), "parameter 'rows'.*no size names it"),
        ((*PLAIN[:4], "--arg", f"n={'9' * 23}"), "beyond 64 bits"),
        # options of Triton
        ((*PRUNE, "--axis", "num_warps=3"), "axis 'num_warps' has 3: expected a power of two"),
        ((*PRUNE, "--axis", "num_warps=6.5"), "axis 'num_warps' has 6.5: expected a power of two"),
        ((*PRUNE, "--axis", "num_warps=true"), "axis 'num_warps' has True"),
        ((*PRUNE, "--axis", "num_warps=nan"), "axis 'num_warps' has nan"),
        ((*PRUNE, "--axis", "num_stages=1000000"), "expected a whole number from 1 to 100"),
        ((*PRUNE, "--axis", "num_ctas=3"), "expected a power of two from 1 to 16"),
        ((*PRUNE, "--axis", "maxnreg=-8"), "expected None or a whole number"),
        ((*PRUNE, "--axis", "BLOCK_M=nan"), "expected finite numbers"),
        ((*PRUNE, "--axis", ""), "--axis: '' is not NAME=VALUE"),
        ((*EXPLAIN, "--config", "num_warps=6.5"), "num_warps is 6.5: expected a whole number"),
        # files to write, before anything is imported or compiled
        *(
            ((*command, option, path), says)
            for command, option in (
                (("prune-report", "{}/raises.py"), "-o"),
                (("roofline", "{}/raises.py", "--format", "json"), "--output"),
                (("tune", "{}/raises.py"), "--output"),
                (("bench", "{}/raises.py"), "--output"),
                ((*TRAIN, "--kernels", "{}"), "--output"),
                (("collect", "{}/raises.py"), "--output"),
                (("cache", "export"), "--"),
            )
            for path, says in (("{}/no/o.json", "no such folder"), ("{}", "a folder itself"))
        ),
        (("prune-report", "{}/raises.py", "-o", "/proc/o.json"), "--output /proc/o.json: "),
        (("prune-report", "{}/raises.py", "-o", "{}/list.json/o"), "no such folder"),
        ((*TRAIN, "--kernels", "{}", "--output", str(TIMINGS)), "is that file; name another one"),
        (("roofline", "{}/raises.py", "-o", "{}/a.bmp"), "tells no form"),
        (("roofline", "{}/raises.py", "-o", "{}/a.svg", "-o", "{}/a.svg"), "is that file"),
        # other options, likewise
        (("prune-report", "{}/raises.py", "--target", ""), "target '' is unknown"),
        (("prune-report", "{}/raises.py", "--target", "{}/deep.json"), "not usable JSON"),
        (("prune-report", "{}/raises.py", "--target", "{}/null.json"), "must hold a JSON object"),
        (("prune-report", "{}/raises.py", "--keep", "nan%"), "is no number of configs"),
        (("prune-report", "{}/raises.py", "--scorer", ""), "unknown scorer ''"),
        (("explain", "{}/raises.py", "--scorer", "x"), "unknown scorer 'x'"),
        (("prune-report", "{}/raises.py", "--dtype", "fp99"), "unknown dtype 'fp99'"),
        (("roofline", "{}/raises.py", "--dtype", "fp99"), "unknown dtype 'fp99'"),
        (("tune", "{}/raises.py", "--dtype", "fp99"), "unknown dtype 'fp99'"),
        (("tune", "{}/raises.py", "--effort", "hard"), "unknown effort 'hard'"),
        (("tune", "{}/raises.py", "--strategy", "luck"), "luck"),
        (("tune", "{}/raises.py", "--objective", "time=nan"), "time=nan"),
        (("tune", "{}/raises.py", "--seconds", "nan"), "--seconds: nan is no number above 0"),
        (("tune", "{}/raises.py", "--seconds", "-1"), "--seconds: -1 is no number above 0"),
        (("tune", "{}/raises.py", "--compiles", "0"), "--compiles"),
        (("tune", "{}/raises.py", "--devices", ""), "--devices"),
        (("tune", "{}/raises.py", "--seed", "x"), "--seed"),
        (("bench", "{}/raises.py", "--output", "{}/o.json", "--processes", "0"), "--processes"),
        (("collect", "{}/raises.py", "--output", "{}/o.json", "--seconds", "nan"), "--seconds"),
        ((*CHECK, "--threshold", "nan"), "--threshold 'nan': expected a share"),
        ((*CHECK, "--level", "200%"), "--level '200%': expected a share"),
        ((*CHECK, "--format", "yaml"), "--format 'yaml': one of"),
        ((*CHECK, "--figure", "{}/a.bmp"), "a.bmp"),
        (CHECK, "No such file"),
        (("check", "{}/bytes.json", "--baseline", "{}/bytes.json"), "bytes.json"),
        # kernels and reports that cannot be read
        (("prune-report", "{}/raises.py"), "raises.py, line 1: ZeroDivisionError"),
        (("prune-report", "{}/empty.py"), "defines no 'kernel'"),
        (("prune-report", "{}/bytes.py"), "null bytes"),
        (("prune-report", ""), "unknown kernel ''"),
        (("prune-report", "{}/"), "a folder; name a Python file in it"),
        (("prune-report", "{}/plain.py:"), "defines no ''"),
        (("prune-report", "{}/empty.json"), "empty.json: not whole JSON"),
        (("prune-report", "{}/bytes.json"), "bytes.json: not whole JSON"),
        (("prune-report", "{}/deep.json"), "nested too deeply"),
        (("prune-report", "{}/list.json"), "no report"),
        (("prune-report", "{}/exits.py"), "exits.py"),
        # grids
        ((*GRID, "1.5"), "1.5 is not allowed"),
        ((*GRID, ""), "invalid syntax"),
        ((*GRID, "1,2,3,4"), "4 sizes; expected 1 to 3"),
        ((*GRID, "__import__('os')"), "no function is called '__import__'"),
        ((*GRID, "9" * 11), "expected a whole number from 1 to"),
        # the store, and programs
        (("cache", "show", "zz"), "expected hex digits"),
        (("cache", "import", "{}/bytes.json"), "bytes.json"),
        (("cache", "ls", "--store", "{}"), "is a folder, and no file"),
        (("cache", "clear"), "pass --yes"),
        (("run", "--store", "{}", "{}/plain.py"), "a folder; name the store's file"),
        (("run", "--effort", "x", "{}/plain.py"), "unknown effort 'x'"),
    ],
)
def test_one_line(
    arguments: tuple[str, ...], says: str, commands: Commands, session_cache: Path
) -> None:
    """Every mistake is told in one line that names it, and no file is written or changed."""
    before = _files(commands.folder)
    line = commands.refused(*arguments)
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


@pytest.mark.parametrize("command", ["prune-report", "explain", "roofline", "tune"])
def test_an_interrupt(command: str, commands: Commands) -> None:
    """Ctrl-C while a kernel's file is imported ends with 130 and one line."""
    before = _files(commands.folder)
    ran = commands.run(command, "{}/interrupted.py")
    assert (ran.code, ran.out, ran.err) == (130, "", "asmtune: interrupted\n")
    assert _files(commands.folder) == before


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
        (lambda figures: figures.update(clock_hz=1980), "no device has it below 1e+06; .* hertz"),
        (lambda figures: figures.update(dram_bytes_per_s=4800), "dram_bytes_per_s is 4800, and no"),
        (lambda figures: figures.update(sms=10**9), "sms is 1e+09, and no device has it above"),
    ],
)
def test_a_target_file(change: Any, says: str, commands: Commands) -> None:
    """A missing or negative field of the user's own target is named."""
    document = descriptor_of(load_target("H200"))
    change(document)
    path = commands.folder / "mine.json"
    path.write_text(json.dumps(document))
    line = commands.refused("prune-report", "{}/doubled.py", "--target", str(path))
    assert re.search(says.replace("+", r"\+"), line)
    assert "mine.json" in line


@pytest.mark.parametrize("command", [("prune-report", "{}/doubled.py", "--target"), SHOW])
@pytest.mark.parametrize(
    ("files", "name", "says"),
    [
        ({"mine.json": b"{"}, "mine", "mine.json: not JSON: Expecting property name"),
        ({"x.json": b'{"name": "Mine", "aliases": ["My GPU"]}'}, "my gpu", "field 'arch' is missi"),
        ({"x.json": NEGATIVE}, "mine", "x.json: sms must be a whole number above 0, not -1"),
        ({"a.json": MINE, "b.json": MINE}, "Mine", "b.json.*describes 'mine', as .*a.json does; r"),
        ({"a.json": MINE}, "Mein", "target 'Mein' is unknown"),
    ],
)
def test_a_folder_of_targets(
    command: tuple[str, ...],
    files: dict[str, bytes],
    name: str,
    says: str,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A damaged file, and two of one name, are refused where a command names what they describe."""
    folder = commands.folder / "targets"
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    monkeypatch.setenv("ASMTUNE_TARGETS", str(folder))
    assert re.search(says, commands.refused(*command, name))


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("{}/none", ": there is none; make it, or unset ASMTUNE_TARGETS"),
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
            ("replay", str(TIMINGS), "--kernels", kernels, "--scorer", "weights"),
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
    opened = Path.open

    def full(path: Path, mode: str = "r", **given: Any) -> Any:
        if mode == "wb":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode, **given)

    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(commands.folder / "cache"))
    monkeypatch.setattr(Path, "open", full)
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
