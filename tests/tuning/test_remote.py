"""Tuning on GPUs of other hosts: real agents and processes, with this host in their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.core.hardware import shipped
from asmtune.measure.bench.remote import close_hosts
from asmtune.tuning.options import EFFORTS, Choices, TuneOptions
from asmtune.tuning.request import TuningResult
from asmtune.tuning.tuner import Tuner
from tests.bench.remote_support import SUM_CHILD, far_python, stand_in_ssh
from tests.tuning_support import BEST, DEVICE, HostMachine, resolved, workshop


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hosts are reached by a stand-in of ssh; all are closed at the end."""
    stand_in_ssh(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(shipped, "_chosen", [])
    yield
    close_hosts()


def far_tuner(folder: Path, devices: tuple[str, ...], **choices: Any) -> Tuner:
    """Make a tuner on GPUs elsewhere, with a store in a folder."""
    near = workshop(folder, HostMachine())  # it makes the folder and shares artifacts
    effort = replace(EFFORTS["balanced"], scorer="roofline")
    options = TuneOptions.of(Choices(effort=effort, devices=devices, **choices))
    _, made = Tuner.on_devices(options)
    settings = replace(near.funnel.settings, compiler=made.funnel.settings.compiler, jobs=2)
    return replace(made, store=near.store, funnel=replace(made.funnel, settings=settings))


def host(folder: Path, name: str, **wish: Any) -> str:
    """Return the address of a host, whose samples are counted in a folder of its name."""
    (folder / name).mkdir()
    python = far_python(folder / f"{name}.python", child=[SUM_CHILD, str(folder / name)], **wish)
    return f"ssh://me@{name}?python={python}"


def outcome(result: TuningResult) -> Any:
    """Return what a record says, without its versions and date."""
    record = result.record
    assert record is not None, result.error
    timings = {(m.config, m.median_us, m.samples_us) for m in record.measurements}
    return record.key, record.winner, timings, set(record.failures)


@pytest.mark.slow(seconds=30)
def test_records_are_those_of_a_gpu_here(tmp_path: Path) -> None:
    """One GPU elsewhere gives the record that the same clock gives here, under its own name."""
    expected = resolved(workshop(tmp_path / "near", HostMachine()))
    tuner = far_tuner(tmp_path / "far", (host(tmp_path, "a", gpus=[DEVICE]),))
    result = resolved(tuner)
    assert outcome(result) == outcome(expected)
    assert result.record is not None
    assert result.record.winner == BEST
    assert result.record.key.device == DEVICE
    assert result.record.provenance.driver == "1.2.3"
    assert resolved(tuner).outcome == "known"
