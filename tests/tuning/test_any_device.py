"""Tuning on every device that Triton runs on: described, derived, or nothing known of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from asmtune.base.errors import CompileError, ForeignWriteError, MeasureError, UnreadableError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware import driver, shipped
from asmtune.core.hardware.shipped import TargetWarning, load_target, match_device
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.predict.prune.front import ProblemAnalysis, failed
from asmtune.runtime.decorator import asm_autotune
from asmtune.tuning import unranked
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.session import Session
from asmtune.tuning.tuner import Tuner
from asmtune.tuning.unranked import UnrankedWarning
from tests.driver_tables import DEVICES, OTHERS, attributes, pretend
from tests.tuning_support import BEST, DEFAULT, HostMachine, add, problem, resolved, space, usual_us
from tests.tuning_support import workshop as ranked_workshop
from tests.workload import foreign_kernels
from tests.workload.workload_lowering import I64, lower, pointer

UNKNOWN = "Voodoo 2"


@pytest.fixture(autouse=True)
def _no_device_is_remembered() -> Iterator[None]:
    """Ask the driver of each test, and warn in each."""
    unranked._notified.clear()
    shipped._warned.clear()
    yield
    driver.read_attributes.cache_clear()


def test_no_launch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decorated launch is tuned on every device, though no file describes it."""
    tuned: list[str] = []

    def run(self: Session, request: TuningRequest) -> TuningResult:
        tuned.append(self.funnel.target.arch)
        timing = Measurement(BEST, 2.0, 1.9, 2.1, (2.0,))
        record = TuneRecord(request.key, BEST, (timing,), request.expected)
        return TuningResult(request, "tuned", record)

    launched: list[int] = []
    monkeypatch.setattr(add, "run", lambda *_, **keywords: launched.append(keywords["BLOCK"]))
    monkeypatch.setattr(Session, "run", run)
    monkeypatch.setattr(shipped, "shipped_target", lambda _: None)
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    x, names = torch.ones(64), [*DEVICES, *OTHERS]
    for name in names:
        pretend(name, monkeypatch)
        monkeypatch.setattr("asmtune.measure.timing.nvml.device_name", lambda name=name: name)
        kernel = asm_autotune(space=space(), key=["n"], skip_tuning_below_us=None)(add)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TargetWarning)
            kernel[(1,)](x, x, x, 64)
    capabilities = [{**DEVICES, **OTHERS}[name][1] for name in names]
    assert tuned == [f"sm_{capability.replace('.', '')}" for capability in capabilities]
    assert launched == [BEST.kwargs["BLOCK"]] * len(names)


def test_derived_targets_are_near_the_shipped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver and the architecture's rates give what the vendor's documents give."""
    exact = ("arch", "sms", "clock_hz", "max_warps_per_sm", "max_blocks_per_sm")
    exact += ("shared_bytes_per_sm", "shared_bytes_per_block", "registers_per_sm")
    # Less than their architecture's rates.
    cut = ("NVIDIA H20", "NVIDIA H100 NVL", "NVIDIA L40", "NVIDIA A10G")
    wrong: list[tuple[str, str]] = []
    for name in DEVICES:
        pretend(name, monkeypatch)
        described, is_cut = match_device(name), name in cut
        assert described is shipped.shipped_target(name)
        with monkeypatch.context() as unshipped:
            unshipped.setattr(shipped, "shipped_target", lambda _: None)
            derived = match_device(name)
        near = {"dram_bytes_per_s": 0.13, "l2_bytes_per_s": 0.25, **dict.fromkeys(exact, 0.0)}
        for field, rel in near.items():
            found, expected = getattr(derived, field), getattr(described, field)
            same = (
                found == expected
                if isinstance(found, str)
                else math.isclose(found, expected, rel_tol=rel)
            )
            wrong += [] if same else [(name, field)]
        for dtype, rate in described.tensor_flops_per_s.items():
            least = 0.0 if is_cut or dtype == "fp64" else 0.8
            wrong += [] if derived.tensor_flops_per_s[dtype] >= least * rate else [(name, dtype)]
        kinds = [derived.figure(name).kind for name in ("sms", "max_registers_per_thread")]
        wrong += [] if kinds == ["driver", "architecture"] else [(name, "kinds")]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", {}, {"sms": 16, "l2_bytes": 6.25 * 2**20}),
        (
            "NVIDIA GeForce RTX 3080",
            {"sms": 70, "bus_bits": 384},
            {"name": "NVIDIA GeForce RTX 3080", "sms": 70},
        ),
        ("NVIDIA A30", {"memory_clock_khz": None, "bus_bits": None}, {"sms": 56}),
        ("NVIDIA A30", {"l2_bytes": None, "max_blocks_per_sm": None}, {"sms": 56}),
        (
            "NVIDIA A30",
            dict.fromkeys(attributes("NVIDIA A30").keys() - {"sms", "major", "minor", "clock_khz"}),
            {"sms": 56, "arch": "sm_80"},
        ),
    ],
)
def test_what_the_driver_tells_counts(
    name: str, told: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice, a variant of a board, and a driver that tells little; rates follow the SMs."""
    told_by = {k: v for k, v in (attributes(name) | told).items() if v is not None}
    pretend(name, monkeypatch, told_by)
    target = match_device(name)
    assert {field: getattr(target, field) for field in expected} == expected
    whole = load_target({"sm_80": "A100", "sm_86": "RTX3080", "sm_90": "H100"}[target.arch])
    share = target.tensor_flops_per_s["bf16"] / whole.tensor_flops_per_s["bf16"]
    assert share == pytest.approx(target.sms / whole.sms, rel=0.1)


