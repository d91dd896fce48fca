"""A budget of compiles: what is predicted before compiling, and what then is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Features, PruneReport, Selection, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.prune import front as judge
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.picking import COMPILES, first_pick
from asmtune.predict.prune.ranking import default_budget
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorer import Candidate, Scorer
from asmtune.predict.score.scorers import make_scorer
from tests.sample_kernels import product_problem, scale_problem
from tests.tuning_support import problem, space

BLOCKS = Space({"BLOCK": (64, 100, 128, 256, 512, 1024), "num_warps": (4, 8)})
TILES = Space(
    {
        "BLOCK_M": (64,),
        "BLOCK_N": (64, 128),
        "BLOCK_K": (32,),
        "num_stages": (2, 3),
        "num_warps": (4,),
    }
)


class ByBlock(Scorer):
    """Prefers large blocks at either moment; counts what it is asked."""

    name = "by block"
    ranks_before_compiling = True

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The value of BLOCK; the features must be there."""
        assert all(candidate.features is not None for candidate in candidates)
        return [float(candidate.config.kwargs["BLOCK"]) for candidate in candidates]


@pytest.fixture
def funnel(target: Target, settings: Settings) -> Funnel:
    """A funnel that compiles the best two by block size, and keeps all of them."""
    return Funnel(target, ByBlock(), settings, compile=Keep(2))


def fallen(report: PruneReport, stage: str | None) -> list[Verdict]:
    """Verdicts of a stage."""
    return [verdict for verdict in report.verdicts if verdict.dropped_at == stage]


def by_axes(verdicts: Sequence[Verdict]) -> list[tuple[int, int]]:
    """BLOCK and num_warps of each."""
    return [(v.config.kwargs["BLOCK"], v.config.num_warps) for v in verdicts]


def test_what_is_compiled(funnel: Funnel) -> None:
    """The best by rank and the default are compiled; the others say their rank and time."""
    report = funnel.prune(scale_problem(), BLOCKS)
    assert by_axes(report.kept) == [(1024, 4), (1024, 8), (64, 4)]
    assert [verdict.rank for verdict in report.kept] == [1, 2, 3]
    left = fallen(report, "sketch")
    assert by_axes(left) == [
        (512, 4), (512, 8), (256, 4), (256, 8), (128, 4), (128, 8), (64, 8),
    ]  # fmt: skip
    for rank, verdict in zip((3, 4, 5, 6, 7, 8, 10), left, strict=True):
        assert str(verdict.reasons[0]) == (
            f"sketched_only: rank {rank} before compiling, 2 are compiled"
        )
        assert (verdict.kept, verdict.rank, verdict.artifact) == (False, None, None)
        assert verdict.features is None
        assert verdict.predicted_us is not None
        assert verdict.predicted_us > 0
    assert report.dropped() == {("sketch", "sketched_only"): 7, ("compile", "kernel"): 2}
    assert report.summary() == (
        "12 candidates: 0 ruled out, 2 failed to compile, 7 sketched only, 3 compiled"
    )
    assert (report.compiled, report.selection) == (Selection("2", 2), None)
    assert "sketch" in report.seconds
    places = [verdict.dropped_at for verdict in report.verdicts]
    assert places == [None] * 3 + ["sketch"] * 7 + ["compile"] * 2


def test_rules_that_a_sketch_can_apply(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared memory is known before compiling and drops; registers are estimates and do not."""
    tight = replace(target, shared_bytes_per_block=20_000)
    front = Funnel(tight, make_scorer("roofline"), settings).front(product_problem())
    configs = list(TILES.configs())
    before = front.verdicts(configs, "sketch", {})
    after = front.verdicts(configs, "assembly", {})
    assert [v.dropped_at for v in before] == [v.dropped_at for v in after]
    assert {v.dropped_at for v in before} == {None, "rules"}
    assert {v.reasons[0].rule for v in before if not v.kept} == {"shared_memory"}
    weighed = judge.launch_features

    def crowded(*reading: Any) -> Features:
        return Features({**weighed(*reading), "programs_per_sm_by_registers": 0.0})

    monkeypatch.setattr(judge, "launch_features", crowded)
    wide = Funnel(target, make_scorer("roofline"), settings).front(product_problem())
    assert all(v.kept for v in wide.verdicts(configs, "sketch", {}))
    assert {v.reasons[0].rule for v in wide.verdicts(configs, "assembly", {})} == {"registers"}


def test_a_sketch_that_cannot_be_read(funnel: Funnel) -> None:
    """Nothing is known against a config whose sketch cannot be read: it is compiled."""
    problem, config = scale_problem(), Config({"BLOCK": 128}, num_warps=8)
    (built,) = funnel.judge(problem, [config])
    unread = {built.artifact or "": Failure("read", "parse", "an operation that is not known")}
    report = replace(funnel, sketches=unread).prune(problem, BLOCKS)
    assert config in [verdict.config for verdict in report.kept]
    failed = {built.artifact or "": Failure("ttgir", "compiler", "a pass failed")}
    report = replace(funnel, sketches=failed).prune(problem, BLOCKS)
    (verdict,) = (verdict for verdict in report.verdicts if verdict.config == config)
    assert (verdict.dropped_at, verdict.reasons[0].rule) == ("compile", "compiler")


def test_refused_before_anything_is_compiled(
    funnel: Funnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scorer that cannot rank before compiling, or choose how many, is refused at once."""
    monkeypatch.setattr(Funnel, "front", lambda *_: pytest.fail("compiled"))
    with pytest.raises(InputError, match=r"compile 2: chance ranks only what is compiled; "):
        replace(funnel, scorer=make_scorer("chance")).prune(scale_problem(), BLOCKS)
    auto = Keep.of("auto", "compile")
    with pytest.raises(InputError, match=r"compile auto: the error of by block before compiling"):
        replace(funnel, compile=auto).prune(scale_problem(), BLOCKS)


def test_auto_of_a_small_space(
    funnel: Funnel,
) -> None:
    """A space no larger than what auto would compile is compiled whole, without sketches."""
    roofline = replace(funnel, scorer=make_scorer("roofline"))
    assert default_budget(make_scorer("chance")) is None
    auto = default_budget(roofline.scorer)
    assert auto == Keep.of("auto", "compile")
    whole = replace(roofline, compile=None).prune(scale_problem(), BLOCKS)
    small = replace(roofline, compile=auto).prune(scale_problem(), BLOCKS)
    assert replace(small, seconds={}) == replace(whole, seconds={})
    assert "sketch" not in small.seconds


def test_a_pick_sketches_all_and_compiles_few(
    empty_settings: Settings, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each config of a space is sketched; the best and the default are compiled; rank 1 wins."""
    seen: dict[str, list[Config]] = {"sketch": [], "assembly": []}
    plain = ProblemAnalysis.verdicts

    def noted(self: ProblemAnalysis, configs: Sequence[Config], moment: Any, known: Any) -> Any:
        seen[moment] += configs
        return plain(self, configs, moment, known)

    monkeypatch.setattr(ProblemAnalysis, "verdicts", noted)
    picking = Funnel(target, make_scorer("roofline"), empty_settings)
    pick = first_pick(picking, problem(), space())
    assert sorted(map(str, seen["sketch"])) == sorted(map(str, space()))
    assert COMPILES <= len(seen["assembly"]) <= COMPILES + 2
    assert pick.config in seen["assembly"]
    assert (pick.rank, pick.kept) == (1, True)
    assert pick.predicted_us is not None
    assert first_pick(picking, problem(), space()) == pick
