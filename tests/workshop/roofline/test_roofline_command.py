"""`asmtune roofline`: kernels and shapes to a table, JSON or a picture; and bad input."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.command_lines import GOOD, MODULE, Commands

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


def test_looking_makes_no_store(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A store that is not there is not made."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(tmp_path / "none.sqlite"))
    document(commands, *SMALL)
    assert not (tmp_path / "none.sqlite").exists()


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
    """A shape goes to the kernels that have its dimensions, once each, also from a file."""
    (kernels.folder / "shapes.txt").write_text("n=1000\nn=2000\nrows=64\nn=1000\n")
    made = document(kernels, "{}/doubled.py", "{}/rows.py", "--shapes", "{}/shapes.txt")
    shapes = [entry["shape"] for entry in made["entries"]]
    assert shapes == [{"n": 1000}, {"n": 2000}, {"rows": 64}]
