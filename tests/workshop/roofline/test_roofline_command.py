"""`asmtune roofline`: kernels and shapes to a table, JSON or a picture; and bad input."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store.database import Store
from asmtune.tuning.request import key_of, provenance
from tests.command_lines import GOOD, MODULE, Commands
from tests.pinned import needs_shipped

COPY = "tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)"
BOUNDED = """for _ in range(tl.load(x_ptr).to(tl.int32)):
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)"""
SMALL = ("{}/doubled.py", "--shape", "n=4096")


@pytest.fixture
def kernels(commands: Commands) -> Commands:
    """Commands, with a copy, a kernel whose loop only memory ends, and others' dimensions."""
    for name, body in (("copied", COPY), ("bounded", BOUNDED)):
        text = MODULE.replace("BODY", body).replace('"doubled")', f'"{name}")')
        (commands.folder / f"{name}.py").write_text(text)
    rows = (
        MODULE.replace("BODY", GOOD)
        .replace('"n":', '"rows":')
        .replace('shape["n"]', 'shape["rows"]')
    )
    (commands.folder / "rows.py").write_text(
        rows.replace('{"x_ptr": x, "rows":', '{"x_ptr": x, "n":')
    )
    return commands


def document(commands: Commands, *arguments: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    ran = commands.run("roofline", *arguments, "--format", "json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_kernel_without_records(commands: Commands) -> None:
    """Nothing is stored: after is the model's pick, both times are predicted, and all is told."""
    (entry,) = document(commands, *SMALL)["entries"]
    assert (entry["tuned_by"], entry["speedup_is"]) == ("model", "predicted")
    assert entry["before"]["config"]["BLOCK"] == 128
    assert entry["after"]["flops"] == 4096
    assert entry["after"]["bytes"] == 2 * 4096 * 2
    assert entry["notes"] == ["no tuned config is stored: after is the model's first pick"]


def test_a_stored_config(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the user's store holds for the target is taken with its times."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(tmp_path / "own.sqlite"))
    module = load_kernel_module(str(commands.folder / "doubled.py"))
    problem = module.problem({"n": 4096}, "fp16", "meta")
    best, default = Config({"BLOCK": 256}, num_warps=4), Config({"BLOCK": 128}, num_warps=2)
    timings = tuple(Measurement(c, us, us, us, (us,)) for c, us in ((best, 5.0), (default, 6.0)))
    made = provenance(problem, module.space())
    with Store.open(Settings.from_environment().store_where) as store:
        store.save(TuneRecord(key_of(problem, "NVIDIA H200"), best, timings, made))
    (entry,) = document(commands, *SMALL)["entries"]
    assert (entry["tuned_by"], entry["speedup_is"], entry["speedup"]) == ("store", "measured", 1.2)
    assert entry["after"]["config"] == best.to_dict()
    assert entry["after"]["time_from"] == "store"
    assert entry["tuned_with"]["triton"] == versions()["triton"]
    # Another machine's times are none of this target's.
    (other,) = document(commands, *SMALL, "--target", "H100")["entries"]
    assert other["tuned_by"] == "model"


@needs_shipped
@pytest.mark.parametrize(("rows", "how"), [(1823, "measured"), (2000, "predicted")])
def test_shipped_times(commands: Commands, rows: int, how: str) -> None:
    """The shipped time of 1,823 rows is not told of 2,000, whose key is the same."""
    (entry,) = document(commands, "softmax", "--shape", f"rows={rows},cols=781")["entries"]
    assert (entry["tuned_by"], entry["after"]["time_is"]) == ("shipped", how)
    assert entry["after"]["share_of_roof"] < 1


@pytest.mark.slow
def test_files_by_their_suffix(commands: Commands) -> None:
    """One run writes a picture, another picture, JSON and text, each whole."""
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
    names = ("r.svg", "r.png", "r.json", "r.txt")
    outputs = [part for name in names for part in ("-o", f"{{}}/{name}")]
    ran = commands.run("roofline", *SMALL, *outputs)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    svg, png, text, table = ((commands.folder / name).read_bytes() for name in names)
    assert ET.fromstring(svg).tag.endswith("svg")
    assert png.startswith(b"\x89PNG")
    assert json.loads(text)["format"] == "asmtune-roofline"
    assert table.decode().startswith("Roofline of H200")
    assert not list(commands.folder.glob("*.part"))
    ran = commands.run("roofline", *SMALL, "-o", "{}/plain", "--format", "json")
    assert json.loads((commands.folder / "plain").read_text())["target"] == "H200"


def test_several_kernels_and_shapes(kernels: Commands) -> None:
    """A shape goes to the kernels that have its dimensions, once each, also from a file.

    A kernel without FLOPs, and one whose loop only memory ends, are told of.
    """
    (kernels.folder / "shapes.txt").write_text("n=1000\nrows=64\nn=1000\n")
    modules = ("copied", "rows", "bounded")
    made = document(kernels, *(f"{{}}/{name}.py" for name in modules), "--shapes", "{}/shapes.txt")
    copy, rows, guess = made["entries"]
    assert [entry["shape"] for entry in (copy, rows, guess)] == [
        {"n": 1000}, {"rows": 64}, {"n": 1000},
    ]  # fmt: skip
    assert (copy["after"]["flops"], copy["after"]["flops_per_byte"]) == (0, None)
    assert any(note.startswith("no FLOPs: ") for note in copy["notes"])
    assert any(note.startswith("counts are a guess: line ") for note in guess["notes"])


def test_one_fails(kernels: Commands) -> None:
    """The others are shown; who failed is named on stderr, and the exit code is 1."""
    ran = kernels.run("roofline", "{}/broken.py", "{}/copied.py", "--shape", "n=4096")
    assert ran.code == 1
    assert "copied" in ran.out
    assert ran.err.startswith("asmtune: doubled n=4096: no config of doubled")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("matmull",), "'matmull'"),
        (("{}/plain.py:plain",), "plain function"),
        (("{}/doubled.py", "{}/other/doubled.py"), "two kernels are called doubled"),
        (("{}/broken.py",), "no config of doubled"),
        (("softmax", "softmax"), "'softmax' is given twice"),
        ((*SMALL, "--target", "H2000"), "'H2000'"),
        (("{}/doubled.py", "--shape", "m=4"), "lacks n"),
        (("{}/doubled.py", "{}/rows.py", "--shape", "n=4"), "no shape fits kernel rows"),
        ((*SMALL, "-o", "{}/r.gif"), "'.gif'"),
        ((*SMALL, "--format", "png"), "--output"),
    ],
)
def test_bad_input(kernels: Commands, arguments: tuple[str, ...], says: str) -> None:
    """Each mistake is told in one line, and nothing is written."""
    (kernels.folder / "other").mkdir()
    shutil.copy(kernels.folder / "doubled.py", kernels.folder / "other" / "doubled.py")
    before = sorted(kernels.folder.iterdir())
    assert says in kernels.refused("roofline", *arguments)
    left = [path for path in kernels.folder.iterdir() if path.name != "__pycache__"]
    assert sorted(left) == [path for path in before if path.name != "__pycache__"]
