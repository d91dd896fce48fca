"""`asmtune cache`: what each command prints, does and refuses."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from asmtune.base.errors import InputError, StoreError
from asmtune.cli import cache
from asmtune.cli.app import app
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.measure.timing import nvml
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.lookup import SMALL, StoredPrediction
from asmtune.store.places import DamagedStoreError


def record(m: int, kernel: str = "pkg.matmul", device: str = "NVIDIA H200") -> TuneRecord:
    """A record with two configs timed and one failed."""
    winner, other = Config({"BLOCK_M": 128}, num_warps=8), Config({"BLOCK_M": 64})
    return TuneRecord(
        key=TuneKey(kernel, {"M": m}, {"a": "fp16"}, device),
        winner=winner,
        measurements=(
            Measurement(other, 12.0, 11.5, 12.5, (12.0,)),
            Measurement(winner, 9.5, 9.25, 10.0, (9.5, 9.625)),
        ),
        provenance=Provenance("s", "p", "3.6.0", "2.11.0", "0.1.0", "570", "2025-03-01"),
        failures=((Config({"BLOCK_M": 512}), Failure("ptxas", "registers", "too many")),),
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands look for the store; nothing is there yet, and nothing is shipped."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ASMTUNE_STORE_URL", raising=False)
    monkeypatch.setattr(cache, "shipped_records", lambda: ())
    return tmp_path / "cache" / "store.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store of three records."""
    with Store.open(path) as store:
        store.save_all([record(1), record(2), record(3, "pkg.softmax", "NVIDIA B200")])
    return path


def words(arguments: Sequence[str]) -> list[str]:
    """A command line: of the group, but for exports and imports."""
    return [*(() if arguments[0] in ("export", "import") else ("cache",)), *arguments]


def run(*arguments: str, **env: str) -> Any:
    """Run a command, which is to succeed."""
    result = CliRunner().invoke(app, words(arguments), env=env)
    assert result.exception is None, result.exception
    return result


def refused(kind: type[Exception], *arguments: str) -> str:
    """The one line of a command that is refused, with nothing on stdout."""
    result = CliRunner().invoke(app, words(arguments))
    assert type(result.exception) is kind
    assert result.stdout == ""
    text = str(result.exception)
    assert "\n" not in text
    return text


def listed(**env: str) -> list[dict[str, str]]:
    """The rows of `ls` as CSV."""
    return list(csv.DictReader(run("ls", "--format", "csv", **env).stdout.splitlines()))


