"""Every kernel has results and configs for an H200, of the source that it has today."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import triton

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store import interchange
from asmtune.store.codec import key_digest
from asmtune.store.interchange import abridged, shipped_lookup
from asmtune.store.lookup import StoreLookup, differences
from benchmarks.kernels.identities import DEVICE, OURS, Identity, identities
from benchmarks.kernels.plan import Place, Plan
from benchmarks.kernels.ship import (
    CACHE,
    FASTEST,
    current,
    file_of,
    knows_alternatives,
    launched,
    slower,
)
from benchmarks.kernels.table import FILE, is_current
from tests.kernels.accuracy import KERNELS

ROOT = Path(__file__).parents[2]
NEEDED = Plan(name="quick")
MOST_BYTES = 1 << 20

HOW = (
    "on an H200: python -m benchmarks.kernels {0} --plan quick --resume --store kernels.sqlite, "
    "then python -m benchmarks.kernels.ship {0} --store kernels.sqlite, then "
    "the tables, as cache/README.md says"
)


@cache
def launches(name: str) -> dict[str, list[Identity]]:
    """What a kernel's rows launch."""
    return {place.name: identities(place) for place in NEEDED.places([name])}


@pytest.fixture(autouse=True)
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has tuned nothing."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "cache"))


def serves(answer: StoreLookup) -> bool:
    """Whether a record is used here: under another Triton its fastest are timed first."""
    return answer.outcome == "hit" or answer.is_candidate


def skip_changed_gluon(stale: list[str]) -> None:
    """Skip where another Triton's functions, which Gluon's kernels import by name, have changed."""
    if stale and all("source differs" in one and "triton differs" in one for one in stale):
        pytest.skip(f"Triton {triton.__version__} has other functions of Gluon in these kernels")


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_there(name: str) -> None:
    """A kernel has its rows in the committed table, timed with the source that it has now."""
    found = json.loads(FILE.read_text())["rows"]
    timed = {Place.of(row).name for row in found if row["kernel"] == name and is_current(row)}
    missing = [place.name for place in NEEDED.places([name]) if place.name not in timed]
    assert missing == [], f"not in {FILE.name}, or of an older {name}; {HOW.format(name)}"


@pytest.mark.parametrize("name", KERNELS)
def test_configs_are_shipped(name: str) -> None:
    """Each key that a kernel's rows launch has a config in `cache/` that holds today.

    Those where the vendor is faster may have none, and have none without the vendor's time.
    """
    beaten, answers = slower(name, DEVICE), {}
    for place, made in launches(name).items():
        for key, expected in made:
            answer = shipped_lookup(key, expected)
            if answer.record is None and key_digest(key) in beaten:
                continue
            assert (
                answer.record is None
                or key_digest(key) not in beaten
                or (knows_alternatives(answer.record))
            )
            answers[place] = answer
    assert answers
    missing = {place: a.detail or a.outcome for place, a in answers.items() if not serves(a)}
    skip_changed_gluon([*missing.values()])
    assert missing == {}, f"not shipped, or stale; {HOW.format(name)}"


def test_files_are_of_kernels_and_small() -> None:
    """A file of `cache/` is of a kernel and a device, and all together stay reviewable."""
    devices = (DEVICE, "NVIDIA H100 80GB HBM3")
    named = {file_of(name, device=device).name: device for name in KERNELS for device in devices}
    files = list(CACHE.glob("*.json"))
    assert {file.name for file in files} <= named.keys()
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for file in files:
        for record in interchange.read(file):
            assert record.key.device == named[file.name]
            assert len(record.measurements) <= FASTEST


@pytest.mark.parametrize("file", sorted(CACHE.glob("*-h100.json")), ids=lambda file: file.stem)
def test_what_an_h100_is_shipped_holds_today(file: Path) -> None:
    """Each record of an H100 is one that a kernel's public function launches, and is current."""
    name = file.stem.rpartition("-")[0]
    records = interchange.read(file)
    assert records
    there = records[0].provenance.triton
    found = launched(name, Plan(), records[0].key.device).items()
    wanted = {digest: (key, replace(now, triton=there)) for digest, (key, now) in found}
    pairs = ((r.provenance, wanted[key_digest(r.key)][1]) for r in records)
    stale = ["; ".join(differences(*pair)) for pair in pairs]
    if there != triton.__version__:
        skip_changed_gluon([f"triton differs; {one}" for one in stale if one])
    assert len(list(current(records, wanted))) == len(records)


@pytest.mark.parametrize("file", sorted(CACHE.glob("*.json")), ids=lambda file: file.stem)
def test_a_winner_of_ours_has_its_configs(file: Path) -> None:
    """Where another kernel of ours won, its own config is shipped: else the first launch tunes."""
    records = {key_digest(record.key): record for record in interchange.read(file)}
    name, device = file.stem.rpartition("-")[0], next(iter(records.values())).key.device
    missing = {}
    for place in Plan().places([name]):
        made = [key_digest(key) for key, _ in identities(place, device)]
        winners = {records[digest].winner.alternative for digest in made if digest in records}
        for key, expected in identities(place, device, inside=winners & set(OURS)):
            if key_digest(key) not in made and not serves(answer := shipped_lookup(key, expected)):
                missing[place.name, key.kernel] = answer.detail
    skip_changed_gluon([*missing.values()])
    assert missing == {}, f"ship {name} from the store in which it was tuned"


@pytest.mark.parametrize("name", KERNELS)
def test_a_key_has_one_space(name: str) -> None:
    """Launches of one key search one space: else each would find the other's record stale."""
    spaces: dict[str, set[str]] = {}
    for made in launches(name).values():
        for key, expected in made:
            spaces.setdefault(key_digest(key), set()).add(expected.space)
    assert spaces
    assert [digest for digest, found in spaces.items() if len(found) > 1] == []


def test_abridged_keeps_the_winner() -> None:
    """The fastest are kept, and the winner; times have nanoseconds."""
    configs = [Config({"BLOCK": 2**n}) for n in range(5)]
    timed = [Measurement(c, n + 1.00049, n + 0.5, n + 2, (1.0,)) for n, c in enumerate(configs)]
    (key, expected), *_ = identities(NEEDED.places(["vector_add"])[0])
    made = TuneRecord(key, configs[4], tuple(reversed(timed)), expected)
    kept = abridged(made, 3)
    assert [m.config for m in kept.measurements] == [configs[0], configs[1], configs[4]]
    assert [m.median_us for m in kept.measurements] == [1.0, 2.0, 5.0]
    assert kept.median_us == 5.0
    assert not any(m.samples_us for m in kept.measurements)
    assert [m.config for m in abridged(made, 1).measurements] == [configs[4]]


def test_abridged_keeps_what_may_be_called_in_the_winners_place() -> None:
    """Where the Gluon kernel is left out, the vendor's and the plain config's times are known."""
    best, other = (Config({"BLOCK": block}) for block in (64, 128))
    won, vendor = (best.with_alternative(name) for name in ("gluon", "cudnn"))
    times = {won: 1.0, other: 2.0, vendor: 3.0, best: 4.0}
    timed = tuple(Measurement(c, us, us, us, ()) for c, us in times.items())
    (key, expected), *_ = identities(NEEDED.places(["vector_add"])[0])
    kept = abridged(TuneRecord(key, won, timed, expected), 1)
    assert [m.config for m in kept.measurements] == [won, vendor, best]
    assert kept.winner_among(["cudnn"]) == vendor
    assert kept.winner_among([]) == best
