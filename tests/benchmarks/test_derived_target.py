"""The derived target beside the shipped one: the script, over attributes that stand in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from asmtune.core.hardware.shipped import load_target
from benchmarks import derived_target
from tests.driver_tables import attributes

DATA = Path(__file__).parents[1] / "replay_data"


def recorded(folder: Path, name: str) -> Path:
    """Write a device's attributes as `asmtune targets show --driver` does."""
    path = folder / "attributes.json"
    path.write_text(json.dumps({"name": name, "attributes": attributes(name)}))
    return path


def run(patch: pytest.MonkeyPatch, *arguments: object) -> None:
    """Run the script."""
    patch.setattr(sys, "argv", ["derived_target", *map(str, arguments)])
    derived_target.main()


def test_every_figure_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure of both targets stands in the table, with their ratio and the derived kind."""
    output = tmp_path / "out.json"
    run(monkeypatch, recorded(tmp_path, "NVIDIA H200"), "--output", output)
    rows = {row["figure"]: row for row in json.loads(output.read_text())["figures"]}
    assert set(rows) == set(load_target("H200").figures)
    assert rows["sms"]["ratio"] == 1.0
    assert rows["dram_bytes_per_s"]["kind"] == "driver"
    assert rows["measured_dram_bytes_per_s"]["derived"] is None
    assert "tensor_flops_per_s.bf16" in capsys.readouterr().out


@pytest.mark.slow(seconds=8)
def test_tuning_with_it_keeps_what_the_shipped_one_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded timings are replayed with both targets, and what each keeps is written."""
    output = tmp_path / "out.json"
    replay = ("--oracle", DATA / "timings.json", "--kernels", DATA / "kernels")
    run(monkeypatch, recorded(tmp_path, "NVIDIA H200"), *replay, "--output", output)
    for by_role in json.loads(output.read_text())["replay"].values():
        for cut, kept in by_role["shipped"].items():
            assert by_role["derived"][cut] >= 0.99 * kept, cut


def test_a_device_is_not_derived_from_its_own_file() -> None:
    """What the driver does not tell is taken from another device."""
    shipped = load_target("H200")
    told = derived_target.DeviceAttributes("NVIDIA H200", attributes("NVIDIA H200"))
    derived = derived_target.derive(told, without=shipped)
    assert "H200 by SMs" not in derived.source("dram_bytes")
