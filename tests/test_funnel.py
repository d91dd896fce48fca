"""The funnel: what falls where, what stays, and what cannot go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from asmtune.base.errors import CompileError, InputError, ProblemError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import PruneReport
from asmtune.core.space.space import Space
from asmtune.predict.prune import flow
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import failed
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.scorers import make_scorer
from tests.sample_kernels import (
    one_pointer,
    refused,
    refused_by_size,
    scale_problem,
    tensor,
)
from tests.workload.workload_kernels import jagged


class ByBlock(Scorer):
    """Prefers large blocks, however they compile."""

    name = "by block"

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The value of BLOCK."""
        return [float(candidate.config.kwargs["BLOCK"]) for candidate in candidates]


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that keeps three for an H200."""
    return Funnel(target, ByBlock(), settings, keep=Keep(3))


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
    places = [verdict.dropped_at for verdict in report.verdicts]
    assert places == [None] * 4 + ["score"] + ["compile"] + ["rules"] * 6
    (below,) = (verdict for verdict in report.verdicts if verdict.dropped_at == "score")
    assert str(below.reasons[0]) == "rank: rank 4 by by block, 3 are kept"
    assert set(report.seconds) == {"generate", "compile", "score"}
    assert (report.target, report.scorer, report.kernel) == ("H200", "by block", "scale")


@pytest.mark.parametrize("compiled", [None, Keep(2)], ids=["all compiled", "some sketched"])
@pytest.mark.parametrize("lost", [64, 256], ids=["default", "other"])
def test_a_config_without_a_grid_is_dropped_by_it(
    target: Target, settings: Settings, lost: int, compiled: Keep | None
) -> None:
    """It falls to the rules with its own error, and everything else goes on."""
    funnel = Funnel(target, make_scorer("roofline"), settings, compile=compiled)
    grid = lambda v: (1, 65536 if v["BLOCK"] == lost else 4)  # noqa: E731
    space = Space({"BLOCK": (64, 128, 256, 512), "num_warps": (1, 2, 4, 8)})
    report = funnel.prune(replace(scale_problem(), grid=grid), space)
    assert len(report.verdicts) == 16
    assert report.dropped()["rules", "grid"] == 4
    gone = [verdict for verdict in report.verdicts if verdict.dropped_at == "rules"]
    assert {verdict.config.kwargs["BLOCK"] for verdict in gone} == {lost}
    assert all(v.failure and "axis y has 65536 programs" in v.failure.detail for v in gone)
    assert any("the default config" in note for note in report.notes) == (lost == 64)


def test_no_config_has_a_grid(funnel: Funnel) -> None:
    """Where none can be launched, the first reason is told, and how many share it."""
    problem = replace(scale_problem(), grid=lambda v: (4 // (v["BLOCK"] // 1024),))
    with pytest.raises(ProblemError, match=r"at BLOCK=64 .*ZeroDivisionError.* of 3 .*: 3 fail by"):
        funnel.prune(problem, Space({"BLOCK": (64, 128, 256)}))


def test_the_default_stays(funnel: Funnel) -> None:
    """The default is kept whatever its rank, and once however often the space has it."""
    default = Config({"BLOCK": 128})
    space = Space({"BLOCK": (64, 128, 256, 512, 1024)}, default=default)
    report = replace(funnel, keep=Keep(1)).prune(scale_problem(), space)
    check_sums(report, 5)
    assert [verdict.config.kwargs["BLOCK"] for verdict in report.kept] == [1024, 128]


def test_auto_needs_a_measured_error(funnel: Funnel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scorer whose error is not known cannot choose how many, and nothing is compiled first."""
    monkeypatch.setattr(Funnel, "judge", lambda *_: pytest.fail("compiled"))
    with pytest.raises(InputError, match=r"keep auto: .*by block was never.* learned or roofline"):
        replace(funnel, keep=Keep()).prune(scale_problem(), Space(BLOCKS))


def test_auto(funnel: Funnel) -> None:
    """By the roofline's own error, which ships, five are kept at least, of few configs all."""
    by_error = replace(funnel, scorer=make_scorer("roofline"), keep=Keep())
    report = by_error.prune(scale_problem(), Space(BLOCKS))
    assert len(report.kept) == 5
    assert report.selection is not None
    assert (report.selection.expected_share, report.selection.chance_dropped) == (1.0, 0.0)
    few = replace(by_error, keep=Keep(1)).prune(scale_problem(), Space(BLOCKS)).selection
    assert few is not None
    assert few.expected_share is not None
    assert few.chance_dropped is not None
    assert 0.5 < few.expected_share < 1
    assert 0 < few.chance_dropped < 1


