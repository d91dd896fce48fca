"""Whole tuning runs: real compiles, real checks, a store and traces, and times that are told."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from asmtune.base.errors import CompileError, MeasureError
from asmtune.compile import pool
from asmtune.compile.lower import LowerRequest
from asmtune.compile.sandbox import JobCancelledError, Sandbox
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.space import Space
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.statistics import summarise
from asmtune.predict.prune import places
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.rounds import SketchRounds
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from asmtune.tuning import background_compiler, initial_state
from asmtune.tuning.search.model import Model
from asmtune.tuning.stages import BenchTimer, FinalDecision, decide
from tests.tuning_support import (
    BEST,
    DEFAULT,
    HostMachine,
    problem,
    request,
    resolved,
    space,
    usual_us,
    workshop,
)


@triton.jit
def add_in(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr, FLAW: tl.constexpr):
    """Add in a dtype of the config's; a flaw is a tuple."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x_ptr + at, mask=inside).to(DTYPE) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total + FLAW[0], mask=inside)


class DtypeMachine(HostMachine):
    """Does what `add_in` would do."""

    def launch(self, binary: Any, values: Any, pre_hook: Any) -> Any:
        """Add the first of the flaw's items."""
        assert values["DTYPE"] in (tl.float32, tl.float64)
        return super().launch(binary, {**values, "FLAW": values["FLAW"][0]}, pre_hook)


