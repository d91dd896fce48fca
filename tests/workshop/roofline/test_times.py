"""Where a point's time comes from, and what a prediction beside a measured time is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.core.config import Config
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.store.lookup import StoreLookup
from asmtune.workshop.roofline.subjects import is_sized
from asmtune.workshop.roofline.survey import Time, recorded, slowest, times_of
from tests.sample_kernels import scale, scale_problem

SLOW, FAST = Config({"B": 1, "A": 2}), Config({"A": 4, "B": 1})
MADE = Provenance("s", "t", "3.6.0", "2.13.0", "0.1.0", "570.1", "2025-03-04")


def verdict(config: Config, us: float) -> Verdict:
    """A config that can run, predicted to take so long."""
    return Verdict(config, True, predicted_us=us, bottleneck="DRAM")


def found(*times: tuple[Config, float]) -> StoreLookup:
    """A record that holds, with these timings."""
    timings = tuple(Measurement(config, us, us, us, ()) for config, us in times)
    record = TuneRecord(TuneKey("k", {}, {}, "d"), times[0][0], timings, MADE)
    return StoreLookup("hit", record, layer="shipped")


def test_measured_times_go_first() -> None:
    """Both of a record's times are taken as they are, whatever the order of a config's axes."""
    stored = found((Config({"B": 1, "A": 4}), 7.0), (Config({"A": 2, "B": 1}), 9.0))
    times = times_of([verdict(SLOW, 90.0), verdict(FAST, 10.0)], recorded(stored))
    assert times == [Time(9.0, "measured", "shipped"), Time(7.0, "measured", "shipped")]


def test_a_prediction_beside_a_measured_time_is_scaled() -> None:
    """The ratio of the predictions holds: 1.5 times the tuned config's 20 us, not 12 us."""
    times = times_of([verdict(SLOW, 12.0), verdict(FAST, 8.0)], recorded(found((FAST, 20.0))))
    assert times == [Time(30.0, "predicted", "roofline x 2.5"), Time(20.0, "measured", "shipped")]


def test_no_prediction_is_under_what_a_record_keeps() -> None:
    """A default that is not among the fastest kept is no faster than the slowest of them."""
    stored = found((FAST, 20.0), (Config({"A": 1}), 22.0))
    assert slowest(stored) == 22.0
    first, _ = times_of([verdict(SLOW, 7.0), verdict(FAST, 8.0)], recorded(stored), 22.0)
    assert first.us == 22.0
    assert first.how == "predicted"
    assert "no less than what the record keeps" in first.source


@given(st.floats(0.1, 1e5), st.floats(0.1, 1e5), st.floats(0.1, 1e5))
def test_scaling_keeps_the_ratio(slow: float, fast: float, us: float) -> None:
    """Whatever is predicted and measured, the speed-up is that of the two predictions."""
    before, after = times_of(
        [verdict(SLOW, slow), verdict(FAST, fast)], recorded(found((FAST, us)))
    )
    assert before.us / after.us == pytest.approx(slow / fast)


def test_records_that_do_not_hold_give_no_time() -> None:
    """A stale record's times, and those that are no time, are not taken."""
    stale = StoreLookup("stale", found((FAST, 20.0)).record, "source differs")
    assert recorded(stale) == recorded(StoreLookup("miss")) == {}
    assert slowest(stale) == 0.0
    assert recorded(found((FAST, 0.0))) == {}


BUCKET = TuneKey("mine.kernel", {"pow2(n)": 4096}, {"x_ptr": "fp16"}, "NVIDIA H200")


def key_of(shape: Shape) -> TuneKey:
    """The key of a launch: sizes up to the next power of two are one."""
    return replace(BUCKET, shape={"pow2(n)": 1 << (int(shape["n"]) - 1).bit_length()})


@pytest.mark.parametrize(
    ("key", "layer", "sizes", "sized"),
    [
        ({"n": 4000}, "store", (), True),
        ({"n": 4096}, "store", (), False),
        ({"pow2(n)": 4096}, "store", (4000,), False),
        ({"pow2(n)": 4096}, "shipped", (100, 4000), True),
        ({"pow2(n)": 4096}, "shipped", (100, 4000, 3000), False),
        ({"pow2(n)": 4096}, "shipped", (100, 3000), False),
    ],
)
def test_the_size_that_a_record_was_timed_at(
    key: dict[str, int], layer: str, sizes: tuple[int, ...], sized: bool
) -> None:
    """An exact key tells; of a bucket it is the module's one shape, if the record ships."""
    record = replace(found((FAST, 10.0)).record, key=replace(BUCKET, shape=key))  # type: ignore[type-var]
    module = KernelModule(
        "scale",
        scale,
        lambda: Space({"BLOCK": (64,)}),
        lambda shape, *_: scale_problem(int(shape["n"])),
        tuple({"n": size} for size in sizes),
        ("fp16",),
    )
    lookup = StoreLookup("hit", record, layer=layer)  # type: ignore[arg-type]
    assert is_sized(lookup, module, {"n": 4000}, key_of) == sized
    assert not is_sized(StoreLookup("miss"), module, {"n": 4000}, key_of)
