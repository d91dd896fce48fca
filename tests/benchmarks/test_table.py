"""The table of `benchmarks.kernels`, with a race whose times are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.base.errors import MeasureError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.kernels import attention, matmul
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.statistics import summarise
from benchmarks.harness import Ways
from benchmarks.kernels import __main__ as command
from benchmarks.kernels.__main__ import line
from benchmarks.kernels.document import _kernel
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.entry import Entry
from benchmarks.kernels.identities import identities, source_of
from benchmarks.kernels.plan import Place, Plan
from benchmarks.kernels.rows import Timer, _config, summary
from benchmarks.kernels.table import Table
from tests.kernels.accuracy import doubled as widened

N = 1 << 20
SHAPE = {"n": N}
ENTRY = Entry(
    vendor_name="torch.add",
    vendor=lambda given: lambda: torch.add(given["x"], given["y"]),
    group="element-wise",
    flops=lambda shape: float(shape["n"]),
    rates={"fp32": "fp32"},
)


def adding(offset: float) -> Any:
    """A kernel module whose public function is off by so much; named as a real one."""
    return SimpleNamespace(
        __name__="asmtune.kernels.vector_add",
        inputs=lambda shape, *_: dict.fromkeys("xy", torch.ones(shape["n"])),
        vector_add=lambda x, y: x + y + offset,
        baseline=lambda x, y: x + y,
        DEFAULT=Config({"BLOCK": 1024}),
        _tuned=SimpleNamespace(best_config=Config({"BLOCK": 512})),
    )


def taking(launches: Ways, *us: float) -> dict[str, Measurement | Failure]:
    """Give each launch a time."""
    return {
        name: summarise(Config({}), [time] * 20) for name, time in zip(launches, us, strict=True)
    }


class KnownTimer(Timer):
    """Ours takes 10 us, the vendor 20, the baseline fails; the launches are run once each."""

    def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
        assert [tuple(launch().shape) for launch in launches.values()] == [(N,)] * 3
        ours = summarise(Config({}), [10.0] * 98 + [10.5, 11.0])
        vendor = summarise(Config({}), [20.0] * 100)
        failed = Failure("launch", "cuda", "no room")
        return dict(zip(launches, (ours, vendor, failed), strict=True))


def row(offset: float, target: Target | None) -> dict[str, Any]:
    timer = KnownTimer(TimingPolicy(), target, device="cpu")
    return timer.row(adding(offset), ENTRY, SHAPE, "fp32")


def test_figures_of_a_row(target: Target) -> None:
    """Percentiles, speedups, bandwidth and FLOP/s, with their shares of the machine's limits."""
    found = row(0.0, target)
    assert found["ours"] == {"p50_us": 10.0, "p90_us": 10.0, "p99_us": 10.505, "samples": 100}
    assert found["over_vendor"] == 2.0
    assert found["baseline"] == {"failed": "no room"}
    assert "over_baseline" not in found
    assert found["bytes"] == 3 * 4 * N
    assert found["bytes_per_s"] == pytest.approx(12 * N / 10e-6)
    assert found["share_of_dram"] == pytest.approx(12 * N / 10e-6 / 4.8e12)
    assert found["share_of_flops"] == pytest.approx(N / 10e-6 / 6.7e13)
    assert found["config"] == {"BLOCK": 512, "num_warps": 4, "num_stages": 3}
    assert found["error_by_tolerance"] == found["vendor_error_by_tolerance"] == 0.0
    assert "vector_add" in line(found)
    assert " 2.00 " in line(found)


def test_the_vendor_is_compared_with_float64_too(target: Target) -> None:
    """A row says how wrong the vendor's results are, and nothing where they are others."""

    class Untimed(Timer):
        def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
            return dict.fromkeys(launches, Failure("launch", "cuda", "not timed"))

    def found(result: Callable[[Any], Any]) -> float | None:
        entry = replace(ENTRY, vendor=lambda given: lambda: result(given))
        timer = Untimed(TimingPolicy(), target, device="cpu")
        return timer.row(adding(0.0), entry, SHAPE, "fp32").get("vendor_error_by_tolerance")

    near = found(lambda given: given["x"] + given["y"] + 1e-6)
    assert near is not None
    assert 0.0 < near < 1.0
    assert found(lambda given: given["x"][:3]) is None
    assert found(lambda given: (None, given["x"])) is None
    assert found(lambda given: given["z"]) is None


