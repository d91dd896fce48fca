"""One timing for all configs of one binary, and the choice of a bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.measure.bench.base import TimingCandidate
from asmtune.measure.bench.dedup import DedupBench, binary_digest
from tests.bench.bench_support import artifact, entrant, problem


@triton.jit
def split(x_ptr, PARTS, BLOCK: tl.constexpr):
    """Take PARTS as no constexpr: the code does not hold it."""
    tl.store(x_ptr, PARTS)


class Recorder:
    """A bench that notes who it is asked for, and times all at 1, 2, 3... us."""

    device, notes = "a GPU", ("a note",)

    def __init__(self) -> None:
        self.asked: list[Config] = []

    def begin(self, default: TimingCandidate) -> Outcome:
        """Like a trial of one."""
        return self.trial([default])[0]

    def trial(self, entrants: Sequence[TimingCandidate]) -> list[Outcome]:
        """Count on from the last time given."""
        times = enumerate(entrants, len(self.asked) + 1)
        self.asked += [e.config for e in entrants]
        return [(e.config, Measurement(e.config, us, us, us, (us,))) for us, e in times]

    final = trial


def twins(count: int, **options: Any) -> list[TimingCandidate]:
    """Configs that differ in their number of stages, and compile to the same."""
    return [
        TimingCandidate(
            Config({"MODE": "good", "US": 1.0}, num_stages=stages, **options), artifact(b"code")
        )
        for stages in range(1, count + 1)
    ]


def medians(outcomes: Sequence[Outcome]) -> list[float]:
    """List the medians of outcomes that are all timings."""
    return [r.median_us for _, r in outcomes if isinstance(r, Measurement)]


def test_twins_are_timed_once() -> None:
    """Within a trial and over trials one of a kind is timed; each gets it as its own."""
    inner = Recorder()
    bench = DedupBench(problem(), inner)
    first, second, third = twins(3)
    other = entrant("print")
    bench.begin(first)
    outcomes = bench.trial([second, other, third, entrant("print")])
    assert inner.asked == [first.config, other.config]
    assert medians(outcomes) == [1.0, 2.0, 1.0, 2.0]
    assert all(isinstance(r, Measurement) and r.config == config for config, r in outcomes)
    assert bench.trial([third]) == [outcomes[2]]


def test_finals_are_fresh_and_prefer_the_default() -> None:
    """A final times each binary anew, in the person of the default where it is among them."""
    inner = Recorder()
    bench = DedupBench(problem(), inner)
    first, default, third = twins(3)
    bench.begin(default)
    outcomes = bench.final([first, default, third])
    assert inner.asked == [default.config, default.config]
    assert medians(outcomes) == [2.0, 2.0, 2.0]


def test_what_a_launch_sets_counts() -> None:
    """Code, grid and what is set beside the code tell binaries apart; stages and caps do not."""
    here = binary_digest(artifact(b"code"), (4, 1, 1))
    assert binary_digest(artifact(b"code", num_stages=2, maxnreg=64), (4, 1, 1)) == here
    changes: list[dict[str, Any]] = [{"shared": 1024}, {"num_ctas": 2}, {"launch_pdl": True}]
    changes.append({"tensordesc_meta": [{"swizzle": 3}]})
    others = [binary_digest(artifact(b"code", **change), (4, 1, 1)) for change in changes]
    others += [binary_digest(artifact(b"code"), (2, 2, 1))]
    others += [binary_digest(artifact(b"kode"), (4, 1, 1))]
    assert len({here, *others}) == 1 + len(others)


def test_another_hook_is_another_launch() -> None:
    """Hooks run before the code, and may make it right or wrong."""
    inner = Recorder()
    bench = DedupBench(problem(), inner)
    (plain,), (hooked,) = twins(1), twins(1, pre_hook=lambda _: None)
    bench.trial([plain, hooked])
    assert len(inner.asked) == 2


def test_an_axis_that_is_no_constexpr_counts() -> None:
    """Its value is passed at the launch: equal code does not make equal timings."""
    inner = Recorder()
    bench = DedupBench(Problem(split, {"x_ptr": torch.zeros(1)}, (1,)), inner)
    configs = [Config({"PARTS": parts, "BLOCK": 64}) for parts in (1, 2, 2)]
    bench.trial([TimingCandidate(config, artifact(b"code")) for config in configs])
    assert len(inner.asked) == 2
