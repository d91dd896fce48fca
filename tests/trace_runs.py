"""Traces of runs for the tests, written as a tuning run writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneKey
from asmtune.core.records.verdicts import Features, Reason, Verdict
from asmtune.store.trace.run import Ending, Header
from asmtune.store.trace.writer import TraceWriter

DEFAULT = Config({"BLOCK": 64}, num_warps=2)
FAST = Config({"BLOCK": 256}, num_warps=4)
SLOW = Config({"BLOCK": 32}, num_warps=4)
WRONG = Config({"BLOCK": 512}, num_warps=8)
BROKEN = Config({"BLOCK": 1024}, num_warps=8)
TOO_MANY = Config({"BLOCK": 64}, num_warps=64)

KEY = TuneKey("mine.kernel", {"n": 4096}, {"x_ptr": "fp16"}, "NVIDIA H200")

HEADER = Header(
    kernel="doubled",
    key=KEY,
    reference="doubled.py",
    target="H200",
    effort={"name": "balanced", "seconds": float("inf")},
    strategy="model",
    seed=7,
    default=DEFAULT,
    versions={"asmtune": "0.1.0", "triton": "3.6.0", "torch": "2.13"},
    date="2025-03-04T05:06:07+00:00",
)

ENDING = Ending(
    winner=FAST,
    median_us=10.0,
    default_us=20.0,
    reason="the next batch was expected to save less than 1%",
    seconds={"sketch": 0.5, "compile": 2.0, "time": 1.25},
    compiled=4,
    timed=3,
)


def measured(config: Config, median_us: float) -> tuple[Config, Measurement]:
    """A timing whose spread is a tenth of its median."""
    samples = (median_us,) * 12
    return config, Measurement(config, median_us, 0.95 * median_us, 1.05 * median_us, samples)


def compiled(config: Config, rank: int, **features: float) -> Verdict:
    """A verdict of a config that can run."""
    return Verdict(config, True, rank=rank, features=Features(features), predicted_us=9.0 * rank)


def foreseen() -> list[Verdict]:
    """Six configs before compiling: five scored, one dropped by a rule."""
    scored = [FAST, DEFAULT, SLOW, WRONG, BROKEN]
    verdicts = [
        Verdict(config, True, score=-float(place), predicted_us=8.0 + place)
        for place, config in enumerate(scored)
    ]
    reason = Reason("threads", "64 warps are 2048 threads, the limit is 1024")
    return [*verdicts, Verdict(TOO_MANY, False, "rules", reasons=(reason,))]


def batch() -> list[Verdict]:
    """Give the results of compiling: four configs that can run, one that the compiler refused."""
    refused = Failure("ptxas", "registers", "needs 300,\nthe limit is 255")
    return [
        compiled(FAST, 1, regs_per_thread=40, spill_words=0, shared_bytes=2048),
        compiled(DEFAULT, 2, regs_per_thread=32, spill_words=2, shared_bytes=1024),
        compiled(SLOW, 3, regs_per_thread=16, spill_words=0, shared_bytes=512),
        compiled(WRONG, 4, regs_per_thread=64, spill_words=0, shared_bytes=4096),
        Verdict(
            BROKEN, False, "compile", reasons=(Reason("registers", "refused"),), failure=refused
        ),
    ]


def write_run(folder: Path, header: Header = HEADER, *, ended: bool = True) -> TraceWriter:
    """A whole run; without its last line where it was not `ended`."""
    writer = TraceWriter(folder, header)
    writer.stage("sketch", 0.5)
    writer.ranking(foreseen(), header.default)
    writer.trial(1, 0.1, [measured(DEFAULT, 21.0)], best_us=21.0)
    writer.batch(1, 2.0, batch())
    wrong = Failure("check", "wrong_output", "x_ptr differs at 3 of 4096, by 1.5")
    outcomes = [measured(FAST, 10.5), measured(SLOW, 40.0), (WRONG, wrong)]
    writer.trial(2, 1.0, outcomes, best_us=10.5, expected_gain=0.004)
    writer.final([measured(FAST, 10.0), measured(DEFAULT, 20.0)])
    writer.note("clocks were not locked")
    if ended:
        writer.end(ENDING)
    else:
        writer.close()
    return writer


def header_of(number: int) -> Header:
    """A header of another second for each number up to 60."""
    return replace(HEADER, date=f"2025-03-04T05:06:{number:02d}+00:00")
