"""`asmtune prune-report`, `explain`, `replay` and the listings: what they print and where."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import Commands

from asmtune.features import FEATURES
from asmtune.score import RULES

REPOSITORY = Path(__file__).parents[2]
TIMINGS = REPOSITORY / "tests" / "replay_data" / "timings.json"
KERNELS = TIMINGS.parent / "kernels"
SMALL = (
    "prune-report", "matmul", "--shape", "M=512,N=512,K=512", "--axis", "BLOCK_M=64",
    "--axis", "BLOCK_N=64", "--axis", "BLOCK_K=32", "--axis", "num_warps=4",
    "--axis", "num_stages=2,3",
)  # fmt: skip


def test_table(commands: Commands) -> None:
    """By default a table on stdout, nothing on stderr, exit code 0."""
    ran = commands.run(*SMALL, "--scorer", "weights")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("matmul M=512 N=512 K=512 fp16\n")
    assert "What fell where" in ran.out
    assert "H200" in ran.out
    assert "Kept, best first" in ran.out


def test_json(commands: Commands) -> None:
    """As JSON the whole report, and what fell adds up to the candidates."""
    ran = commands.run(*SMALL, "--format", "json", "--top", "1", "--scorer", "weights")
    assert (ran.code, ran.err) == (0, "")
    (report,) = json.loads(ran.out)["reports"]
    dropped = sum(entry["configs"] for entry in report["dropped"])
    kept = [verdict for verdict in report["verdicts"] if verdict["kept"]]
    assert dropped + len(kept) == len(report["verdicts"])
    assert kept[0]["rank"] == 1
    assert report["scorer"] == "weights"


def test_csv(commands: Commands) -> None:
    """As CSV a row a config, readable as such."""
    ran = commands.run(*SMALL, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert {row["num_stages"] for row in rows} == {"2", "3"}
    assert set(FEATURES) <= set(rows[0])


def test_targets_side_by_side(commands: Commands) -> None:
    """Several targets give a report each, and columns side by side."""
    targets = ("--target", "H200", "--target", "A100", "--target", "B200")
    ran = commands.run("prune-report", "{}/doubled.py", *targets)
    assert ran.code == 0
    assert all(f"{name} rank" in ran.out for name in ("H200", "A100", "B200"))
    document = json.loads(
        commands.run("prune-report", "{}/doubled.py", *targets, "--format", "json").out
    )
    assert [report["target"] for report in document["reports"]] == ["H200", "A100", "B200"]


def test_a_target_of_ones_own(commands: Commands) -> None:
    """A descriptor is taken by its path."""
    figures = json.loads((REPOSITORY / "asmtune" / "targets" / "h200.json").read_text())
    figures["name"] = "mine"
    (commands.folder / "mine.json").write_text(json.dumps(figures))
    ran = commands.run("prune-report", "{}/doubled.py", "--target", "{}/mine.json")
    assert ran.code == 0, ran
    assert "mine" in ran.out


def test_dtype_and_shape(commands: Commands) -> None:
    """--dtype and --shape make the problem; without them the module's first are taken."""
    ran = commands.run("prune-report", "{}/doubled.py", "--dtype", "float32", "--shape", "n=100")
    assert ran.out.startswith("doubled n=100 fp32\n")
    assert commands.run("prune-report", "{}/doubled.py").out.startswith("doubled n=4096 fp16\n")


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_output(form: str, commands: Commands) -> None:
    """A file is replaced whole by what stdout would show; stdout stays empty."""
    path, link = commands.folder / "report", commands.folder / "link"
    path.write_text("old")
    link.hardlink_to(path)
    ran = commands.run("prune-report", "{}/doubled.py", "--format", form, "--output", str(path))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    printed = commands.run("prune-report", "{}/doubled.py", "--format", form).out
    written = path.read_text()
    assert link.read_text() == "old"
    assert written.endswith("\n")
    assert not written.endswith("\n\n")
    if form == "csv":
        assert written == printed
    names = {entry.name for entry in commands.folder.iterdir()}
    assert not [name for name in names if name.endswith(".part")]


