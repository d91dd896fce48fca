"""`asmtune keys suggest`: rules of buckets that stored timings bear out, and what they lose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from command_lines import Commands

from asmtune.core.config import Config
from asmtune.core.keys.rules import BucketRules
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.runtime.recording.key_file import KeyFile, RecordedKey, add_keys
from asmtune.store.database import Store
from asmtune.studies.key_rules import ArgumentReport, suggested_rules
from tests.store.store_records import PROVENANCE

SMALL, LARGE = Config({"BLOCK": 64}), Config({"BLOCK": 256})


def record(shape: dict[str, Any], small_us: float, large_us: float, **of: Any) -> TuneRecord:
    """A key with the times of two configs."""
    times = {SMALL: small_us, LARGE: large_us}
    timed = tuple(Measurement(config, us, us, us, (us,)) for config, us in times.items())
    key = TuneKey(of.get("kernel", "lib.gemm"), shape, {"a": "fp16"}, of.get("gpu", "NVIDIA H200"))
    return TuneRecord(key, min(times, key=times.__getitem__), timed, PROVENANCE)


def gemm(times: Callable[[int, int], tuple[float, float]]) -> list[TuneRecord]:
    """Keys of eight lengths at two widths."""
    lengths = (100, 200, 300, 400, 500, 600, 700, 800)
    return [record({"M": m, "N": n}, *times(m, n)) for m in lengths for n in (64, 4096)]


def by_argument(records: Iterable[TuneRecord], limit: float = 0.02) -> dict[str, ArgumentReport]:
    """The reports by argument."""
    return {report.argument: report for report in suggested_rules(records, limit)}


def test_an_argument_that_changes_no_winner() -> None:
    """Lengths whose winners do not differ share a bucket of those met; the width keeps its keys."""
    reports = by_argument(gemm(lambda _, n: (10.0, 20.0) if n == 64 else (20.0, 10.0)))
    lengths, widths = reports["M"], reports["N"]
    assert (lengths.keys, lengths.values, lengths.winners) == (16, 8, 1)
    assert str(lengths.rule) == "lib.gemm:between(99, 800, M)"
    assert lengths.loss is not None
    assert (lengths.loss.keys, lengths.loss.worst, lengths.loss.known) == (2, 0.0, 112)
    assert (widths.keys, widths.winners, widths.rule) == (2, 2, None)
    assert widths.all_values.worst == 0.5


def test_a_bucket_is_as_fine_as_the_winners_are() -> None:
    """Where the winner changes at a length, the widest ranges within the limit end there."""
    records = gemm(lambda m, _: (10.0, 20.0) if m <= 256 else (20.0, 10.0))
    lengths = by_argument(records)["M"]
    assert (lengths.winners, str(lengths.rule)) == (2, "lib.gemm:between(99, 200, 800, M)")
    assert lengths.loss is not None
    assert (lengths.loss.keys, lengths.loss.worst) == (4, 0.0)
    assert lengths.all_values.worst == 0.5


@pytest.mark.parametrize(("limit", "worst"), [(0.0, None), (0.1, pytest.approx(1 - 10 / 11))])
def test_the_loss_of_speed_is_of_the_stored_timings(limit: float, worst: Any) -> None:
    """A rule may lose what the limit allows, and its loss is told."""
    times = [(10.0, 11.0), (11.0, 10.0), (10.0, 11.0)]
    records = [record({"M": m}, *us) for m, us in zip((5, 6, 7), times, strict=True)]
    lengths = by_argument(records, limit)["M"]
    assert (lengths.loss.worst if lengths.loss else None) == worst


def test_keys_of_other_settings_are_not_compared() -> None:
    """Keys of other GPUs, dtypes and versions of the source share nothing."""
    first = record({"M": 8}, 1.0, 2.0)
    other = replace(first, provenance=replace(PROVENANCE, source="9" * 64))
    records = [
        replace(first, key=replace(first.key, shape={"M": 7})),
        record({"M": 6}, 2.0, 1.0, gpu="NVIDIA A100"),
        replace(other, key=replace(first.key, shape={"M": 5})),
        first,
    ]
    lengths = by_argument(records)["M"]
    assert lengths.loss is not None
    assert (lengths.keys, lengths.loss.keys, lengths.loss.pairs) == (4, 3, 2)


def test_losses_that_nothing_tells() -> None:
    """Where a winner was not timed at the other keys, no rule is suggested."""
    alone = [
        replace(one, measurements=tuple(m for m in one.measurements if m.config == one.winner))
        for one in (record({"M": 8}, 1.0, 2.0), record({"M": 7}, 2.0, 1.0))
    ]
    lengths = by_argument(alone)["M"]
    assert (lengths.rule, lengths.all_values.known, lengths.all_values.pairs) == (None, 0, 2)


def test_arguments_that_are_no_numbers() -> None:
    """Values that no bucket rounds, and parts that are buckets already, are no candidates."""
    records = [
        record({"causal": causal, "act": act, "pow2(M)": m}, 1.0, 2.0)
        for causal in (True, False)
        for act in ("relu", None)
        for m in (64, 128)
    ]
    reports = by_argument(records)
    assert reports.keys() == {"causal", "act"}
    assert not any(report.rule for report in reports.values())
    assert reports["act"].winners == 1


@pytest.fixture
def stored(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A store with keys of two kernels."""
    monkeypatch.setenv("ASMTUNE_STORE_URL", str(commands.folder / "store.sqlite"))
    records = gemm(lambda _, n: (10.0, 20.0) if n == 64 else (20.0, 10.0))
    with Store.open(commands.folder / "store.sqlite") as store:
        store.save_all([*records, record({"n": 4}, 1.0, 2.0, kernel="lib.add")])
    return commands


