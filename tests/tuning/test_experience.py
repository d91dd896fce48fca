"""What other shapes of a kernel teach a search."""

from __future__ import annotations

from dataclasses import replace

from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.tuning.initial_state import own_seeds, seeds_of

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
    assert seeds_of([far, near], KEY) == tuple(map(config, (4, 5, 1, 2)))


def test_what_is_not_related_teaches_nothing() -> None:
    """Another kernel, dtype or device gives no seed."""
    sound = record({"M": 2048, "N": 1024}, {1: 1.0, 2: 9.0})
    others = [
        replace(sound, key=replace(sound.key, kernel="m.other")),
        replace(sound, key=replace(sound.key, dtypes={"a": "bf16"})),
        replace(sound, key=replace(sound.key, device="NVIDIA H100")),
    ]
    assert seeds_of(others, KEY) == ()


def test_another_device_gives_seeds() -> None:
    """The same key of the nearest device goes first, with few seeds beside those of this one."""
    h100 = "NVIDIA H100 80GB HBM3"
    times = {1: 1.0, 2: 1.1, 3: 1.2, 4: 99.0}
    same = record({"M": 1024, "N": 1024}, times)
    same = replace(same, key=replace(same.key, device=h100))
    further = replace(same, key=replace(same.key, device="NVIDIA L4"), winner=config(9))
    own = record({"M": 2048, "N": 1024}, {5: 1.0, 6: 1.1})
    told = seeds_of([own, further, same], KEY, load_target("H200"))
    assert told == tuple(map(config, (1, 2, 3, 5, 6)))
    alone = seeds_of([further, same], KEY, load_target("H200"))
    assert alone == tuple(map(config, (1, 2, 3, 4, 9)))


def test_a_stale_record_of_the_key_is_a_seed() -> None:
    """The space's own configs that equal seeds come behind those of hand-edited IR."""
    own = record({"M": 1024, "N": 1024}, {5: 1.0, 99: 1.1})
    found = seeds_of([record({"M": 8, "N": 8}, {6: 1.0}), own], KEY)
    assert found == tuple(map(config, (5, 99, 6)))
    edited = config(7).with_override("a.ttgir")
    space = [*map(config, range(9)), edited]
    assert own_seeds(space, found) == (edited, config(5), config(6))