def test_output_is_atomic(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where writing fails half way, the old file is whole and no part of the new one is left."""
    path = commands.folder / "report.json"
    path.write_text("old")
    real = Path.write_text

    def half(self: Path, text: str) -> int:
        real(self, text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    line = commands.refused(
        "prune-report", "{}/doubled.py", "--format", "json", "--output", str(path)
    )
    assert "No space left on device" in line
    assert path.read_text() == "old"
    assert [entry for entry in commands.folder.iterdir() if entry.suffix == ".part"] == []


def test_check(commands: Commands) -> None:
    """Under --check findings are lines on stderr and exit code 1, beside the report on stdout."""
    spilling = ("--axis", "BLOCK=8192", "--axis", "num_warps=1", "--axis", "maxnreg=32")
    plain = ("prune-report", "{}/plain.py:scaled", "--arg", "x_ptr=fp16", "--arg", "n=100000")
    ran = commands.run(*plain, *spilling, "--check")
    assert ran.code == 1
    assert ran.out.startswith("scaled ")
    (line,) = ran.err.splitlines()
    assert line.startswith("asmtune: H200: BLOCK=8192 num_warps=1")
    assert "spills" in line
    assert commands.run(*plain, *spilling).code == 0
    clean = commands.run(*plain, "--axis", "BLOCK=128", "--check")
    assert (clean.code, clean.err) == (0, "")


def test_check_tells_of_failures(commands: Commands) -> None:
    """A config that the compiler refuses for a reason that no rule names is a finding."""
    plain = ("prune-report", "{}/plain.py:plain", "--arg", "x_ptr=fp16", "--arg", "n=1000")
    ran = commands.run(*plain, "--axis", "BLOCK=128,100", "--axis", "num_warps=4", "--check")
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert "BLOCK=100" in line
    assert "power of 2" in line


def test_plain_functions(commands: Commands) -> None:
    """A function of any file is tuned, decorated or not, and a dtype can be a constexpr."""
    for name in ("plain", "jitted"):
        ran = commands.run(
            "prune-report", f"{{}}/plain.py:{name}", "--arg", "x_ptr=*bf16", "--arg", "n=1000",
            "--arg", "ACC=fp16", "--axis", "BLOCK=128,256", "--format", "json",
        )  # fmt: skip
        assert ran.code == 0, ran
        (report,) = json.loads(ran.out)["reports"]
        assert len(report["verdicts"]) == 8
        assert report["dtypes"] == {"x_ptr": "bf16"}
        assert all(verdict["kept"] for verdict in report["verdicts"])


def test_an_autotuned_function(commands: Commands) -> None:
    """The configs of @triton.autotune are the space, unless axes are given."""
    tuned = ("prune-report", "{}/plain.py:tuned", "--arg", "x_ptr=fp16", "--arg", "n=1000")
    (report,) = json.loads(commands.run(*tuned, "--format", "json").out)["reports"]
    configs = [(v["config"]["BLOCK"], v["config"]["num_warps"]) for v in report["verdicts"]]
    assert sorted(configs) == [(128, 2), (256, 4)]
    ran = commands.run(*tuned, "--axis", "BLOCK=64", "--format", "json")
    (report,) = json.loads(ran.out)["reports"]
    assert {v["config"]["BLOCK"] for v in report["verdicts"]} == {64}


def test_explain(commands: Commands) -> None:
    """The default or a named config is shown with its verdict among the space's."""
    ran = commands.run("explain", "{}/doubled.py", "--scorer", "weights")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("BLOCK=128 num_warps=2")
    assert "of 4 by weights" in ran.out
    other = commands.run("explain", "{}/doubled.py", "--config", "BLOCK=512,num_warps=8,maxnreg=64")
    assert other.out.startswith("BLOCK=512 num_warps=8 num_stages=3 maxnreg=64")
    assert "Resources" in other.out
    alone = commands.run("explain", "{}/doubled.py", "--alone", "--scorer", "weights")
    assert "rank 1 of 1 by weights" in alone.out


def test_explain_a_config_that_fails(commands: Commands) -> None:
    """A config that cannot run is explained, not refused."""
    ran = commands.run("explain", "{}/doubled.py", "--config", "num_warps=64")
    assert ran.code == 0
    assert "dropped at rules" in ran.out
    assert "64 warps are 2048 threads" in ran.out


def test_replay(commands: Commands) -> None:
    """A replay prints the scorers asked for, as a table or as JSON."""
    replay = ("replay", str(TIMINGS), "--kernels", str(KERNELS))
    ran = commands.run(*replay, "--scorer", "weights", "--scorer", "chance", "--json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert list(document["scorers"]) == ["weights", "chance"]
    assert document["scorers"]["weights"]["kernels"]["barriers"]["top1"] == 0.4472
    table = commands.run(*replay, "--scorer", "weights", "--target", "H100")
    assert table.code == 0
    assert "weights" in table.out
    assert "0.447" in table.out
    assert "chance" not in table.out


def test_listings(commands: Commands) -> None:
    """Targets, features, rules and kernels are listed as tables and as JSON."""
    targets = json.loads(commands.run("targets", "--json").out)
    assert {"A100", "H200", "B200"} <= {row["target"] for row in targets}
    features = json.loads(commands.run("features", "--json").out)
    assert [row["feature"] for row in features] == list(FEATURES)
    rules = json.loads(commands.run("rules", "--json").out)
    assert [row["rule"] for row in rules] == [rule.name for rule in RULES]
    kernels = json.loads(commands.run("kernels", "--json").out)
    assert "matmul" in {row["kernel"] for row in kernels}
    for name, word in (("targets", "H200"), ("features", "regs_per_thread"), ("kernels", "matmul")):
        ran = commands.run(name)
        assert (ran.code, ran.err) == (0, "")
        assert word in ran.out


def test_help(commands: Commands) -> None:
    """Help is on stdout with exit code 0; without a command it is on stderr with 2."""
    ran = commands.run("--help")
    assert (ran.code, ran.err) == (0, "")
    assert "prune-report" in ran.out
    bare = commands.run()
    assert (bare.code, bare.out) == (2, "")
    assert "prune-report" in bare.err


def asmtune(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    """A real command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "asmtune", *arguments],
        stdout=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


def test_a_real_run(commands: Commands) -> None:
    """A real process in a pipe prints its result, and not a word on stderr."""
    path = str(commands.folder / "doubled.py")
    process = asmtune("prune-report", path, "--format", "json", stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["reports"][0]["kernel"] == "doubled"


def test_a_real_refusal(commands: Commands) -> None:
    """A real process that is refused prints one line and exits with 2."""
    process = asmtune("prune-report", str(commands.folder / "broken.py"), stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"asmtune: no config of doubled can run")
    assert err.count(b"\n") == 1


def test_progress_on_a_terminal(commands: Commands) -> None:
    """On a terminal the progress is on stderr, with a rate and an estimate, and stdout is clean."""
    reader, writer = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    env["ASMTUNE_CACHE_DIR"] = str(commands.folder / "cache")
    path = str(commands.folder / "doubled.py")
    process = asmtune("prune-report", path, "--format", "csv", stderr=writer, env=env)
    os.close(writer)
    shown = b""
    while True:
        try:
            chunk = os.read(reader, 4096)
        except OSError:  # the other side has hung up
            break
        if not chunk:
            break
        shown += chunk
    assert process.stdout is not None
    out = process.stdout.read()
    os.close(reader)
    assert process.wait(60) == 0
    assert b"compile" in shown
    assert b"/4" in shown
    assert b"/s" in shown
    assert b":" in shown
    assert out.startswith(b"target,")
    assert b"\x1b" not in out


def test_a_closed_pipe(commands: Commands) -> None:
    """A reader that has seen enough ends the command without a complaint."""
    process = asmtune("features", stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
