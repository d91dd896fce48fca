"""`asmtune prune-report`, `explain`, `replay` and the listings: what they print and where."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asmtune.predict.features.catalog import FEATURES
from asmtune.predict.score.rules import RULES
from tests.command_lines import Commands

REPOSITORY = Path(__file__).parents[2]
TIMINGS = REPOSITORY / "tests" / "replay_data" / "timings.json"
KERNELS = TIMINGS.parent / "kernels"
SMALL = (
    "prune-report", "tiled_matmul", "--shape", "M=512,N=512,K=512", "--axis", "BLOCK_M=64",
    "--axis", "BLOCK_N=64", "--axis", "BLOCK_K=32", "--axis", "num_warps=4",
    "--axis", "num_stages=2,3",
)  # fmt: skip


def test_table(commands: Commands) -> None:
    """By default a table on stdout, nothing on stderr, exit code 0."""
    ran = commands.run(*SMALL, "--scorer", "weights")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("tiled_matmul M=512 N=512 K=512 fp16\n")
    assert "What fell where" in ran.out
    assert "H200" in ran.out
    assert "Kept, best first" in ran.out


@pytest.mark.parametrize("form", ["table", "json", "csv", "html"])
def test_timings_in_every_format(form: str, commands: Commands) -> None:
    """A file of recorded times gives its configs' measured time in each format."""
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
    rows = [
        {"config": {**config, "num_stages": stages}, "ms": 0.0123 * stages} for stages in (2, 3)
    ]
    shape = {"M": 512, "N": 512, "K": 512}
    task = {"kernel": "tiled_matmul", "shape": shape, "dtype": "fp16", "rows": rows}
    path = commands.folder / "times.json"
    path.write_text(json.dumps({"meta": {"device": "NVIDIA H200"}, "tasks": [task]}))
    ran = commands.run(*SMALL, "--format", form, "--timings", str(path))
    assert (ran.code, ran.err) == (0, "")
    if form == "json":
        (report,) = json.loads(ran.out)["reports"]
        assert sorted(v["measured_us"] for v in report["verdicts"]) == pytest.approx([24.6, 36.9])
    elif form == "csv":
        times = [float(row["measured_us"]) for row in csv.DictReader(io.StringIO(ran.out))]
        assert sorted(times) == pytest.approx([24.6, 36.9])
    elif form == "table":
        assert "24.6" in ran.out
        assert "36.9" in ran.out
        assert "measured: times.json (NVIDIA H200), 2 of 2 configs" in ran.out
    else:
        assert "<h1>tiled_matmul</h1>" in ran.out


FP8 = (
    "prune-report", "{}/plain.py:jitted", "--arg", "x_ptr=fp8e4nv[n]", "--arg", "n=4096", "--axis",
    "BLOCK=128", "--axis", "num_warps=1,4", "--grid", "cdiv(n,BLOCK)", "--scorer", "weights",
)  # fmt: skip


def test_a_target_that_runs_no_config_leaves_the_others(commands: Commands) -> None:
    """It is told in one line, and the exit status is 1; where none is left, it is an error."""
    targets = ("--target", "A100", "--target", "H200", "--format", "json")
    ran = commands.run(*FP8, *targets)
    assert ran.code == 1
    assert re.fullmatch("asmtune: no config of plain can run on A100: 2 of 2 .*fp8.*\n", ran.err)
    assert [report["target"] for report in json.loads(ran.out)["reports"]] == ["H200"]
    assert "can run on A100: 2 of 2" in commands.refused(*FP8, "--target", "A100")


def test_axes_are_dtypes_and_sizes_too(commands: Commands) -> None:
    """An axis may list dtypes as an argument does, and one of a single number is a size."""
    axes = ("--axis", "ACC=fp32,tl.bfloat16", "--axis", "BLOCK=128", "--axis", "num_warps=4")
    grid = ("--grid", "cdiv(n,BLOCK)", "--scorer", "weights", "--format", "json")
    given = ("--arg", "x_ptr=fp16[n, BLOCK]", "--arg", "n=4096")
    ran = commands.run("prune-report", "{}/plain.py:jitted", *given, *axes, *grid)
    assert (ran.code, ran.err) == (0, "")
    (report,) = json.loads(ran.out)["reports"]
    assert sorted(one["config"]["ACC"] for one in report["verdicts"]) == ["bf16", "fp32"]


def test_json(commands: Commands) -> None:
    """As JSON the whole report, and what fell adds up to the candidates."""
    ran = commands.run(*SMALL, "--format", "json", "--keep", "1", "--scorer", "weights")
    assert (ran.code, ran.err) == (0, "")
    (report,) = json.loads(ran.out)["reports"]
    dropped = sum(entry["configs"] for entry in report["dropped"])
    kept = [verdict for verdict in report["verdicts"] if verdict["kept"]]
    assert dropped + len(kept) == len(report["verdicts"])
    assert kept[0]["rank"] == 1
    assert report["scorer"] == "weights"
    assert report["selection"] == {
        "keep": "1",
        "ranks": 1,
        "expected_share": None,
        "chance_dropped": None,
        "source": None,
        "other_device": None,
        "low_share": None,
        "unlike": None,
    }