class Given(Scorer):
    """Scores by BLOCK and num_warps, as given."""

    def __init__(self, name: str, scores: dict[tuple[int, int], float]) -> None:
        self.name = name
        self._scores = scores

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The numbers given."""
        configs = [candidate.config for candidate in candidates]
        return [self._scores[config.kwargs["BLOCK"], config.num_warps] for config in configs]


def test_the_best_by_score_are_kept(funnel: Funnel) -> None:
    """Of equal scores the first of the space are kept; each of the others says its rank."""
    scores = {(block, warps): -float(block) for block in (64, 128) for warps in (1, 2, 4)}
    space = Space({"BLOCK": (128, 64), "num_warps": (4, 2, 1)})
    chosen = replace(funnel, scorer=Given("roofline", scores), keep=Keep(2))
    report = chosen.prune(scale_problem(), space)
    kept = [(v.config.kwargs["BLOCK"], v.config.num_warps) for v in report.kept]
    assert kept == [(64, 4), (64, 2), (128, 4)]  # the last is the default
    dropped = [str(v.reasons[0]) for v in report.verdicts if v.dropped_at == "score"]
    assert dropped == [f"rank: rank {rank} by roofline, 2 are kept" for rank in (3, 5, 6)]


def test_a_default_that_cannot_run(funnel: Funnel) -> None:
    """Where the default fails, the report goes on without it and says so."""
    space = Space({"BLOCK": (100, 128)}, default=Config({"BLOCK": 100}))
    report = funnel.prune(scale_problem(), space)
    assert [verdict.config.kwargs["BLOCK"] for verdict in report.kept] == [128]
    note, unknown = report.notes
    assert "whether tiles must be held is not known" in unknown
    assert "default config" in note
    assert "BLOCK=100" in note
    assert "power of 2" in note


@pytest.mark.parametrize("count", [0, 1, 8, 10])
def test_configs_that_took_too_long_are_named(count: int) -> None:
    """A note names the first few that the compiler did not finish, and counts the others."""
    late, other = Failure("ptxas", "timeout", "after 60 s"), Failure("ptxas", "ptxas", "no")
    configs = [Config({"BLOCK": 1 << size}) for size in range(count)]
    verdicts = [failed(Config({"BLOCK": 3}), other), *(failed(config, late) for config in configs)]
    notes = flow.timeout_notes(verdicts)
    assert len(notes) == min(count, 1)
    for note in notes:
        named = [config for config in configs if str(config) in note]
        assert (named, "after 60 s" in note) == (configs[:8], True)
        assert ("2 more" in note) == (count == 10)


def test_guesses_are_told(funnel: Funnel) -> None:
    """What only memory tells stands in one note, with what tiles assume; one names the tensor."""
    rows, sums = tensor(torch.float32, 1 << 20), tensor(torch.float32, 64)
    starts = tensor(torch.int64, 65)
    problem = Problem(jagged, {"x_ptr": rows, "starts_ptr": starts, "y_ptr": sums}, (64,))
    space = Space({"BLOCK": (64, 128, 256, 512, 1024), "num_warps": (4,)})
    note, named = replace(funnel, keep=None).prune(problem, space).notes
    assert named.startswith("loops and branches that starts_ptr steers are assumed: no values")
    assert note.startswith("predicted times rest on a guess: line ")
    assert note.endswith(": 16 trips or 32 trips or 64 trips or others assumed")  # best first
    sure = replace(funnel, keep=None).prune(scale_problem(), Space({"BLOCK": (64, 128)}))
    assert sure.notes == ()


@pytest.mark.parametrize(
    ("problem", "axes", "says"),
    [
        (one_pointer(refused, n=8), {"num_warps": (1, 2, 4)}, "refused can run on H200: 6 of 6"),
        (one_pointer(refused_by_size, n=8), {"num_warps": (1,)}, "2 of 2 fail with kernel, such"),
        (scale_problem(), {"num_warps": (64,)}, "2 of 2 fail with threads"),
    ],
)
def test_nothing_can_run(
    problem: Problem, axes: dict[str, Any], says: str, target: Target, settings: Settings
) -> None:
    """The commonest reason is named once, in one line, with how many share it."""
    funnel = Funnel(target, make_scorer("chance"), settings)
    with pytest.raises(CompileError) as caught:
        funnel.prune(problem, Space({"BLOCK": (64, 128), **axes}))
    assert says in str(caught.value)
    assert str(caught.value).count("not_defined is not defined") <= 1
    assert "\n" not in str(caught.value)


def test_a_triton_that_nobody_has_tried(funnel: Funnel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report says so once a process, and is made all the same."""
    flow._notice_of_untried_triton.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr("asmtune.triton_api.compiler.newer_than_tried", lambda: "9.0.0")
        with pytest.warns(flow.UntriedTritonWarning, match=r"triton 9\.0\.0 is newer") as told:
            reports = [funnel.prune(scale_problem(), Space(BLOCKS)) for _ in range(2)]
    flow._notice_of_untried_triton.cache_clear()
    assert [len(report.kept) for report in reports] == [4, 4]
    assert len(told) == 1