class TritonStandIn:
    """Launches and times as Triton's own driver would; a function of the config tells the time.

    Attributes:
        compiled, timed: configs' blocks and warps, in order.
        fails: configs that do not compile, by their block.
        ttir: of each that does.
    """

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.compiled: list[tuple[int, int]] = []
        self.timed: list[tuple[int, int]] = []
        self.fails = fails
        self.ttir = ""
        self._last: Mapping[str, Any] = {}

    def run(self, *_: Any, grid: Any, warmup: bool, **values: Any) -> Any:
        """Stand in for `JITFunction.run`."""
        assert grid == (triton.cdiv(values["n"], values["BLOCK"]), 1, 1)
        self._last = values
        if warmup:
            self.compiled.append((values["BLOCK"], values["num_warps"]))
            if values["BLOCK"] in self.fails:
                raise RuntimeError("out of registers")
            return SimpleNamespace(asm={"ttir": self.ttir})
        values["out_ptr"][:] = values["x_ptr"] + values["y_ptr"]
        return None

    def clock(self, call: Callable[[], None], quantiles: Any) -> list[float]:
        """Stand in for the active driver's benchmarker."""
        call()
        values = self._last
        self.timed.append((values["BLOCK"], values["num_warps"]))
        config = Config({"BLOCK": values["BLOCK"], "FLAW": 0}, num_warps=values["num_warps"])
        return [usual_us(config) * share / 1e3 for share in (1, 0.9, 1.1)][: len(quantiles)]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> TritonStandIn:
    """Triton's own launches and clock, without a GPU."""
    made = TritonStandIn()
    monkeypatch.setattr(add, "run", made.run)
    monkeypatch.setattr(unranked, "driver_clock", lambda: made.clock)
    monkeypatch.setattr(unranked, "device_of_thread", lambda: lambda: None)
    return made


def unknown_tuner(folder: Path, **choices: Any) -> Tuner:
    """A tuner of a device that nothing is known of."""
    options = TuneOptions.of({"effort": "quick", **choices})
    return Tuner.open(UNKNOWN, options, Settings(cache_dir=folder, jobs=2))


def unranked_run(tuning: Tuner, match: str = "", made: Problem | None = None) -> TuningResult:
    """Tune with a warning that nothing is ranked."""
    with pytest.warns(UnrankedWarning, match=match):
        return resolved(tuning, made=made)


