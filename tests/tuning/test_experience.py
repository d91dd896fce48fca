"""What other shapes of a kernel teach a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store.database import Store
from asmtune.store.interchange import KeyedConfigs
from asmtune.store.lookup import EarlierOutcomes
from asmtune.tuning.initial_state import experience, known_to
from tests.tuning_support import BEST, HostMachine, request, space, workshop

KEY = TuneKey("m.matmul", {"M": 1024, "N": 1024}, {"a": "fp16"}, "NVIDIA H200")
MADE = Provenance("s", "p", "3.6.0", "2.11", "0.1", "580", "2026-01-01")


def config(index: int) -> Config:
    return Config({"B": index})


def record(
    shape: dict[str, object], times: dict[int, float], failed: tuple[int, ...] = ()
) -> TuneRecord:
    measured = tuple(Measurement(config(i), us, us, us, (us,)) for i, us in times.items())
    failures = tuple((config(i), Failure("ptxas", "registers", "few")) for i in failed)
    winner = config(min(times, key=lambda i: times[i]))
    return TuneRecord(replace(KEY, shape=shape), winner, measured, MADE, failures)


def test_the_nearest_shape_goes_first() -> None:
    """Seeds are winners and runners-up, those of the most similar shape before the others."""
    far = record({"M": 64, "N": 1024}, {1: 1.0, 2: 1.1, 3: 9.0})
    near = record({"M": 2048, "N": 1024}, {4: 1.0, 5: 1.2, 1: 1.3})
    assert experience([far, near], KEY).seeds == tuple(map(config, (4, 5, 1, 2)))


def test_what_is_not_related_teaches_nothing() -> None:
    """Another kernel, dtype or device, and the key itself, give no seed."""
    sound = record({"M": 2048, "N": 1024}, {1: 1.0, 2: 9.0})
    others = [
        replace(sound, key=replace(sound.key, kernel="m.other")),
        replace(sound, key=replace(sound.key, dtypes={"a": "bf16"})),
        replace(sound, key=replace(sound.key, device="NVIDIA H100")),
        replace(sound, key=KEY),
    ]
    assert experience(others, KEY).seeds == ()


def test_another_device_gives_seeds() -> None:
    """The same key of the nearest device goes first, with few seeds beside those of this one."""
    h100 = "NVIDIA H100 80GB HBM3"
    times = {1: 1.0, 2: 1.1, 3: 1.2, 4: 99.0}
    same = record({"M": 1024, "N": 1024}, times)
    same = replace(same, key=replace(same.key, device=h100))
    further = replace(same, key=replace(same.key, device="NVIDIA L4"), winner=config(9))
    own = record({"M": 2048, "N": 1024}, {5: 1.0, 6: 1.1})
    told = experience([own, further, same], KEY, load_target("H200"))
    assert told.seeds == tuple(map(config, (1, 2, 3, 5, 6)))
    alone = experience([further, same], KEY, load_target("H200"))
    assert alone.seeds == tuple(map(config, (1, 2, 3, 4, 9)))


def test_imported_seeds() -> None:
    """Imported configs come by device, dtypes and shape, each once, and only if the space has one.

    Values that the space has not, such as an engine's own option, do not count.
    """
    entries = [
        KeyedConfigs(replace(KEY, device="NVIDIA H100"), (config(1),)),
        KeyedConfigs(replace(KEY, dtypes={"a": "fp32"}), (config(2),)),
        KeyedConfigs(replace(KEY, shape={"M": 8, "N": 8}), (config(3), config(99))),
        KeyedConfigs(replace(KEY, dtypes={}, device="NVIDIA H200"), (config(4), config(3))),
        KeyedConfigs(KEY, (Config({"B": 5, "SPLIT_K": 1}),)),
    ]
    space = list(map(config, range(9)))
    near = record({"M": 2048, "N": 1024}, {6: 1.0})
    found = experience([near], KEY, imported=entries)
    known = known_to(space, EarlierOutcomes(), found)[0]
    assert known.seeds == tuple(map(config, (4, 3, 5, 2, 1, 6)))


@pytest.mark.slow(seconds=6)
def test_imported_seeds_are_timed_first(tmp_path: Path) -> None:
    """A search compiles and times an imported config in its first batch, and stores a record."""
    seed = Config({"BLOCK": 2048, "FLAW": 0}, num_warps=1)
    machine = HostMachine()
    tuner = workshop(tmp_path / "cache", machine, "quick")
    asked = request(tuner, searched=space(warps=(1, 2, 4, 8, 16)))
    with Store.open(tmp_path / "cache" / "store.sqlite") as store:
        store.save_seeds([KeyedConfigs(asked.key, (seed,))])
    result = tuner.resolve(asked)
    assert seed in list(dict.fromkeys(machine.timed))[:16]  # last but two without the import
    assert result.record.winner == BEST
    trace = (tmp_path / "cache" / "runs" / f"{result.run}.jsonl").read_text()
    assert "imported configs that are in the space: 1" in trace
