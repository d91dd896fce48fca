"""The funnel: what falls where, what stays, and what cannot go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from asmtune.config import Config
from asmtune.errors import CompileError, ProblemError, SpaceError
from asmtune.funnel import Funnel
from asmtune.problem import Problem
from asmtune.records import PruneReport
from asmtune.score import Candidate, make_scorer
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target, load_target
from tests.sample_kernels import (
    one_pointer,
    product_problem,
    refused,
    scale,
    scale_problem,
    tensor,
    wants_four_warps,
)


class ByBlock:
    """Prefers large blocks, however they compile."""

    name = "by block"
    draws = 1

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The value of BLOCK."""
        return [float(candidate.config.kwargs["BLOCK"]) for candidate in candidates]


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that keeps three for an H200."""
    return Funnel(target, ByBlock(), settings, keep=3)


def check_sums(report: PruneReport, candidates: int) -> None:
    """Every config has one verdict, and what fell and what is kept add up."""
    assert len(report.verdicts) == candidates
    assert len({verdict.config for verdict in report.verdicts}) == candidates
    assert sum(report.dropped().values()) + len(report.kept) == candidates
    for verdict in report.verdicts:
        assert verdict.kept == (verdict.dropped_at is None)
        assert verdict.kept or verdict.reasons
        assert (verdict.rank is None) == (verdict.dropped_at in ("rules", "compile"))


BLOCKS = {"BLOCK": (64, 100, 128, 256, 512, 1024), "num_warps": (4, 64)}


def test_counts_add_up(funnel: Funnel) -> None:
    """Each stage's losses are told by reason, and the best three and the default are left."""
    report = funnel.prune(scale_problem(), Space(BLOCKS))
    check_sums(report, 12)
    assert report.dropped() == {
        ("rules", "threads"): 6,
        ("compile", "kernel"): 1,
        ("score", "rank"): 1,
    }
    assert [verdict.config.kwargs["BLOCK"] for verdict in report.kept] == [1024, 512, 256, 64]
    assert [verdict.rank for verdict in report.kept] == [1, 2, 3, 5]
    (below,) = (verdict for verdict in report.verdicts if verdict.dropped_at == "score")
    assert str(below.reasons[0]) == "rank: rank 4 by by block, 3 are kept"
    assert set(report.seconds) == {"generate", "compile", "score"}
    assert (report.target, report.scorer, report.kernel) == ("H200", "by block", "scale")


def test_order_of_verdicts(funnel: Funnel) -> None:
    """Kept ones come first by rank, then those below, then compile failures, then rules."""
    report = funnel.prune(scale_problem(), Space(BLOCKS))
    places = [verdict.dropped_at for verdict in report.verdicts]
    assert places == [None] * 4 + ["score"] + ["compile"] + ["rules"] * 6


def test_the_default_stays(funnel: Funnel) -> None:
    """The default is kept whatever its rank, and once however often the space has it."""
    default = Config({"BLOCK": 128})
    space = Space({"BLOCK": (64, 128, 256, 512, 1024)}, default=default)
    report = replace(funnel, keep=1).prune(scale_problem(), space)
    check_sums(report, 5)
    assert [verdict.config.kwargs["BLOCK"] for verdict in report.kept] == [1024, 128]


def test_at_least_one_stays(funnel: Funnel) -> None:
    """A funnel that is to keep none keeps the best and the default."""
    report = replace(funnel, keep=0).prune(scale_problem(), Space({"BLOCK": (64, 128)}))
    assert [verdict.rank for verdict in report.kept] == [1, 2]


def test_keep_all(funnel: Funnel) -> None:
    """Without a number all that can run are kept, in the scorer's order."""
    report = replace(funnel, keep=None).prune(scale_problem(), Space(BLOCKS))
    assert [verdict.rank for verdict in report.kept] == [1, 2, 3, 4, 5]


def test_ties_keep_the_order_of_the_space(funnel: Funnel) -> None:
    """Of equal scores the first generated comes first."""
    space = Space({"BLOCK": (256,), "num_warps": (8, 1, 4, 2)})
    report = replace(funnel, keep=None).prune(scale_problem(), space)
    assert [verdict.config.num_warps for verdict in report.kept] == [8, 1, 4, 2]


def test_a_default_that_cannot_run(funnel: Funnel) -> None:
    """Where the default fails, the report goes on without it and says so."""
    space = Space({"BLOCK": (100, 128)}, default=Config({"BLOCK": 100}))
    report = funnel.prune(scale_problem(), space)
    assert [verdict.config.kwargs["BLOCK"] for verdict in report.kept] == [128]
    (note,) = report.notes
    assert "default config" in note
    assert "BLOCK=100" in note
    assert "power of 2" in note


def test_all_fail(target: Target, settings: Settings) -> None:
    """Where nothing compiles, the compiler's message comes once, and names the line."""
    funnel = Funnel(target, make_scorer("weights"), settings)
    problem = one_pointer(refused, n=8)
    with pytest.raises(CompileError) as caught:
        funnel.prune(problem, Space({"BLOCK": (64, 128), "num_warps": (1, 2, 4)}))
    message = str(caught.value)
    assert message.count("not_defined is not defined") == 1
    assert "no config of refused can run on H200: 6 of 6 fail with kernel" in message
    assert "line 4 of the kernel" in message
    assert "\n" not in message