def test_ls_filters_and_layers(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters hold for both layers, and the layer is a column."""
    monkeypatch.setattr(cache, "shipped_records", lambda: (record(9), record(9, "pkg.other")))
    rows = json.loads(run("ls", "--format", "json", "--kernel", "pkg.matmul").stdout)
    assert [(row["layer"], row["shape"]["M"]) for row in rows].count(("shipped", 9)) == 1
    assert {row["shape"]["M"] for row in rows if row["layer"] == "store"} == {1, 2}
    rows = json.loads(run("ls", "--format", "json", "--device", "NVIDIA B200").stdout)
    assert [row["kernel"] for row in rows] == ["pkg.softmax"]
    assert rows[0]["median_us"] == 9.5
    assert rows[0]["winner"] == {"BLOCK_M": 128, "num_warps": 8, "num_stages": 3}


HERE = (frozenset({"NVIDIA H200"}), "570", "3.6")


def test_what_is_usable_here(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ls` says what each record is on this machine, and `verify` counts where not all are usable.

    Without a GPU, Triton alone is compared.
    """
    monkeypatch.setattr(cache, "this_machine", lambda: HERE)
    changes = ({}, {"triton": "3.6.2"}, {"driver": "571"}, {"triton": "3.8.0"})
    made = [record(m) for m in range(len(changes))]
    made = [
        replace(one, provenance=replace(one.provenance, **more))
        for one, more in zip(made, changes, strict=True)
    ]
    with Store.open(path) as store:
        store.save_all(made[:2])
    assert run("verify").stderr.endswith("and the shipped files\n")
    with Store.open(path) as store:
        store.save_all([*made, record(9, device="NVIDIA B200")])
    uses = {row["shape"]: row["here"] for row in listed()}
    assert uses == {
        "M=0": "usable", "M=1": "usable", "M=2": "other driver", "M=3": "other Triton",
        "M=9": "other device",
    }  # fmt: skip
    counts = "2 usable, 1 other device, 1 other driver, 1 other Triton"
    assert sorted(counts.split(", ")) == sorted(
        run("verify").stderr.strip().partition("on this machine: ")[2].split(", ")
    )
    monkeypatch.setattr(cache, "this_machine", lambda: (frozenset(), "unknown", "3.6"))
    assert [row["here"] for row in listed()].count("usable") == 4


def test_show_of_several_tritons(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several Tritons' records of a key, the one that launches take here is shown."""
    digits, tried = key_digest(record(1).key), ("3.6.0", "3.7.1", "3.8.0")
    provenance = record(1).provenance
    made = [replace(record(1), provenance=replace(provenance, triton=each)) for each in tried]
    with Store.open(path) as store:
        store.save_all(made)
    for each in tried:
        here = (HERE[0], HERE[1], each[:3])
        monkeypatch.setattr(cache, "this_machine", lambda here=here: here)
        assert f" {each}" in run("show", digits).stdout
    monkeypatch.setattr(cache, "this_machine", lambda: (HERE[0], HERE[1], "3.9"))
    assert "other Triton" in run("show", digits).stdout


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices and driver are read off the driver's files, without PyTorch."""
    for name in ("0", "1"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA H{name}00 80GB HBM3\nIRQ:   \t 1\n"
        (tmp_path / "gpus" / name / "information").write_text(text)
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX  580.95.05  Release Build\n")
    monkeypatch.setattr(nvml, "_DRIVER_FILE", tmp_path / "version")
    devices = {"NVIDIA H000 80GB HBM3", "NVIDIA H100 80GB HBM3"}
    assert cache.this_machine()[:2] == (devices, "580.95.05")
    monkeypatch.setattr(nvml, "_DRIVER_FILE", tmp_path / "none" / "version")
    assert cache.this_machine()[:2] == (frozenset(), "unknown")


def test_export_to_stdout(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes to stdout is the document alone; the count goes to stderr, and no file is made."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = run("export", "-", "--samples")
    assert {r.key.shape["M"] for r in interchange.loads(done.stdout, "-")} == {1, 2, 3}
    assert done.stderr == "exported 3 records to -\n"
    run("export", "tuned.json", "--samples")
    assert (tmp_path / "tuned.json").read_text() == done.stdout
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "tuned.json"])


def test_show(filled: Path) -> None:
    """A record is shown by a prefix of its key, with its timings, fastest first."""
    text = run("show", key_digest(record(2).key)[:10].upper()).stdout
    assert re.search(r"triton +│ 3\.6\.0", text)
    assert text.index(" 9.500 ") < text.index(" 12.000 ")
    assert "BLOCK_M=512" in text
    assert "registers at ptxas: too many" in text
    value = json.loads(run("show", key_digest(record(2).key), "--format", "json").stdout)
    assert value["key_digest"] == key_digest(record(2).key)
    assert (value["layer"], value["key"]["shape"]) == ("store", {"M": 2})
    assert [m["samples_us"] for m in value["measurements"]] == [[12.0], [9.5, 9.625]]


def test_show_refusals(path: Path) -> None:
    """A prefix that is no hex, that nothing starts with or that several do is refused."""
    with Store.open(path) as store:
        store.save_all(record(m) for m in range(17))
    digits = [key_digest(record(m).key)[0] for m in range(17)]
    common = next(d for d in digits if digits.count(d) > 1)
    for prefix, says in (
        ("xyz", "expected hex digits"),
        ("", "expected hex digits"),
        (key_digest(record(99).key), "no records start so"),
        (common, f"{digits.count(common)} records start so; give more"),
    ):
        assert says in refused(InputError, "show", prefix)


def test_export_and_import(filled: Path, tmp_path: Path) -> None:
    """What is exported, with its samples, comes back by import into an empty store."""
    file = tmp_path / "tuned.json"
    text = run("export", str(file), "--kernel", "pkg.matmul", "--samples").stdout
    assert text == f"exported 2 records to {file}\n"
    filled.unlink()
    (tmp_path / "newer.json").write_text('{"format": "asmtune-tuned", "version": 3}')
    line = refused(InputError, "import", str(tmp_path / "newer.json"))
    assert "version is 3, and this asmtune reads 1: " in line
    assert not filled.exists()
    assert run("import", str(file)).stdout == f"imported 2 records from {file}\n"
    with Store.open(filled) as store:
        kept = {r.key.shape["M"]: r for r in store.records()}
    assert kept == {1: record(1), 2: record(2)}
    assert run("export", str(file), "--fastest", "1").exit_code == 0
    for one in interchange.read(file):
        assert [timing.config for timing in one.measurements] == [one.winner]
        assert one.failures == ()
    line = refused(InputError, "export", str(tmp_path / "f.json"), "--kernel", "pkg.none")
    assert "no record of kernel pkg.none on device (any)" in line
    assert not (tmp_path / "f.json").exists()


def test_verify_exits_with_1(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound store exits with 0; damaged rows and a malformed shipped file with 1, all named."""
    assert run("verify").stdout == ""
    with Store.open(filled) as store:
        store.save_prediction(StoredPrediction.of(record(7)))
    damaged, cut = (key_digest(record(m).key) for m in (2, 7))
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("UPDATE keys SET winner = '' WHERE digest = ?", (damaged,))
        connection.execute("UPDATE predictions SET winner = '' WHERE digest = ?", (cut,))

    def malformed() -> Any:
        raise InputError("asmtune.shipped/x.json: not JSON")

    monkeypatch.setattr(cache, "shipped_records", malformed)
    result = CliRunner().invoke(app, ["cache", "verify", "--format", "json"])
    assert result.exit_code == 1
    places = {finding["place"] for finding in json.loads(result.stdout)}
    assert places == {f"{damaged[:12]} pkg.matmul", f"{cut[:12]} pkg.matmul", "shipped"}
    plain = CliRunner().invoke(app, ["cache", "verify"])
    assert (plain.exit_code, "3 problems" in plain.stderr) == (1, True)
    assert all(place in plain.stdout for place in places)


def test_damaged_store(path: Path) -> None:
    """Commands report a damaged file in one line and leave it alone."""
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 100)
    for arguments in (["ls"], ["verify"], ["clear", "--yes"], ["show", "ab"]):
        assert "move the file away" in refused(DamagedStoreError, *arguments)
    assert path.read_bytes() == b"not a database" * 100


def test_clear_wants_yes(filled: Path) -> None:
    """Nothing is deleted without --yes; with it, what the filters name, damaged or not."""
    assert "pass --yes" in refused(InputError, "clear", "--kernel", "pkg.matmul")
    with Store.open(filled) as store:
        assert len(store.records()) == 3
    told = run("clear", "--kernel", "pkg.matmul", "--yes").stdout
    assert told.startswith("cleared 2 records from ")
    assert [row["kernel"] for row in listed()] == ["pkg.softmax"]
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("UPDATE keys SET winner = '' WHERE kernel = 'pkg.softmax'")
    assert "asmtune cache clear --kernel 'pkg.softmax' --yes" in refused(StoreError, "ls")
    run("clear", "--kernel", "pkg.softmax", "--yes")
    assert listed() == []


@pytest.mark.parametrize("layer", ["predicted", "small"])
def test_what_is_only_predicted(filled: Path, layer: str) -> None:
    """What nothing timed is listed as such, is neither exported nor imported, and is cleared."""
    key, made_with = record(9).key, record(9).provenance
    if layer == "small":
        made_with = replace(made_with, space=SMALL)
    guess = StoredPrediction(key, Config({"BLOCK_M": 16}), 5.5, made_with)
    with Store.open(filled) as store:
        store.save_prediction(guess)
    listed = [
        row for row in json.loads(run("ls", "--format", "json").stdout) if row["layer"] == layer
    ]
    assert [(row["key"], row["winner"]["BLOCK_M"], row["median_us"]) for row in listed] == [
        (key_digest(key)[:12], 16, None)
    ]
    file = filled.parent / "out.json"
    run("export", str(file))
    assert key not in [made.key for made in interchange.read(file)]
    run("clear", "--yes")
    assert run("ls").stdout == ""


def test_store_by_option_and_by_variable(path: Path, tmp_path: Path) -> None:
    """`--store` names the store, a path or a URL; without it ASMTUNE_STORE_URL does."""
    there = tmp_path / "there.sqlite"
    with Store.open(there) as store:
        store.save(record(9))
    for where in (str(there), f"sqlite:///{there}"):
        (row,) = json.loads(run("ls", "--format", "json", "--store", where).stdout)
        assert row["shape"] == {"M": 9}
        (row,) = json.loads(run("ls", "--format", "json", ASMTUNE_STORE_URL=where).stdout)
        assert row["shape"] == {"M": 9}
    digits = key_digest(record(9).key)[:12]
    assert "BLOCK_M" in run("show", digits, "--store", str(there)).stdout
    assert str(there) in run("verify", "--store", str(there)).stderr
    run("export", str(tmp_path / "f.json"), "--store", str(there))
    assert run("clear", "--yes", "--store", str(there)).stdout.startswith("cleared 1 records")
    run("import", str(tmp_path / "f.json"), "--store", str(there))
    with Store.open(there) as store:
        assert [r.key for r in store.records()] == [record(9).key]
    assert not path.exists()
