"""The reviewed JSON form: round trips, stable text, ways of being malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_records
from hypothesis import given, settings
from hypothesis import strategies as st
from store_records import record, text_of, timed

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest


def without_samples(record: TuneRecord) -> TuneRecord:
    """A record as an export without samples gives it back."""
    return replace(
        record, measurements=tuple(replace(m, samples_us=()) for m in record.measurements)
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(records=st.lists(store_records.records(), max_size=4, unique_by=lambda r: key_digest(r.key)))
def test_export_comes_back_equal(records: list[TuneRecord]) -> None:
    """Whatever can be kept comes back from its text equal but for the samples.

    Sorted, the same records are the same text, and re-export changes nothing.
    """
    text = text_of(interchange.in_order(records))
    back = interchange.loads(text, "f.json")
    assert text_of(interchange.in_order(reversed(records))) == text_of(back) == text
    assert {key_digest(r.key): r for r in back} == {
        key_digest(r.key): without_samples(r) for r in records
    }


def test_text_as_reviewed() -> None:
    """The form is this text: one line a field and one a measurement, names sorted."""
    config = Config({"BLOCK_M": 64})
    one = record(64, winner=config, measurements=(timed(config),), failures=())
    provenance = (
        '{"asmtune": "0.1.0", "date": "2025-03-01T12:00:00+00:00", "driver": "570.86.15", '
        f'"source": "{"5" * 64}", "space": "{"a" * 64}", "torch": "2.11.0", "triton": "3.6.0"}}'
    )
    assert text_of([one], samples=True).splitlines() == [
        "{",
        '"format": "asmtune-tuned",',
        '"version": 1,',
        '"records": [',
        "{",
        ' "key": {"device": "NVIDIA H200", "dtypes": {"a": "fp16"}, "kernel": "pkg.matmul", '
        '"shape": {"M": 64, "causal": true}},',
        ' "winner": {"BLOCK_M": 64, "num_stages": 3, "num_warps": 4},',
        f' "provenance": {provenance},',
        ' "measurements": [',
        '  {"config": {"BLOCK_M": 64, "num_stages": 3, "num_warps": 4}, "median_us": 9.5, '
        '"p20_us": 9.25, "p80_us": 10.0, "samples_us": [0.3, 9.75]}],',
        ' "failures": []',
        "}",
        "]",
        "}",
    ]


def test_write_and_read(tmp_path: Path) -> None:
    """A written file reads back and replaces an older one, which is never half overwritten."""
    file, opened = tmp_path / "tuned.json", tmp_path / "opened.json"
    file.write_text("old")
    opened.hardlink_to(file)
    interchange.write(file, [record(2), record(1)])
    assert interchange.read(file) == (without_samples(record(2)), without_samples(record(1)))
    assert opened.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [opened, file]
    interchange.write(file, [])
    assert interchange.read(file) == ()


def _drop(*path: str | int) -> Callable[[Any], None]:
    def apply(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        del value[path[-1]]

    return apply


def _set(new: Any, *path: str | int) -> Callable[[Any], None]:
    def apply(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = new

    return apply


TIMING = ("records", 1, "measurements", 0)

KEY = ("records", 1, "key")

BROKEN = [
    (_set("other", "format"), "format: "),
    (_set(2, "version"), "version is 2, and this asmtune reads 1"),
    (_set(True, "version"), "version is True"),
    (_set({}, "records"), "records: "),
    (_set(1, "notes"), "unknown field 'notes'"),
    (_drop("records", 1, "winner"), "records[1]: field 'winner' is missing"),
    (_drop(*KEY, "device"), "records[1].key: field 'device' is missing"),
    (_set([1], *KEY, "shape", "M"), "records[1].key.shape.M: "),
    (_set({"a\nb": []}, *KEY, "shape"), "records[1].key.shape.a\\nb: "),
    (_set(4, *KEY, "dtypes", "a"), "records[1].key.dtypes.a: "),
    (_set(1, *KEY, "shape", "M"), "records[1].key: expected a key once"),
    (_set(4.0, "records", 1, "winner", "num_warps"), "records[1].winner.num_warps: "),
    (_set(99, "records", 1, "winner", "BLOCK_M"), "records[1].winner: "),
    (_set(-1, *TIMING, "p20_us"), "records[1].measurements[0].p20_us: "),
    *((_set(bad, *TIMING, "median_us"), "[0].median_us: ") for bad in ("9.5", True, 10**400, 0)),
    (_set([1, -2], *TIMING, "samples_us"), "measurements[0].samples_us[1]: "),
    (_set(5, "records", 1, "failures", 0, "kind"), "records[1].failures[0].kind: "),
]


def test_malformed_document() -> None:
    """A malformed document is refused in one line that names file, record and field."""
    for breaking, message in BROKEN:
        value = json.loads(text_of([record(1), record(2)]))
        breaking(value)
        with pytest.raises(InputError, match=r"; correct the file or export it again$") as caught:
            interchange.loads(json.dumps(value), "tuned.json")
        assert str(caught.value).startswith("tuned.json: ")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_cut_or_changed_text(data: st.DataObject) -> None:
    """A file cut off or changed anywhere loads or is refused as the user's error, nothing else."""
    text = bytearray(text_of([record(1), record(2)], samples=True).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[at] = data.draw(st.integers(0, 255))
    else:
        del text[at:]
    message = ""
    try:
        interchange.loads(bytes(text), "f.json")
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_any_json_is_read(encoding: str) -> None:
    """Whatever the order, spaces and encoding, the same records come."""
    records = [record(1, kernel="pkg.größe"), record(2)]
    written = text_of(records, samples=True)
    value = json.loads(written)
    backwards = dict(sorted(value.items(), reverse=True))
    for text in (
        written.replace("\n", "\r\n") + "\t\n",
        json.dumps(value, ensure_ascii=False),
        json.dumps(backwards, indent=3),
    ):
        assert interchange.loads(text.encode(encoding), "f.json") == (
            interchange.loads(written, "f.json")
        )