@pytest.mark.parametrize("as_list", [False, True])
def test_configs_with_dtypes_and_tuples_are_kept(
    tmp_path: Path, as_list: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """A value that JSON has no form for is stored as text; a later process gets the value back."""
    axes = {"BLOCK": (256, 512), "DTYPE": (tl.float32, tl.float64), "FLAW": ((0, 1),)}
    searched = Space(axes)
    if as_list:
        searched = Space.from_configs(list(searched.configs()))
    made = replace(problem(), kernel=add_in)
    machine = DtypeMachine(lambda config: float(config.kwargs["BLOCK"]))
    first = resolved(workshop(tmp_path, machine), searched, made)
    later = resolved(workshop(tmp_path, machine), searched, made)
    assert (first.outcome, later.outcome) == ("tuned", "known")
    assert first.record.winner == later.record.winner
    assert type(later.record.winner.kwargs["DTYPE"]) is tl.dtype
    assert later.record.winner.kwargs["FLAW"] == (0, 1)
    assert not [one for one in recwarn if "not kept" in str(one.message)]


def test_the_fastest_wins_and_is_kept(tmp_path: Path) -> None:
    """The record names the fastest config; the next workshop finds it and times nothing."""
    machine = HostMachine()
    result = resolved(workshop(tmp_path, machine))
    assert result.outcome == "tuned"
    assert result.record.winner == BEST
    assert result.record.median_us == pytest.approx(usual_us(BEST))
    assert result.default_us == pytest.approx(usual_us(DEFAULT))
    later = HostMachine()
    again = resolved(workshop(tmp_path, later))
    assert (again.outcome, again.record) == ("known", result.record)
    assert later.timed == []


def test_a_short_list_is_compiled_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configs are timed as they come, the default first, without a sketch or a model.

    The compile of one that hangs is ended, and the trace says why.
    """
    tuner, made = workshop(tmp_path, HostMachine(lambda _: 9.0)), problem()
    configs = list(space().configs())
    worst = configs[-1]
    monkeypatch.setattr(background_compiler, "LEAST_S", 0.3)
    make = pool.made_in

    def hanging(sandbox: Sandbox, request: LowerRequest, job: Any, settings: Any, stop: Any) -> Any:
        wanted = tuner.funnel.front(made).lowering.request(worst)
        if isinstance(wanted, Failure) or request.digest != wanted.digest:
            return make(sandbox, request, job, settings, stop)
        stop.wait()
        raise JobCancelledError

    monkeypatch.setattr(pool, "made_in", hanging)
    monkeypatch.setattr(Model, "__init__", lambda *_: pytest.fail("no model is needed"))
    listed = Space.from_configs(configs)
    result = resolved(tuner, searched=listed, made=made)
    assert not tuner.funnel.sketches
    assert result.timed == len(configs) - 1
    (failure,) = [failure for config, failure in result.record.failures if config == worst]
    assert (failure.stage, failure.kind) == ("compile", "timeout")
    assert failure.detail.startswith("given up after")
    trace = read_trace(max(run_files(tmp_path / "runs")))
    assert any(note.startswith("a short list for 1 compiles at once") for note in trace.notes)
    assert len(trace.batches) > 1
    assert trace.trials[0].rows[0].config == listed.first()


@pytest.mark.slow(seconds=6)
def test_a_batch_is_compiled_while_others_are_sketched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large space's first compile starts before its last sketch.

    However long the sketches take, equal seeds compile and time the same configs. A single worker
    makes the other sketches once the first batch is timed.
    """
    monkeypatch.setattr(initial_state, "MOST_SKETCHES", 20)
    verdicts, advance, trial = ProblemAnalysis.verdicts, SketchRounds.advance, BenchTimer.trial
    moments: list[str] = []

    def noted(front: ProblemAnalysis, configs: Any, moment: Any, *others: Any, **more: Any) -> Any:
        moments.append(moment)
        return verdicts(front, configs, moment, *others, **more)

    def timed(timer: BenchTimer, chosen: Any) -> Any:
        moments.append("trial")
        return trial(timer, chosen)

    monkeypatch.setattr(ProblemAnalysis, "verdicts", noted)
    monkeypatch.setattr(BenchTimer, "trial", timed)

    def run(jobs: int) -> Any:
        moments.clear()
        tuner = workshop(tmp_path / str(jobs), HostMachine())
        tuner.funnel = replace(tuner.funnel, settings=replace(tuner.funnel.settings, jobs=jobs))
        result = resolved(tuner, space(flaws=(0, 1)))
        assert result.record.winner == BEST
        trace = read_trace(max(run_files(tmp_path / str(jobs) / "runs")))
        batches = [[row.config for row in batch.rows] for batch in trace.batches]
        trials = [[row.config for row in trial.rows] for trial in trace.trials]
        return batches, trials, trace.ranking, trace.notes

    one = run(1)
    assert moments[:5] == ["sketch", "assembly", "trial", "sketch", "sketch"]
    monkeypatch.setattr(
        SketchRounds, "advance", lambda own, front: [time.sleep(0.5), advance(own, front)][1]
    )
    assert run(2) == one
    assert moments[:2] == ["sketch", "assembly"]
    assert moments.count("sketch") == 3


def test_bits_equal_to_the_default(tmp_path: Path) -> None:
    """With check="bits" a faster config whose output differs in a bit loses; else it wins.

    Either kind of tuning takes nothing over from the other, neither a record nor a failure.
    """
    rounded = Space({"BLOCK": (256,), "FLAW": (0, 1e-4), "num_warps": (4, 8)}, default=DEFAULT)
    machine = HostMachine(
        lambda config: (5.0 if config.kwargs["FLAW"] else 9.0) - config.num_warps / 8
    )
    winners = []
    for check in ("bits", "close", "bits"):
        result = resolved(workshop(tmp_path, machine, check=check), searched=rounded)
        assert result.outcome == "tuned"
        winners.append((result.record.winner.kwargs["FLAW"], result.record.winner.num_warps))
        failures = {failure.detail.split(";")[-1] for _, failure in result.record.failures}
        assert failures == ({" check='bits' allows no bit to differ"} if check == "bits" else set())
    assert winners == [(0, 8), (1e-4, 8), (0, 8)]


def test_an_unsteady_winner_is_told(tmp_path: Path) -> None:
    """Where the deviation of all the winner's samples is over 5%, that is said."""
    taken: Counter[Config] = Counter()

    def noisy(config: Config) -> float:
        taken[config] += 1
        return usual_us(config) * (2.0 if taken[config] % 7 == 0 else 1.0)

    result = resolved(workshop(tmp_path, HostMachine(noisy)))
    found = result.record.timing.statistics
    assert found.rsd > 0.05
    assert result.remark == f"RSD {found.rsd:.1%} of {found.samples} samples stays above 5%"


def test_what_computes_something_else_never_wins(tmp_path: Path) -> None:
    """Configs that are ten times as fast, and wrong, fail the check and are never timed."""

    def tempting(config: Config) -> float:
        return usual_us(config) / (10 if config.kwargs["FLAW"] else 1)

    machine = HostMachine(tempting)
    record = resolved(workshop(tmp_path, machine), space(flaws=(0, 1))).record
    assert record.winner == BEST
    wrong = {config: f for config, f in record.failures if config.kwargs["FLAW"]}
    assert wrong
    assert {(f.stage, f.kind) for f in wrong.values()} == {("check", "wrong_output")}
    assert not any(config.kwargs["FLAW"] for config in machine.timed)


@triton.jit
def add_and_clear(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, FLAW: tl.constexpr):
    """Add; in blocks of 2048 overwrite an input as well."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + y + FLAW, mask=inside)
    if BLOCK == 2048:
        tl.store(x_ptr + at, y, mask=inside)


def test_a_config_that_writes_what_is_not_saved_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of many tiles is lowered; one outside it that writes other arguments fails."""
    monkeypatch.setattr(places, "MOST_TILES", 1)
    machine = HostMachine()
    made = replace(problem(), kernel=add_and_clear)
    blocks = Space({"BLOCK": (256, 512, 2048), "FLAW": (0,), "num_warps": (4, 8)})
    record = resolved(workshop(tmp_path, machine, "exhaustive"), blocks, made).record
    assert {config.kwargs["BLOCK"] for config in machine.timed} == {256, 512}
    unsaved = {config.kwargs["BLOCK"] for config, f in record.failures if f.kind == "unsaved"}
    assert unsaved == {2048}


def test_a_space_that_grew_begins_with_the_fastest(tmp_path: Path) -> None:
    """With one more value on an axis, what was fastest before is compiled and timed first."""
    before = resolved(workshop(tmp_path, HostMachine(), "exhaustive"), space(warps=(4, 8)))
    fastest = sorted(before.record.measurements, key=lambda timing: timing.median_us)
    earlier = run_files(tmp_path / "runs")
    result = resolved(workshop(tmp_path, HostMachine(), "exhaustive"), space(warps=(2, 4, 8)))
    assert (result.outcome, result.record.winner) == ("tuned", BEST)
    (made,) = {*run_files(tmp_path / "runs")} - {*earlier}
    run = read_trace(made)
    first = [row.config for row in run.batches[0].rows][:3]
    assert first == [DEFAULT, *(timing.config for timing in fastest[:2])]


def test_the_trace_tells_the_run(tmp_path: Path) -> None:
    """The trace holds stages, verdicts, trials, finals and the ending, as the result has them."""
    result = resolved(workshop(tmp_path, HostMachine()))
    (path,) = run_files(tmp_path / "runs")
    run = read_trace(path)
    assert run.run == result.run
    assert [name for name, _ in run.stages][:3] == ["foresee", "open", "search"]
    assert run.ranking.count == 20
    assert len(run.compiled()) == result.compiled
    assert run.ending.winner == BEST
    assert DEFAULT in {row.config for row in run.finals}
    assert sum(len(trial.rows) for trial in run.trials) == result.timed


@pytest.mark.slow
def test_many_problems_share_their_compiles(tmp_path: Path) -> None:
    """Shapes of equal specialisation compile once; one that fails stops no other."""
    made = workshop(tmp_path, HostMachine())
    requests = [request(made, problem(n)) for n in (4096, 8192)]
    bad = request(made, problem(1024))
    bad.problem.arguments["stray"] = 1  # type: ignore[index]
    results = list(made.results([requests[0], bad, requests[1]]))
    assert [result.outcome for result in results] == ["tuned", "failed", "tuned"]
    assert "stray" in results[1].error
    assert all(0 <= result.seconds < 100 for result in results)
    assert len(made.funnel.known) == len({v.digest for v in made.funnel.known.values()})  # type: ignore[union-attr]


@pytest.mark.slow
def test_nothing_that_can_run(tmp_path: Path) -> None:
    """A space whose configs all fail is an error that names the reason and writes no record."""
    huge = Space({"BLOCK": (1 << 21, 1 << 22), "FLAW": (0,)})
    with pytest.raises(CompileError, match="no config of add can run on H200"):
        resolved(workshop(tmp_path, HostMachine()), huge)
    wrong = workshop(tmp_path, HostMachine(), reference=lambda v: v["x_ptr"] * 3)
    with pytest.raises(MeasureError, match="no config of add can run"):
        resolved(wrong)
    assert wrong.store.records() == []


def test_an_alternative_is_named_for_the_best_config() -> None:
    """It wins where it is faster than each config; a config that is as fast wins in its place."""
    slow, fast = DEFAULT, Config({"BLOCK": 512, "FLAW": 0}, num_warps=4)
    vendor, broken = (slow.with_alternative(name) for name in ("vendor", "broken"))
    costs = {slow: 10.0, fast: 20.0}
    finalists = [
        Verdict(config, kept=True, features={"regs_per_thread": costs.get(config, 0.0)})
        for config in (slow, fast, vendor, broken)
    ]

    def decided(*times: float) -> FinalDecision:
        outcomes = [
            (verdict.config, summarise(verdict.config, [us * (1 + n / 1e4) for n in range(20)]))
            for verdict, us in zip(finalists, times, strict=False)
        ]
        failure = Failure("check", "wrong_output", "it differs")
        return decide(finalists, [*outcomes, (broken, failure)], TimingPolicy())

    won = decided(12.0, 10.0, 5.0)
    assert won.winner.config == fast.with_alternative("vendor")
    assert won.winner.median_us == pytest.approx(5.0, rel=1e-3)
    named = [fast.with_alternative(name) for name in ("vendor", "broken")]
    assert [config for config, _ in won.outcomes] == [slow, fast, *named]
    assert [getattr(o, "config", None) for _, o in won.outcomes] == [slow, fast, named[0], None]
    assert decided(12.0, 10.0, 10.0).winner.config == fast
    assert decided(10.0, 10.0, 10.0).winner.config == slow, "fewer registers win a tie"
    with pytest.raises(MeasureError, match="no finalist could be timed"):
        decided()
