"""`asmtune prune-report`, `explain`, `replay` and the listings: what they print and where."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from typer.main import get_command

from asmtune.cli.app import app
from tests.command_lines import Commands

SMALL = (
    "prune-report", "tiled_matmul", "--shape", "M=512,N=512,K=512", "--axis", "BLOCK_M=64",
    "--axis", "BLOCK_N=64", "--axis", "BLOCK_K=32", "--axis", "num_warps=4",
    "--axis", "num_stages=2,3",
)  # fmt: skip


FP8 = (
    "prune-report", "{}/plain.py:jitted", "--arg", "x_ptr=fp8e4nv[n]", "--arg", "n=4096", "--axis",
    "BLOCK=128", "--axis", "num_warps=1,4", "--grid", "cdiv(n,BLOCK)", "--scorer", "chance",
)  # fmt: skip


def test_a_target_that_runs_no_config_leaves_the_others(commands: Commands) -> None:
    """It is told in one line, and the exit status is 1; where none is left, it is an error."""
    targets = ("--target", "A100", "--target", "H200", "--format", "json")
    ran = commands.run(*FP8, *targets)
    assert ran.code == 1
    assert re.fullmatch("asmtune: no config of plain can run on A100: 2 of 2 .*fp8.*\n", ran.err)
    assert [report["target"] for report in json.loads(ran.out)["reports"]] == ["H200"]
    assert "can run on A100: 2 of 2" in commands.refused(*FP8, "--target", "A100")
    line = commands.refused(*FP8, "--target", "A100", "--target", "A40")
    assert "can run on A100: 2 of 2" in line
    assert "can run on A40: 2 of 2" in line


def test_axes_are_dtypes_and_sizes_too(commands: Commands) -> None:
    """An axis may list dtypes as an argument does, and one of a single number is a size."""
    axes = ("--axis", "ACC=fp32,tl.bfloat16", "--axis", "BLOCK=128", "--axis", "num_warps=4")
    grid = ("--grid", "cdiv(n,BLOCK)", "--scorer", "chance", "--format", "json")
    given = ("--arg", "x_ptr=fp16[n, BLOCK]", "--arg", "n=4096")
    ran = commands.run("prune-report", "{}/plain.py:jitted", *given, *axes, *grid)
    assert (ran.code, ran.err) == (0, "")
    (report,) = json.loads(ran.out)["reports"]
    assert sorted(one["config"]["ACC"] for one in report["verdicts"]) == ["bf16", "fp32"]


def test_the_terms_of_a_score(commands: Commands) -> None:
    """The table of kept configs and the rows of JSON show the points of each count."""
    ran = commands.run(*SMALL, "--scorer", "weights")
    (head,) = (line for line in ran.out.splitlines() if " rank " in line)
    names = [text.strip() for text in head.split("┃")]
    at = names.index("score")
    terms = ["mma_sync pts", "cp_async pts", "bar_sync pts", "bra pts", "ret pts"]
    assert names[at + 1 : at + 6] == terms
    assert "on 51 recorded tasks (NVIDIA H200" in ran.out
    ran = commands.run(*SMALL, "--scorer", "weights", "--format", "json")
    for row in json.loads(ran.out)["reports"][0]["verdicts"]:
        points, read = row["points"], row["features"]
        assert sum(points.values()) == row["score"]
        assert points["text_mma_sync"] == 10 * (read["text_mma_sync"] or read["text_wgmma"]) > 0
        assert points["text_bar_sync"] == -30 * read["text_bar_sync"]


def test_keep(commands: Commands) -> None:
    """By default the scorer's error decides how many are kept, and the report says their worth."""
    many = ("prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512")
    found = {}
    for keep in ("auto", "50%"):
        ran = commands.run(*many, "--keep", keep, "--format", "json")
        (report,) = json.loads(ran.out)["reports"]
        found[keep] = report["selection"]
    assert 5 <= found["auto"]["ranks"] <= len(report["verdicts"])
    half = found["50%"]
    assert (half["keep"], half["ranks"], half["other_device"]) == ("50%", 4, None)
    assert 0 < half["expected_share"] < 1
    assert 0 < half["chance_dropped"] < 1
    assert half["source"].startswith("roofline on ")
    shown = commands.run(*many, "--keep", "50%").out
    assert "keep 50%: 4 by rank" in shown
    assert f"share of the best speed {half['expected_share']:.3f}" in shown
    assert "keep 20: 8 by rank" in commands.run(*many, "--scorer", "chance").out


def test_compile(commands: Commands) -> None:
    """A budget of compiles is stated, has its row among what fell, and stands in the JSON."""
    blocks = ("prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512")
    ran = commands.run(*blocks, "--compile", "25%", "--keep", "1")
    assert (ran.code, ran.err) == (0, "")
    assert "H200: 8 candidates: 0 ruled out, 6 sketched only, 2 compiled" in ran.out
    assert "compile 25%: 2 by rank before compiling, 6 sketched only" in ran.out
    assert "of the best speed that was compiled" in ran.out
    shown = commands.run(*blocks, "--compile", "2", "--format", "json")
    (report,) = json.loads(shown.out)["reports"]
    left = [verdict for verdict in report["verdicts"] if verdict["dropped_at"] == "sketch"]
    assert (report["compiled"]["keep"], report["compiled"]["ranks"]) == ("2", 2)
    assert report["counts"]["sketched_only"] == len(left)
    assert all(verdict["predicted_us"] > 0 for verdict in left)
    (whole,) = json.loads(commands.run(*blocks, "--format", "json").out)["reports"]
    assert (whole["compiled"], whole["counts"]["compiled"]) == (None, 8)


