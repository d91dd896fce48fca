"""`asmtune retarget`: a stored config on other devices, with its exit codes and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_lines import Commands
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.hardware.descriptor import descriptor_of
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.studies.retarget import (
    PAYS,
    UNTIMED_PAYS,
    Retargeted,
    RetargetedConfig,
    best_of,
    expected_us,
)
from asmtune.studies.stored import load_kernel
from asmtune.tuning.request import expected_of, key_of
from tests.trace_runs import HEADER, write_run

WINNER = Config({"BLOCK": 256}, num_warps=4)
OTHER = Config({"BLOCK": 128}, num_warps=2)


@pytest.fixture
def stored(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuneRecord:
    """A tuned config of the doubling kernel, of two timed, in the user's store."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(tmp_path / "store.sqlite"))
    loaded = load_kernel(
        load_kernel_module(str(commands.folder / "doubled.py")), shape={"n": 100}, dtype="fp32"
    )
    timed = tuple(Measurement(c, us, us, us, (us,)) for c, us in ((WINNER, 5.0), (OTHER, 6.0)))
    key = key_of(loaded.problem, "NVIDIA H200")
    record = TuneRecord(key, WINNER, timed, expected_of(loaded.problem, loaded.space, {}))
    save(tmp_path, record)
    return record


def save(folder: Path, record: TuneRecord) -> None:
    """Put a record into the user's store."""
    with Store.open(folder / "store.sqlite") as store:
        store.save(record)


def arguments(record: TuneRecord, target: str, *more: str) -> tuple[str, ...]:
    """A command line of the record."""
    key = key_digest(record.key)[:12]
    return ("retarget", key, "--kernel", "{}/doubled.py", "--target", target, *more)


def descriptor(folder: Path, **changes: Any) -> str:
    """A file of an H200 with other figures."""
    path = folder / "other.json"
    changed = descriptor_of(load_target("H200")) | {"name": "other", "aliases": []} | changes
    path.write_text(json.dumps(changed))
    return str(path)


def test_a_config_that_pays(commands: Commands, stored: TuneRecord) -> None:
    """Shape and dtype are found by the key; timings correct the prediction for an H100."""
    ran = commands.run(*arguments(stored, "H100", "--json", "--check"))
    assert ran.code == 0, ran
    told = json.loads(ran.out)
    assert (told["outcome"], told["target"], told["layer"]) == ("pays", "H100", "store")
    assert told["stored"]["config"] == told["best"]["config"] == WINNER.to_dict()
    assert told["stored"]["recorded_us"] == 5.0
    assert told["evidence"] == "2 timings of NVIDIA H200 correct the prediction"
    assert told["changed"]["dram_bytes_per_s"] == [4.8e12, 3.35e12]
    ranks = [row["rank"] for row in told["ranking"]]
    assert ranks == list(range(1, len(ranks) + 1))
    times = [row["expected_us"] for row in told["ranking"]]
    assert times == sorted(times)
    text = commands.run(*arguments(stored, "H100")).out
    assert f"use: {WINNER} (the stored one)" in text
    assert "dram_bytes_per_s: 4.8e+12 -> 3.35e+12" in text


def test_a_run_names_its_record(commands: Commands, stored: TuneRecord, tmp_path: Path) -> None:
    """A run's trace has key, kernel and sizes, so that nothing else need be given."""
    module = str(commands.folder / "doubled.py")
    header = replace(HEADER, key=stored.key, reference=module, sizes={"n": 100})
    run = write_run(tmp_path / "runs", header)
    ran = commands.run("retarget", str(run.path), "--target", "H100", "--json")
    assert ran.code == 0, ran
    assert json.loads(ran.out)["key"] == key_digest(stored.key)


