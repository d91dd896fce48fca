"""`on_miss="interpolate"`: a config for a new shape from the timings of other shapes."""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.predict.score import shape_model
from asmtune.predict.score.shape_features import ConfigColumns, Layout
from asmtune.predict.score.shape_model import ShapeModel, TimedShape
from asmtune.runtime.misses import background
from asmtune.runtime.misses.background import queue_of
from asmtune.runtime.misses.resolver import MissWarning, Resolver
from asmtune.store.database import Store
from asmtune.tuning.request import TuningRequest, provenance
from tests import tuning_support as support
from tests.dispatch.host import Host, described, miss

SIZES = tuple(1 << power for power in (10, 11, 12, 13, 14, 16, 17, 18))


def us_at(n: int, config: Config) -> float:
    """Blocks of 512 are best, and longer ones for the longest vectors; 8 warps always."""
    best = 512 if n < 131072 else 1024
    steps = abs(config.kwargs["BLOCK"].bit_length() - best.bit_length())
    return 5.0 * (1 + 0.3 * steps + 0.2 * abs(config.num_warps.bit_length() - 4))


def keep(host: Host, *sizes: int) -> None:
    """Store records of shapes, with the times of every config."""
    with Store.open(host.folder / "store.sqlite") as store:
        for n in sizes:
            at = miss(n)
            timed = [
                Measurement(config, us, us, us, (us,))
                for config in at.space.configs(n=n)
                for us in (us_at(n, config),)
            ]
            winner = min(timed, key=lambda one: one.median_us).config
            made = provenance(at.problem, at.space)
            store.save(TuneRecord(at.key, winner, tuple(timed), made))


def resolver(host: Host, **options: Any) -> Resolver:
    """A resolver that interpolates."""
    return Resolver(host.options(on_miss="interpolate", **options))


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[TuningRequest]:
    """Requests that were queued for the background, where nothing runs."""
    requests: list[TuningRequest] = []

    def later(request: TuningRequest, _work: Any) -> bool:
        requests.append(request)
        return True

    monkeypatch.setattr(background, "tune_later", later)
    return requests