@pytest.mark.slow
def test_further_competitors(target: Target) -> None:
    """What an entry names besides the vendor is launched, timed, and averaged by its own name."""
    made: list[float] = []

    def doubled(given: Any) -> Callable[[], torch.Tensor]:
        made.append(float(given["x"].sum()))
        return lambda: 2 * given["x"]

    class FourTimer(Timer):
        def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
            assert [float(launch()[0]) for launch in launches.values()] == [2.0] * 4
            return taking(launches, 10.0, 20.0, 5.0, 80.0)

    timer = FourTimer(TimingPolicy(), target, device="cpu")
    found = timer.row(adding(0.0), replace(ENTRY, others={"steps": doubled}), SHAPE, "fp32")
    assert made == [N]
    assert found["steps"]["p50_us"] == 80.0
    assert (found["over_vendor"], found["over_baseline"], found["over_steps"]) == (2.0, 0.5, 8.0)
    expected = {"geometric_mean": 4.0, "least": 2.0, "rows": 2}
    means = summary([found, {**found, "over_steps": 2.0}])["over_others_by_kernel"]
    assert means == {"vector_add": {"steps": expected}}
    assert summary([row(0.0, target)])["over_others_by_kernel"] == {}


def test_a_function_that_may_call_its_vendor() -> None:
    """It is timed without the vendor and as it is called; both are checked, and both are shown."""
    made: list[bool] = []

    def public(x: torch.Tensor, y: torch.Tensor, *, vendor: bool = True) -> torch.Tensor:
        made.append(vendor)
        return x + y + (0.0 if vendor else offset)

    class FourTimer(Timer):
        def _race(self, launches: Ways) -> dict[str, Measurement | Failure]:
            for launch in launches.values():
                launch()
            return taking(launches, 10.0, 8.0, 5.0, 7.5)

    offset = 0.0
    module = adding(0.0)
    module.vector_add = public
    timer = FourTimer(TimingPolicy(), None, device="cpu")
    found = timer.row(module, ENTRY, SHAPE, "fp32")
    assert made == [True, False, False, True]  # twice checked, then in the race
    assert (found["over_vendor"], found["called_over_vendor"]) == (0.8, 1.067)
    assert "over_called" not in found
    assert " 0.80 alone, 1.07 as called" in line(found)
    assert summary([found])["over_others_by_kernel"] == {}
    heads, _, cells, *_ = _kernel("vector_add", [found]).splitlines()[2:]
    assert "| over vendor, ours alone | over vendor, as called |" in heads
    assert "| 0.80 | 1.07 |" in cells
    offset = 1e-3
    assert timer.row(module, ENTRY, SHAPE, "fp32")["wrong"] > 1