def test_a_config_that_does_not_fit(commands: Commands, stored: TuneRecord, tmp_path: Path) -> None:
    """The limit stands against the actual number, another config is named, and --check fails."""
    small = descriptor(tmp_path, max_threads_per_block=64)
    ran = commands.run(*arguments(stored, small, "--check"))
    assert ran.code == 1, ran
    assert "no longer fits: threads: 4 warps are 128 threads, over 64 a program" in ran.out
    assert "max_threads_per_block: 1,024 -> 64" in ran.out
    told = json.loads(commands.run(*arguments(stored, small, "--json")).out)
    assert told["outcome"] == "no longer fits"
    assert told["gain"] is None
    assert told["stored"]["reason"].startswith("threads: ")
    assert {row["config"]["num_warps"] for row in told["ranking"]} == {2}


def test_other_machine_code_is_not_corrected(
    commands: Commands, stored: TuneRecord, tmp_path: Path
) -> None:
    """Of another architecture, another source or an unknown device timings are not evidence."""
    told = json.loads(commands.run(*arguments(stored, "A100", "--json")).out)
    assert "sm_80 runs other machine code than sm_90" in told["evidence"]
    assert told["best"]["expected_us"] == told["best"]["predicted_us"]
    stale = replace(stored, provenance=replace(stored.provenance, source="0" * 64))
    save(tmp_path, stale)
    told = json.loads(commands.run(*arguments(stored, "H100", "--json")).out)
    assert "taken of another source" in told["evidence"]
    assert any("stale: source differs" in note for note in told["notes"])


def test_what_is_refused(commands: Commands, stored: TuneRecord, tmp_path: Path) -> None:
    """Each bad input is one line that says what to give."""
    assert "expected hex digits" in commands.refused("retarget", "xyz", "--target", "H100")
    assert "no records start so" in commands.refused("retarget", "0000", "--target", "H100")
    assert "no run" in commands.refused("retarget", "2026-x", "--target", "H100")
    assert "is unknown" in commands.refused(*arguments(stored, "H1000"))
    assert "has its key" in commands.refused(*arguments(stored, "H100", "--shape", "n=4096"))
    assert "lacks n" in commands.refused(*arguments(stored, "H100", "--shape", "m=4"))
    named = commands.refused("retarget", key_digest(stored.key)[:9], "--target", "H100")
    assert "name its module by --kernel" in named
    none = descriptor(tmp_path, max_threads_per_block=32)
    assert "can run on other" in commands.refused(*arguments(stored, none))


times = st.dictionaries(st.integers(0, 9), st.floats(1.0, 100.0), min_size=1)


@given(here=times, there=times, measured=times)
def test_expected_times(
    here: dict[int, float], there: dict[int, float], measured: dict[int, float]
) -> None:
    """A timed config keeps its ratio to the prediction, and equal devices its time."""
    expected = expected_us(here, there, measured)
    assert expected.keys() == here.keys()
    same = expected_us(there, there, measured)
    for config in there.keys() & measured.keys():
        assert same[config] == pytest.approx(measured[config])
    assert expected_us(here, {}, measured) == here


def test_the_stored_config_stays_unless_another_pays() -> None:
    """A timed config must gain a little to take its place, one that was never timed more."""
    for timed, gain in (((1, 2), PAYS), ((2,), UNTIMED_PAYS), ((), PAYS)):
        assert best_of({1: 10.0, 2: 10.0 * (1 + gain) - 0.01}, 2, timed) == 2
        assert best_of({1: 10.0, 2: 10.0 * (1 + gain) + 0.01}, 2, timed) == 1
    assert best_of({1: 10.0}, 2, ()) == 1
    assert best_of({1: 10.0, 3: 11.0}, 2, (2, 3)) == 3


def test_a_config_that_no_longer_pays(stored: TuneRecord) -> None:
    """The gain is what the first rank is expected to be faster by."""
    rows = [
        RetargetedConfig(Verdict(c, True), None, us) for c, us in ((OTHER, 8.0), (WINNER, 10.0))
    ]
    target = load_target("H100")
    result = Retargeted(stored, None, target, rows[1], tuple(rows), "", ())
    assert (result.fate, result.best, result.gain) == ("no longer pays", rows[0], 0.25)