def test_everything_is_timed_where_nothing_is_known(
    stand_in: TritonStandIn, tmp_path: Path
) -> None:
    """Each config is compiled once and timed once, the fastest wins, and one notice says so."""
    made, told = problem(), "NVIDIA H200: no descriptor .*all 20 are compiled"
    result = unranked_run(unknown_tuner(tmp_path), told, made)
    assert result.record.winner == BEST
    assert len(result.record.measurements) == 20
    assert sorted(stand_in.compiled) == sorted(set(stand_in.compiled)) == sorted(stand_in.timed)
    assert made.arguments["out_ptr"].eq(7.0).all()
    assert result.default_us == pytest.approx(usual_us(DEFAULT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolved(unknown_tuner(tmp_path)).outcome == "known"
        resolved(unknown_tuner(tmp_path), made=problem(512))


def test_configs_that_fail_are_left_out(stand_in: TritonStandIn, tmp_path: Path) -> None:
    """What does not compile, or has no grid, is a failure; an error only where it is all."""
    stand_in.fails = (1024,)
    record = unranked_run(unknown_tuner(tmp_path)).record
    assert record.winner.kwargs["BLOCK"] != 1024
    assert [failure.kind for _, failure in record.failures] == ["compiler"] * 4
    stand_in.fails = ()
    sizes = lambda v: (v["n"] // v["BLOCK"] * (v["BLOCK"] != 256),)  # noqa: E731
    made = replace(problem(), grid=sizes)
    record = resolved(unknown_tuner(tmp_path, force=True), made=made).record
    assert record.winner == BEST
    assert {config.kwargs["BLOCK"] for config, _ in record.failures} == {256}
    stand_in.fails = (128, 256, 512, 1024, 2048)
    with pytest.raises(CompileError, match=r"of 20 the first fails with .*out of registers"):
        resolved(unknown_tuner(tmp_path, force=True))


def test_no_memory_for_copies_stops_nothing(
    stand_in: TritonStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments that cannot be copied are not restored, as Triton restores none; it is told."""

    def refuse(_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried\nand more")

    monkeypatch.setattr(unranked, "preserved", refuse)
    told = r"add: .* not restored .*: CUDA out of memory\. Tried$"
    assert unranked_run(unknown_tuner(tmp_path), told).record.winner == BEST


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize(
    ("stage", "kind", "told"),
    [
        ("read", "parse", "no config's machine code can be read"),
        ("start", "parse", "no config's machine code can be read"),
        ("llir", "timeout", "no config of add can run on H200: .* timeout at llir"),
    ],
)
def test_what_asmtune_cannot_compile_or_read_is_tuned_without_it(
    stage: str,
    kind: str,
    told: str,
    stand_in: TritonStandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compiler whose output is not known, that does not start, or is slow, stops no launch."""

    def verdicts(self: ProblemAnalysis, configs: Any, moment: str, known: Any, *_: Any) -> Any:
        return [failed(config, Failure(stage, kind, "line 1: unknown")) for config in configs]

    monkeypatch.setattr(ProblemAnalysis, "verdicts", verdicts)
    tuning = ranked_workshop(tmp_path, HostMachine())
    assert unranked_run(tuning, f"NVIDIA H200: {told}").record.winner == BEST
    stand_in.fails = (128, 256, 512, 1024, 2048)
    with pytest.raises(CompileError, match="no config of add can run on H200") as caught:
        resolved(tuning, made=problem(640))
    assert not isinstance(caught.value, UnreadableError | MeasureError)


def test_an_amd_gpu_is_tuned_by_triton(
    stand_in: TritonStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ROCm no CUDA driver is asked, and Triton's own launches are timed."""
    name = "AMD Instinct MI300X"
    pretend("NVIDIA A30", monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: name)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(driver, "_asked", lambda _: pytest.fail("a CUDA driver was asked"))
    opened = Tuner.open(name, TuneOptions.of({}), Settings(cache_dir=tmp_path, jobs=1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # the tensors are the host's
    assert unranked_run(opened).record.winner == BEST
    assert len(stand_in.timed) == 20


def test_hooks_run_around_each_launch(stand_in: TritonStandIn, tmp_path: Path) -> None:
    """The user's hooks and clock are called as Triton calls them."""
    called: list[str] = []

    def after(values: Any, exception: Any = None) -> None:
        called.append("after" if exception is None else "failed")
        assert values["n"] == 4096

    opened = unknown_tuner(
        tmp_path,
        pre_hook=lambda _, reset_only=False: called.append("reset" * reset_only),
        post_hook=after,
        do_bench=lambda call, quantiles: stand_in.clock(call, quantiles)[0],
    )
    unranked_run(opened)
    assert called == ["", "after"] * 20 + ["reset"]


def test_no_function_is_timed_where_outputs_are_not_checked(
    stand_in: TritonStandIn, tmp_path: Path
) -> None:
    """One that writes nothing would win; the result says that it was left out."""
    result = unranked_run(unknown_tuner(tmp_path, alternatives={"none": lambda *_: None}))
    assert len(stand_in.timed) == 20
    assert result.record.winner == BEST
    assert "no alternative was timed" in result.remark
    assert 0 < result.seconds < 100


def test_foreign_writes_are_not_timed_there_either(stand_in: TritonStandIn, tmp_path: Path) -> None:
    """Triton's IR tells them on an unknown device too; a function that restores is called."""
    values = {"table_ptr": pointer(I64), "x_ptr": pointer(), "n": 64, "BLOCK": 16}
    stand_in.ttir = lower(foreign_kernels.by_arithmetic, **values)
    with pytest.raises(ForeignWriteError, match=r"foreign_kernels\.py:"):
        unranked_run(unknown_tuner(tmp_path))
    assert stand_in.timed == []
    called: list[Any] = []
    assert resolved(unknown_tuner(tmp_path, restore_value=called.append)).record is not None
    assert (len(stand_in.timed), len(called)) == (20, 21)
    stand_in.ttir = "no IR"
    assert resolved(unknown_tuner(tmp_path, force=True)).record is not None
