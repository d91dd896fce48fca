"""`asmtune prune-report --stored`: a record's config among the others, on any target."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asmtune.core.config import Config
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.space.space import Space
from asmtune.runtime.offline.kernel_sources import load_kernel
from asmtune.runtime.offline.pruning import prune_report
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.tuning.request import key_of, provenance
from tests.command_lines import Commands
from tests.sample_kernels import product_problem

WINNER = Config({"BLOCK": 256}, num_warps=4)
LAST = Config({"BLOCK": 256}, num_warps=2)
"""The last rank on both targets."""


@pytest.fixture
def record(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuneRecord:
    """A tuned config of the doubling kernel, in the user's store."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(tmp_path / "store.sqlite"))
    module = load_kernel_module(str(commands.folder / "doubled.py"))
    loaded = load_kernel(module, shape={"n": 100}, dtype="fp32")
    timed = (Measurement(WINNER, 5.0, 5.0, 5.0, (5.0,)),)
    origin = provenance(loaded.problem, loaded.space)
    made = TuneRecord(key_of(loaded.problem, "NVIDIA H200"), WINNER, timed, origin)
    save(tmp_path, made)
    return made


def save(folder: Path, record: TuneRecord) -> None:
    """Put a record into the user's store."""
    with Store.open(folder / "store.sqlite") as store:
        store.save(record)


def stored(record: TuneRecord, *more: str, kernel: str = "{}/doubled.py") -> tuple[str, ...]:
    """A command line that names a record."""
    return ("prune-report", kernel, "--stored", key_digest(record.key)[:12], *more)


def reported(commands: Commands, *arguments: str) -> dict[str, dict[str, Any]]:
    """Reports by target, of a command that succeeds."""
    ran = commands.run(*arguments, "--format", "json")
    assert ran.code == 0, ran
    return {report["target"]: report for report in json.loads(ran.out)["reports"]}


def verdict_on(report: dict[str, Any], config: Config) -> dict[str, Any]:
    """The verdict of a report on a config."""
    own = [one for one in report["verdicts"] if one["config"] == config.to_dict()]
    assert len(own) == 1
    return own[0]


def test_it_is_kept_and_ranked_on_each_target(
    commands: Commands, record: TuneRecord, tmp_path: Path
) -> None:
    """Where one rank is kept, the record's config is kept too, with its own rank and a mark."""
    save(tmp_path, replace(record, winner=LAST))
    targets = ("--target", "H200", "--target", "A100", "--keep", "1", "--shape", "n=100")
    reports = reported(commands, *stored(record, *targets))
    plain = reported(commands, "prune-report", "{}/doubled.py", *targets)
    for target, report in reports.items():
        own, without = verdict_on(report, LAST), verdict_on(plain[target], LAST)
        assert (own["kept"], without["kept"]) == (True, False)
        assert own["rank"] == without["rank"] == 4
        assert report["stored"] == LAST.to_dict()
        assert "stored" not in plain[target]
        assert own["reasons"][-1]["rule"] == "stored"
    text = commands.run(*stored(record, *targets)).out
    assert sum(line.startswith(" stored") and "256" in line for line in text.splitlines()) == 2
    for target in ("H200", "A100"):
        assert f"{target}: stored {LAST}: rank 4 of 4, " in text
        assert f"{target}: stored: config of the record" in text


def test_what_names_no_config_of_the_space(commands: Commands, record: TuneRecord) -> None:
    """An unknown key, a record of another kernel and a config of other axes are refused."""
    unknown = ("prune-report", "{}/doubled.py", "--stored", "0000")
    assert "no records start so" in commands.refused(*unknown)
    assert record.key.kernel in commands.refused(*stored(record, kernel="softmax"))
    lacking = commands.refused(*stored(record, "--axis", "BLOCK=128"))
    assert "axis 'BLOCK'" in lacking
    assert "n=100" in lacking


def test_a_config_that_its_rank_would_not_compile() -> None:
    """Of a space that is not compiled whole, the stored config is compiled as well."""
    product = product_problem()
    axes = {"BLOCK_M": (64, 128), "BLOCK_N": (64, 128), "BLOCK_K": (32,), "num_warps": (4, 8)}
    space = Space(axes)
    plain = prune_report(product, space, compile=1)
    last = [verdict for verdict in plain.verdicts if verdict.dropped_at == "sketch"][-1]
    report = prune_report(product, space, compile=1, stored=last.config)
    assert report.stored is not None
    assert report.stored.config == last.config
    assert report.stored.features is not None
    assert report.stored.kept
    assert report.counts()["candidates"] == plain.counts()["candidates"]