def test_suggested_rules_are_rules(stored: Commands) -> None:
    """The table shows each argument, and the file can be given to `asmtune run --buckets`."""
    ran = stored.run("keys", "suggest", "--output", "{}/rules.txt")
    assert ran.code == 0, ran.err
    rows = [[cell.strip() for cell in line.split("│")] for line in ran.out.splitlines()]
    shares = ["16 -> 2", "0.0%, worst 0.0%", "112/112"]
    start = ["lib.gemm", "M", "8", "1", "0.0%, worst 0.0%"]
    assert [*start, "between(99, 800, M)", *shares] in rows
    assert "17 tuned keys; asmtune run --bucket 'lib.gemm:between(99, 800, M)' PROGRAM" in ran.out
    rules = BucketRules.of(stored.folder / "rules.txt").rules
    assert list(map(str, rules)) == ["lib.gemm:between(99, 800, M)"]
    (first, second) = json.loads(stored.run("keys", "suggest", "--json").out)
    assert (first["argument"], first["rule"]) == ("M", "lib.gemm:between(99, 800, M)")
    assert (second["argument"], second["rule"]) == ("N", None)


def test_keys_of_a_run(stored: Commands) -> None:
    """A recorded file, a run's id or a kernel's name choose the keys."""
    path = stored.folder / "keys.json"
    keys = [
        RecordedKey("lib.gemm", "lib", None, {"M": m, "N": 64}, {"a": "fp16"}, "", "", "")
        for m in (100, 200, 4)
    ]
    add_keys(path, KeyFile("serve.py", (), tuple(keys)))
    assert "2 tuned keys; asmtune run --bucket" in stored.run("keys", "suggest", "{}/keys.json").out
    alone = stored.run("keys", "suggest", "--kernel", "add").out
    assert alone == "1 tuned key: no rule saves a key within a loss of 2.0%\n"
    said = stored.refused("keys", "suggest", "--kernel", "gem")
    assert "keys suggest: no tuned key of kernel gem of the store is in the store" in said
    assert "--loss: 2 is no share" in stored.refused("keys", "suggest", "--loss", "2")
    assert "absent.json: No such file" in stored.refused("keys", "suggest", "absent.json")
    assert "no run '2031'" in stored.refused("keys", "suggest", "2031")
