"""`asmtune roofline --measure` on a real GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from asmtune.cli.app import run
from asmtune.core.hardware.shipped import match_device


def test_both_configs_are_timed_now(tmp_path: Path) -> None:
    """An addition of large vectors reaches a share of DRAM's rate from 0.3 to 1.1."""
    target = match_device(torch.cuda.get_device_name())
    if target is None:
        pytest.skip("no descriptor of this GPU")
    output = tmp_path / "roofline.json"
    code = run(["roofline", "vector_add", "--target", target.name, "--measure", "-o", str(output)])
    assert code == 0
    (entry,) = json.loads(output.read_text())["entries"]
    assert entry["speedup_is"] == "measured"
    for when in ("before", "after"):
        assert entry[when]["time_from"] == "this GPU"
        assert 0.3 < entry[when]["share_of_roof"] < 1.1
    assert entry["speedup"] > 0.9