def test_all_break_a_rule(funnel: Funnel) -> None:
    """Where rules drop everything, the commonest one is named with its numbers."""
    with pytest.raises(CompileError, match=r"2 of 2 fail with threads.*64 warps are 2048 threads"):
        funnel.prune(scale_problem(), Space({"BLOCK": (64, 128), "num_warps": (64,)}))


def test_no_feasible_point(funnel: Funnel) -> None:
    """A space whose constraints leave nothing is refused, also if it has a default."""
    for default in (None, Config({"BLOCK": 64})):
        space = Space({"BLOCK": (64, 128)}, default=default).where("never", lambda BLOCK: BLOCK < 0)
        with pytest.raises(SpaceError, match="no feasible point among 2: constraint 'never'"):
            funnel.prune(scale_problem(), space)


def test_configs_that_do_not_fit(funnel: Funnel) -> None:
    """A space that leaves a parameter without a value is the user's mistake, not a failure."""
    with pytest.raises(ProblemError, match="no value for BLOCK"):
        funnel.prune(scale_problem(), Space({"num_warps": (4,)}))


def test_refusals_by_an_option(target: Target, settings: Settings) -> None:
    """A kernel that wants four warps keeps just those configs."""
    funnel = Funnel(target, make_scorer("weights"), settings)
    report = funnel.prune(one_pointer(wants_four_warps), Space({"num_warps": (8, 1, 4)}))
    assert [verdict.config.num_warps for verdict in report.kept] == [4]
    assert report.dropped() == {("compile", "kernel"): 2}


@pytest.mark.parametrize("name", ["A100", "RTX4090", "H200", "B200"])
def test_targets(name: str, settings: Settings) -> None:
    """Each target judges by its own limits: what a program of it may have in shared memory."""
    machine = load_target(name)
    axes = {"BLOCK_M": (128,), "BLOCK_N": (128,), "BLOCK_K": (64,), "num_stages": (2, 3, 5, 8)}
    funnel = Funnel(machine, make_scorer("weights"), settings)
    report = funnel.prune(product_problem(), Space({**axes, "num_warps": (8,)}))
    check_sums(report, 4)
    for verdict in report.verdicts:
        assert verdict.features is not None
        fits = verdict.features["shared_bytes"] <= machine.shared_bytes_per_block
        assert verdict.dropped_at == (None if fits else "rules")
        assert fits or verdict.reasons[0].rule == "shared_memory"
    assert {verdict.kept for verdict in report.verdicts} == {True, False}


def test_capped_products(target: Target, settings: Settings) -> None:
    """The accumulators' rule drops before the back end, and names what is missing."""
    space = Space(
        {"BLOCK_M": (64,), "BLOCK_N": (128,), "BLOCK_K": (32,), "maxnreg": (None, 64, 96)}
    )
    report = Funnel(target, make_scorer("weights"), settings).prune(product_problem(), space)
    assert report.dropped() == {("rules", "accumulators"): 1}
    (verdict,) = (verdict for verdict in report.verdicts if not verdict.kept)
    assert verdict.config.maxnreg == 64
    assert "needs 90 registers" in verdict.reasons[0].text


class Recorder:
    """Notes the progress that it is told of."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.steps = 0

    def start(self, stage: str, total: int) -> None:
        """Notes a stage."""
        self.stages.append((stage, total))

    def advance(self) -> None:
        """Notes a step."""
        self.steps += 1


def test_progress(funnel: Funnel) -> None:
    """The compile stage is announced with its number, and each config is a step."""
    recorder = Recorder()
    replace(funnel, progress=recorder).prune(scale_problem(), Space(BLOCKS))
    assert recorder.stages == [("compile", 6)]
    assert recorder.steps == 6


def test_judge_keeps_the_order(funnel: Funnel) -> None:
    """Verdicts come in the order of the configs asked, equal ones included."""
    configs = [
        Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 64), (64, 4), (100, 4), (64, 4))
    ]
    verdicts = funnel.judge(scale_problem(), configs)
    assert [verdict.config for verdict in verdicts] == configs
    assert [verdict.dropped_at for verdict in verdicts] == ["rules", None, "compile", None]
    assert verdicts[1] == verdicts[3]


def test_one_compile_for_shapes_of_one_specialisation(
    funnel: Funnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes that divide alike share the binary; the second problem compiles nothing."""
    from asmtune.compile import pool

    space = Space({"BLOCK": (64, 128)})
    first = funnel.prune(scale_problem(4096), space)
    monkeypatch.setattr(pool, "_compile_one", lambda *_: pytest.fail("compiled again"))
    second = funnel.prune(scale_problem(8192), space)
    digests: Callable[[PruneReport], Counter[Any]] = lambda report: Counter(  # noqa: E731
        verdict.artifact for verdict in report.verdicts
    )
    assert digests(first) == digests(second)


def test_dtypes_are_told(funnel: Funnel) -> None:
    """The report names the dtypes of the tensors by parameter."""
    arguments = {"x_ptr": tensor(torch.bfloat16), "y_ptr": tensor(torch.float32), "n": 64}
    report = funnel.prune(Problem(scale, arguments, (1,)), Space({"BLOCK": (64,)}))
    assert report.dtypes == {"x_ptr": "bf16", "y_ptr": "fp32"}
    assert set(report.versions) == {"asmtune", "triton", "torch"}