def test_picks_between_tuned_shapes(host: Host) -> None:
    """A shape between tuned ones gets its best config at once, for good, and nothing is stored."""
    keep(host, *SIZES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice = resolver(host).resolve(miss(32768))
    assert described(choice) == ("interpolated", True, Config({"BLOCK": 512, "FLAW": 0}, 8))
    assert choice.origin == "8 tuned shapes"
    assert host.opened == []
    with Store.open(host.folder / "store.sqlite") as store:
        assert len(store.records()) == len(SIZES)


def test_an_exact_record_comes_first(host: Host) -> None:
    """A tuned key is not interpolated."""
    keep(host, *SIZES)
    assert resolver(host).resolve(miss(4096)).how == "known"


def test_a_wide_spread_is_said_and_tuned(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model is not sure its pick is launched, with one warning, until it is tuned."""
    monkeypatch.setattr(shape_model, "WIDE", -1.0)
    keep(host, *SIZES)
    held, done = threading.Event(), threading.Event()
    queue_of(support.DEVICE).put(lambda: held.wait(60))
    resolving = Resolver(host.options(on_miss="interpolate"), lambda *_: done.set())
    at = miss(32768)
    with pytest.warns(MissWarning, match=r"may lose .*tuned in the background") as told:
        first, again = [resolving.resolve(at) for _ in range(2)]
    assert described(again) == described(first)
    assert (first.how, first.final) == ("interpolated", False)
    assert len(told) == 1
    held.set()
    assert done.wait(60)
    assert described(resolving.resolve(at)) == ("tuned", True, support.BEST)


def test_too_few_shapes(host: Host, queued: list[TuningRequest]) -> None:
    """Without a model the heuristic goes on meanwhile, and the warning says what is missing."""
    keep(host, *SIZES[:2])
    with pytest.warns(MissWarning, match="2 shapes tuned, and 3 are needed; goes on with heur"):
        choice = resolver(host).resolve(miss(32768))
    assert described(choice) == ("heuristic", False, support.DEFAULT)
    assert [request.key.shape for request in queued] == [{"n": 32768}]


@pytest.mark.parametrize("other", ["source", "dtypes"])
def test_records_of_other_code_and_dtypes_do_not_count(host: Host, other: str) -> None:
    """Records of another source or another dtype are no data."""
    keep(host, *SIZES)
    with Store.open(host.folder / "store.sqlite") as store:
        records = store.records()
        store.clear()
        for record in records:
            stale = replace(record.provenance, source="another")
            dtypes = replace(record.key, dtypes=dict.fromkeys(record.key.dtypes, "fp64"))
            changed = {"provenance": stale} if other == "source" else {"key": dtypes}
            store.save(replace(record, **changed))
    with pytest.warns(MissWarning, match="nothing to interpolate from: 0 shapes tuned"):
        assert resolver(host).resolve(miss(32768), capturing=True).how == "heuristic"


def test_outputs_must_be_checked(host: Host, queued: list[TuningRequest]) -> None:
    """With bits="equal" no unchecked config is launched: the default is, until it is tuned."""
    keep(host, *SIZES)
    choice = resolver(host, choices={"bits": "equal"}).resolve(miss(32768))
    assert described(choice) == ("heuristic", False, support.DEFAULT)
    assert [request.key.shape for request in queued] == [{"n": 32768}]


def test_capture_takes_the_pick(host: Host) -> None:
    """While a graph is captured a shape gets its interpolated config, and nothing is tuned."""
    keep(host, *SIZES)
    choice = resolver(host).resolve(miss(32768), capturing=True)
    assert choice.how == "interpolated"


@pytest.mark.usefixtures("queued")
def test_a_model_is_read_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second new shape of a kernel fits nothing anew."""
    keep(host, *SIZES)
    resolving = resolver(host)
    resolving.resolve(miss(32768))
    monkeypatch.setattr(ShapeModel, "of", None)
    assert resolving.resolve(miss(1 << 19)).how == "interpolated"


def test_a_fit_during_which_a_shape_is_tuned_is_not_kept(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of records that are outdated when it is ready serves its own miss alone."""
    keep(host, *SIZES)
    resolving, fits = resolver(host), []
    real = ShapeModel.of

    def fit(timed: Any, *others: Any) -> Any:
        fits.append(len(timed))
        if len(fits) == 1:  # the background thread has tuned another shape
            keep(host, 1 << 20)
            resolving._interpolator.forget()
        return real(timed, *others)

    monkeypatch.setattr(ShapeModel, "of", fit)
    for size in (32768, 1 << 19):
        resolving.resolve(miss(size), capturing=True)
    assert fits == [len(SIZES), len(SIZES) + 1]


def fit(*sizes: int) -> ShapeModel:
    """A model of vectors of these lengths."""
    timed = [
        TimedShape({"n": n}, {c: us_at(n, c) for c in support.space().configs(n=n)}) for n in sizes
    ]
    model = ShapeModel.of(timed, 132, {"n": 4096}, lambda c: -(-4096 // c.kwargs["BLOCK"]))
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("tuned", "n", "wide"),
    [
        (SIZES[:3], 1536, True),
        (SIZES, 32767, True),
        ((*SIZES, 3001), 5001, True),
        ((*SIZES, 3001, 9001), 5001, False),
        (SIZES, 32768, False),
    ],
)
def test_sure_only_where_shapes_confirm_it(tuned: tuple[int, ...], n: int, wide: bool) -> None:
    """Three shapes confirm too little, and so does one whose code is alike."""
    pick = fit(*tuned).pick({"n": n})
    assert pick is not None
    assert pick.is_wide == wide


def test_what_a_launch_is_expected_to_cost_without_timings() -> None:
    """Padding, a last wave, few warps on an SM, and loads of single elements each cost time."""
    configs = [Config({"BLOCK": 512}, warps) for warps in (1, 4, 16, 32)]
    table, layout = ConfigColumns(configs), Layout({"BLOCK": "n"})

    def base(n: int) -> list[float]:
        every = np.arange(len(configs))
        return table.quantities(layout, {"n": n}, 132, every).base.tolist()

    few, many, single = base(512 * 66), base(512 * 132 * 16), base(512 * 132 * 16 - 1)
    tail = base(512 * (132 * 16 + 1))
    assert few[0] > few[1] > few[2] == few[3]
    assert many == [0.0] * len(many) < tail
    assert single[0] > single[1] > single[2] > single[3] > 0
    assert base(512 * 132 * 16 - 256)[0] > 0


def test_sizes_with_the_code_that_loads_vectors() -> None:
    """16 divides them, or they are 1, or they only multiply the programs."""
    layout = Layout({"BLOCK": "n"}, programs=frozenset({"batch"}))
    sizes = {"batch": 7, "one": 1, "n": 48, "k": 1000, "d": 8}
    assert layout.aligned(sizes).tolist() == [1, 1, 1, 0, 0]


def test_a_pick_loads_no_learning_library() -> None:
    """A pick needs NumPy alone."""
    loaded = "sklearn" in sys.modules
    model = fit(*SIZES)
    assert model.fit.layout.tiles == {"BLOCK": "n"}
    assert model.pick({"n": 32768}) is not None
    assert model.pick({"n": 32768}, lambda _config: False) is None
    assert ("sklearn" in sys.modules) == loaded