def test_keep(commands: Commands) -> None:
    """By default the scorer's error decides how many are kept, and the report says their worth."""
    many = ("prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512", "--format", "json")
    (report,) = json.loads(commands.run(*many).out)["reports"]
    selection = report["selection"]
    assert selection["keep"] == "auto"
    assert 5 <= selection["ranks"] <= len(report["verdicts"])
    (half,) = json.loads(commands.run(*many, "--keep", "50%").out)["reports"]
    assert (half["selection"]["keep"], half["selection"]["ranks"]) == ("50%", 4)
    assert 0 < half["selection"]["expected_share"] < 1
    assert 0 < half["selection"]["chance_dropped"] < 1
    assert half["selection"]["source"].startswith("roofline on ")
    shown = commands.run(*many[:-2], "--keep", "50%").out
    assert "keep 50%: 4 by rank" in shown
    assert f"share of the best speed {half['selection']['expected_share']:.3f}" in shown
    assert half["selection"]["other_device"] is None
    assert "not on this target" not in shown
    unmeasured = commands.run(*many[:-2], "--scorer", "weights").out
    assert "keep 20: 8 by rank" in unmeasured


@pytest.mark.slow(seconds=1)
def test_keep_on_another_device(commands: Commands) -> None:
    """For a device other than those of the scorer's error the worth says whose it is."""
    both = "NVIDIA H200 and NVIDIA H100 80GB HBM3"
    many = ("prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512", "--target", "A100")
    options = ("--keep", "50%", "--compile", "75%", "--format")
    (report,) = json.loads(commands.run(*many, *options, "json").out)["reports"]
    assert report["selection"]["other_device"] == both
    assert report["compiled"]["other_device"] == both
    shown = commands.run(*many, *options, "table").out
    assert shown.count(f", both measured on {both}, not on this target") == 2


def test_compile(commands: Commands) -> None:
    """A budget of compiles is stated, has its row among what fell, and stands in the JSON."""
    blocks = ("prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512")
    ran = commands.run(*blocks, "--compile", "25%", "--keep", "1")
    assert (ran.code, ran.err) == (0, "")
    cells = [line.replace("│", "┃").split("┃")[:2] for line in ran.out.splitlines()]
    assert ["sketch", "sketched_only"] in [[cell.strip() for cell in row] for row in cells]
    assert "H200: 8 candidates: 0 ruled out, 5 sketched only, 3 compiled" in ran.out
    assert "compile 25%: 2 by rank before compiling, 5 sketched only" in ran.out
    assert "of the best speed that was compiled" in ran.out
    shown = commands.run(*blocks, "--compile", "2", "--format", "json")
    (report,) = json.loads(shown.out)["reports"]
    left = [verdict for verdict in report["verdicts"] if verdict["dropped_at"] == "sketch"]
    assert (report["compiled"]["keep"], report["compiled"]["ranks"]) == ("2", 2)
    assert {entry["configs"] for entry in report["dropped"] if entry["stage"] == "sketch"} == {
        len(left)
    }
    assert all(verdict["predicted_us"] > 0 for verdict in left)
    assert report["counts"]["sketched_only"] == len(left)
    for every in ((), ("--compile", "all")):
        (whole,) = json.loads(commands.run(*blocks, *every, "--format", "json").out)["reports"]
        assert whole["compiled"] is None
        assert whole["counts"]["compiled"] == 8


@pytest.mark.slow(seconds=3)
def test_compile_by_default(commands: Commands) -> None:
    """By default the best of a large space are compiled, as `auto` says, and `all` compiles all."""
    many = (
        "prune-report", "{}/doubled.py", "--axis", "BLOCK=64,128,256,512,1024,2048",
        "--axis", "num_warps=1,2,4,8", "--axis", "num_stages=1,2", "--no-caps",
    )  # fmt: skip
    (report,) = json.loads(commands.run(*many, "--format", "json").out)["reports"]
    (auto,) = json.loads(commands.run(*many, "--compile", "auto", "--format", "json").out)[
        "reports"
    ]
    (whole,) = json.loads(commands.run(*many, "--compile", "all", "--format", "json").out)[
        "reports"
    ]
    assert (report["compiled"]["keep"], report["compiled"]) == ("auto", auto["compiled"])
    assert report["verdicts"] == auto["verdicts"]
    assert 0 < report["counts"]["sketched_only"] == 48 - report["counts"]["compiled"]
    assert whole["compiled"] is None
    assert (whole["counts"]["sketched_only"], whole["counts"]["compiled"]) == (0, 48)
    unmeasured = commands.run(*many, "--scorer", "weights", "--format", "json")
    assert json.loads(unmeasured.out)["reports"][0]["compiled"] is None