def test_expected_results_of_an_entry(target: Target) -> None:
    """Where an entry computes what is expected, the baseline is timed, and not run in float64."""
    dtypes: list[torch.dtype] = []

    def baseline(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        dtypes.append(x.dtype)
        return x + y

    module = adding(0.0)
    module.baseline = baseline
    timer = KnownTimer(TimingPolicy(), target, device="cpu")
    found = timer.row(module, replace(ENTRY, exact=lambda x, y: x + y), SHAPE, "fp32")
    assert found["error_by_tolerance"] == 0.0
    assert dtypes == [torch.float32]
    assert (
        timer.row(module, replace(ENTRY, exact=lambda x, y: x + y + 1.0), SHAPE, "fp32")["wrong"]
        > 1
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_expected_by_key_heads(causal: bool) -> None:
    """Attention's entry expects what its baseline computes of all heads at once."""
    shape = {"B": 2, "H": 6, "KV": 3, "M": 17, "N": 29, "D": 16, "causal": int(causal)}
    given = widened(attention.inputs(shape, "fp16", "cpu"))
    exact = ENTRIES["attention"].exact
    assert exact is not None
    torch.testing.assert_close(exact(**given), attention.baseline(**given))


def test_a_wrong_kernel_is_not_timed(target: Target) -> None:
    """A result that is off stops the timing, and stands in the row and in the summary."""
    found = row(1e-3, target)
    assert found["wrong"] > 1
    assert "ours" not in found
    assert "WRONG" in line(found)
    assert summary([found])["wrong"] == [f"vector_add n={N} fp32"]
    assert summary([found])["over_vendor_by_kernel"] == {}


@pytest.mark.parametrize(
    ("kernel", "count"),
    [("matmul", 60), ("attention", 30), ("attention_backward", 11)],
)
def test_wide_rows(kernel: str, count: int) -> None:
    """The wide plan has distinct problems, none of them shipped for, which build and have keys."""
    places = Plan(name="wide").places([kernel])
    keys = [{repr(key) for key, _ in identities(place)} for place in places]
    assert len(places) == len({place.name for place in places}) == count
    assert all(keys)
    assert len(set().union(*keys)) > count // 2


def test_plans() -> None:
    """A plan has the first row of each kernel before other rows, and no row twice.

    "quick" has all shapes with the first dtype, and the first shape with the others; "wide" has
    shapes of its own, with the first dtype or those asked for.
    """
    full = Plan().places(["vector_add", "softmax"])
    assert [place.kernel for place in full[:3]] == ["vector_add", "softmax", "vector_add"]
    assert len({place.name for place in full}) == len(full) == 3 * 4 + 3 * 5
    quick = Plan(name="quick").places(["softmax"])
    assert [place.dtype for place in quick] == ["fp32"] * 5 + ["fp16", "bf16"]
    assert quick[5].shape == quick[6].shape == quick[0].shape
    wide, other = (
        Plan(name="wide", dtypes=dtypes).places(["matmul", "softmax"]) for dtypes in ((), ["bf16"])
    )
    assert {(place.kernel, place.dtype) for place in wide} == {("matmul", "fp16")}
    assert [replace(place, dtype="bf16") for place in wide] == other


PLACE = Place("vector_add", {"n": 1 << 26}, "fp32")


class FailingTimer(Timer):
    """Every row fails."""

    def row(self, *_: Any) -> dict[str, Any]:
        """Raise what it was given."""
        raise self.error  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [RuntimeError("no kernel image"), MeasureError("no config")])
def test_a_row_that_fails_stops_no_other(error: Exception) -> None:
    """What the vendor, CUDA or tuning raises stands in its row."""
    timer = FailingTimer(TimingPolicy(), None)
    object.__setattr__(timer, "error", error)
    (found,) = command.rows([PLACE], timer, "rows", None)
    assert str(error) in found["failed"]
    assert "ours" not in found
    assert "FAILED" in line(found)


def test_what_is_known_is_tuned_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retuned key is tuned with all alternatives, those without Gluon included, and once."""
    monkeypatch.setattr("sys.argv", ["kernels", "matmul", "--retune"])
    tuners = (matmul._tuned, matmul._beside_vendor, matmul._beside_gluon, matmul._alone)
    before = [tuner.options for tuner in tuners]
    try:
        command.prepare(command.arguments())
        forced = [tuner.options.choices.get("force") for tuner in tuners]
        assert forced == [True, True, False, False]
    finally:
        for tuner, options in zip(tuners, before, strict=True):
            tuner.reconfigure(options)


def test_a_row_has_the_config_that_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tuners of a kernel it is the one of this row, not what an earlier row has left."""
    earlier, launched, alone = (Config({"BLOCK": 2**n}) for n in range(3))
    whole, beside, other = (SimpleNamespace(best_config=None) for _ in range(3))
    module: Any = SimpleNamespace(_tuned=whole, _beside_vendor=beside)
    monkeypatch.setattr("benchmarks.kernels.rows.autotuners", lambda _: [other, whole])
    assert _config(module, []) == {}
    whole.best_config = earlier
    assert _config(module, []) == earlier.to_dict()
    beside.best_config, other.best_config = launched, alone
    assert _config(module, [earlier]) == launched.to_dict()
    assert _config(module, [earlier, launched, alone]) == earlier.to_dict()


def test_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    """No row is begun after the time that a run may take, and a line says how to go on."""
    assert list(command.rows([PLACE], FailingTimer(TimingPolicy(), None), "rows", 0.0)) == []
    assert "stopped after 0 of 1: --resume goes on" in capsys.readouterr().out


def timed(place: Place, **changes: Any) -> dict[str, Any]:
    """A row as the file has it."""
    made = {"kernel": place.kernel, "shape": dict(place.shape), "dtype": place.dtype}
    return {
        **made,
        "group": "element-wise",
        "ours": {},
        "source": source_of(place.kernel),
    } | changes


def test_resuming_keeps_what_holds(tmp_path: Path) -> None:
    """Rows of today's source are kept with their run; others are made anew, in their places."""
    places = Plan().places(["vector_add"])
    first = Table()
    first.begin()
    first.add(timed(places[0]))
    first.add(timed(places[1], source="older"))
    wrong = timed(places[2], wrong=2.0)
    del wrong["ours"]
    first.add(wrong)
    file = tmp_path / "kernels.json"
    first.write(file, places)
    again = Table.resumed(file)
    assert list(again.rows) == [places[0].name]
    again.begin()
    again.add(timed(places[1]))
    again.write(file, places)
    resumed = Table.resumed(file)
    assert {name: row["run"] for name, row in resumed.rows.items()} == {
        places[0].name: 0,
        places[1].name: 1,
    }
    assert len(resumed.runs) == 2