@pytest.mark.parametrize(
    ("kernel", "axes", "says"),
    [
        ("scaled", ("BLOCK=8192", "num_warps=1", "maxnreg=32"), "BLOCK=8192 num_warps=1.*spills"),
        ("plain", ("BLOCK=128,100", "num_warps=4"), "BLOCK=100.*power of 2"),
        ("scaled", ("BLOCK=128",), None),
    ],
)
def test_check(kernel: str, axes: tuple[str, ...], says: str | None, commands: Commands) -> None:
    """Under --check findings are lines on stderr and exit code 1, beside the report on stdout."""
    asked = (
        "prune-report",
        f"{{}}/plain.py:{kernel}",
        "--arg",
        "x_ptr=fp16[n]",
        "--arg",
        "n=100000",
    )
    asked += ("--grid", "1", *(f"--axis={axis}" for axis in axes))
    ran = commands.run(*asked, "--check")
    assert ran.out.startswith(f"{kernel} ")
    if says is None:
        assert (ran.code, ran.err) == (0, "")
    else:
        (line,) = ran.err.splitlines()
        assert (ran.code, bool(re.match(f"asmtune: H200: .*{says}", line))) == (1, True), line
        assert commands.run(*asked).code == 0


def test_plain_functions(commands: Commands) -> None:
    """A function of any file is tuned, decorated or not, and a dtype can be a constexpr."""
    for name in ("plain", "jitted"):
        ran = commands.run(
            "prune-report", f"{{}}/plain.py:{name}", "--arg", "x_ptr=*bf16[n]", "--arg", "n=1000",
            "--arg", "ACC=fp16", "--axis", "BLOCK=128,256", "--format", "json", "--grid", "1",
        )  # fmt: skip
        assert ran.code == 0, ran
        (report,) = json.loads(ran.out)["reports"]
        assert len(report["verdicts"]) == 8
        assert report["dtypes"] == {"x_ptr": "bf16"}
        assert all(verdict["kept"] for verdict in report["verdicts"])


def test_the_grid_of_a_plain_function(commands: Commands) -> None:
    """A grid counts the programs of each config, and is required."""
    plain = (
        "prune-report", "{}/plain.py:plain", "--arg", "n=100000", "--axis", "BLOCK=128,256",
        "--axis", "num_warps=4", "--format", "json",
    )  # fmt: skip
    sized = (*plain, "--arg", "x_ptr=fp16[n // 2, 2]", "--grid", "cdiv(n, BLOCK), num_warps // 2")
    (report,) = json.loads(commands.run(*sized).out)["reports"]
    assert report["notes"] == []
    rows = {v["config"]["BLOCK"]: v["features"] for v in report["verdicts"]}
    assert {block: row["programs"] for block, row in rows.items()} == {128: 1564, 256: 782}
    # The tensor is read whole and written whole, whatever the grid's second axis repeats.
    assert rows[128]["unique_bytes"] == 2 * 2 * 100000
    assert "--grid" in commands.refused(*plain, "--arg", "x_ptr=fp16[n]")


def test_an_autotuned_function(commands: Commands) -> None:
    """An axis varies each config of @triton.autotune, whose other values stay."""
    tuned = ("prune-report", "{}/plain.py:tuned", "--arg", "x_ptr=fp16[n]", "--arg", "n=1000")
    ran = commands.run(*tuned, "--grid", "1", "--axis", "BLOCK=64", "--format", "json")
    (report,) = json.loads(ran.out)["reports"]
    configs = [(v["config"]["BLOCK"], v["config"]["num_warps"]) for v in report["verdicts"]]
    assert sorted(configs) == [(64, 2), (64, 4)]


def test_help(commands: Commands) -> None:
    """Help is on stdout with exit code 0; without a command it is on stderr with 2."""
    ran = commands.run("--help")
    assert (ran.code, ran.err) == (0, "")
    core, _, workshop = ran.out.partition("Workshop, for")
    assert "prune-report" in core
    assert "roofline" in workshop
    assert len(get_command(app).commands) <= 16  # type: ignore[attr-defined]
    bare = commands.run()
    assert (bare.code, bare.out) == (2, "")
    assert "prune-report" in bare.err


@pytest.mark.slow
def test_progress_on_a_terminal(commands: Commands) -> None:
    """On a terminal the progress is on stderr, with a rate and an estimate, and stdout is clean."""
    reader, writer = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    env["ASMTUNE_CACHE_DIR"] = str(commands.folder / "cache")
    command = [sys.executable, "-m", "asmtune", "prune-report", "--format", "csv"]
    process = subprocess.Popen(
        [*command, str(commands.folder / "doubled.py")],
        stdout=subprocess.PIPE,
        stderr=writer,
        env=env,
    )
    os.close(writer)
    shown = b""
    with suppress(OSError):  # the other side has hung up
        while chunk := os.read(reader, 4096):
            shown += chunk
    os.close(reader)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(part in shown for part in (b"compile", b"/4", b"/s", b":"))
    assert out.startswith(b"target,")
    assert b"\x1b" not in out