def test_csv(commands: Commands) -> None:
    """As CSV a row a config, readable as such."""
    ran = commands.run(*SMALL, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert {row["num_stages"] for row in rows} == {"2", "3"}
    assert set(FEATURES) <= set(rows[0])


@pytest.mark.slow
def test_html(commands: Commands) -> None:
    """As HTML a page with the code of what is kept; of a saved report the same without code."""
    doubled = ("prune-report", "{}/doubled.py", "--format")
    ran = commands.run(*doubled, "html")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<!doctype html>")
    codes = re.search(r'id="codes">(.*?)</script>', ran.out)
    assert codes is not None
    assert len(json.loads(codes[1])) == 4
    (commands.folder / "saved.json").write_text(commands.run(*doubled, "json").out)
    again = commands.run("prune-report", "{}/saved.json", "--format", "html")
    assert (again.code, again.err) == (0, "")
    assert 'id="codes">[]</script>' in again.out
    assert "<h1>doubled</h1>" in again.out


def test_a_saved_report(commands: Commands) -> None:
    """A report that was saved as JSON is shown again in any format, findings included."""
    small = (*SMALL, "--keep", "1")
    (commands.folder / "saved.json").write_text(commands.run(*small, "--format", "json").out)
    for form in ("json", "csv", "table"):
        again = commands.run("prune-report", "{}/saved.json", "--format", form, "--check")
        assert (again.code, again.err) == (0, "")
        if form != "json":  # which holds the seconds of each run
            assert again.out == commands.run(*small, "--format", form).out


@pytest.mark.slow
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
    figures = json.loads(commands.run("targets", "show", "H200", "--json").out)
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


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv", "table", "html"])
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
    if form in ("csv", "html"):
        assert written == printed
    names = {entry.name for entry in commands.folder.iterdir()}
    assert not [name for name in names if name.endswith(".part")]


def test_output_is_atomic(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where writing fails half way, the old file is whole and no part of the new one is left."""
    path = commands.folder / "report.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
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


def test_the_grid_of_a_plain_function(commands: Commands) -> None:
    """A grid counts the programs of each config; without one, and without sizes, that is told."""
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
    guessed = commands.run(*plain, "--arg", "x_ptr=fp16", "--check")
    assert (guessed.code, guessed.err) == (0, "")
    (report,) = json.loads(guessed.out)["reports"]
    assert report["notes"] == [
        'the grid is taken as one program; give it as --grid "cdiv(n, BLOCK)"',
        "the size of x_ptr is unknown, so that bytes read twice count twice; "
        'give it as --arg "x_ptr=fp16[n]"',
    ]
    assert {v["features"]["programs"] for v in report["verdicts"]} == {1}
    told = commands.run("explain", *plain[1:-2], "--arg", "x_ptr=fp16[n]", "--alone")
    assert told.out.splitlines()[-1] == report["notes"][0]


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


@pytest.mark.slow(seconds=3)
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
    early = commands.run(*replay, "--scorer", "roofline")
    for name in ("before compiling", "10% compiled", "25% compiled"):
        assert f"roofline, {name}" in early.out


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


@pytest.mark.slow(seconds=3)
def test_a_real_run(commands: Commands) -> None:
    """A real process in a pipe prints its result, and not a word on stderr."""
    path = str(commands.folder / "doubled.py")
    process = asmtune("prune-report", path, "--format", "json", stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["reports"][0]["kernel"] == "doubled"


@pytest.mark.slow
def test_a_real_refusal(commands: Commands) -> None:
    """A real process that is refused prints one line and exits with 2."""
    process = asmtune("prune-report", str(commands.folder / "broken.py"), stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"asmtune: no config of doubled can run")
    assert err.count(b"\n") == 1


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_closed_pipe(commands: Commands) -> None:
    """A reader that has gone ends the command without a complaint, by the code of SIGPIPE."""
    process = asmtune("features", stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_tiles_and_caps(commands: Commands) -> None:
    """A recurrence's tiles are held, and searched on request; caps are left out likewise."""
    recurrence = str(REPOSITORY / "benchmarks" / "families" / "gru_scan.py")
    asked = (
        "prune-report", recurrence, "--shape", "batch=1,time=1024,width=1024",
        "--axis", "BLOCK=64,128,256", "--axis", "STAGES=1", "--axis", "UNROLL=1",
        "--axis", "num_warps=2", "--scorer", "weights", "--format", "json",
    )  # fmt: skip
    for options, tiles in (((), {64, 128}), (("--search-held-tiles",), {64, 128, 256})):
        ran = commands.run(*asked, "--check", "--no-caps", *options)
        assert (ran.code, ran.err) == (0, "")
        (report,) = json.loads(ran.out)["reports"]
        assert {verdict["config"]["BLOCK"] for verdict in report["verdicts"]} == tiles
        assert all("maxnreg" not in verdict["config"] for verdict in report["verdicts"])
        assert report["notes"][0].startswith("recurrence: a sequential loop carries state")
