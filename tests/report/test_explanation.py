"""The explanation of one config: sentences checked by the numbers of its features."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import PruneReport, Verdict
from asmtune.core.space.space import Space
from asmtune.predict.features.reader import ProfileReader
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.roofline import suggestions
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.code import CodeReader
from asmtune.report.explain import Code, Explained, explanation
from tests.sample_kernels import product_problem

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
DEEP = Config(TILE, num_warps=4, num_stages=4)
FLAT = Config(TILE, num_warps=4, num_stages=1)
SPILLS = Config(LARGE, num_warps=4, num_stages=2, maxnreg=96)
ROOMY = Config(LARGE, num_warps=4, num_stages=2)
NONE = Config({**TILE, "BLOCK_K": 24})


def judged(
    problem: Problem, configs: Sequence[Config], target: Target, settings: Settings, keep: int = 9
) -> PruneReport:
    """Configs judged by the roofline."""
    funnel = Funnel(target, make_scorer("roofline"), settings, Keep.of(str(keep)))
    return funnel.prune(problem, Space.from_configs(configs))


def verdict_of(report: PruneReport, config: Config) -> Verdict:
    """The verdict of a config."""
    return next(v for v in report.verdicts if v.config == config)


def gathered(
    problem: Problem, report: PruneReport, config: Config, target: Target, settings: Settings
) -> Explained:
    """Gather the facts of one config, its code as PTX."""
    verdict = verdict_of(report, config)
    found = ArtifactCache.of(settings).get(verdict.artifact or "none")
    reading, code = None, None
    if isinstance(found, Artifact):
        reading = ProfileReader(target).reading(found)
        code: Code | None = CodeReader(problem, target).assembly(config, found)
    tried = suggestions(verdict, report.verdicts)
    return Explained(report, verdict, tried, reading=reading, code=code)


def printed(explained: Explained) -> str:
    """Print as in a terminal."""
    text = io.StringIO()
    Console(file=text, width=300).print(explanation(explained))
    return text.getvalue()


def test_a_product(target: Target, settings: Settings) -> None:
    """Verdict, resources, and the loop with its tensor instruction as PTX."""
    problem = product_problem()
    report = judged(problem, [DEEP, FLAT, NONE], target, settings)
    text = printed(gathered(problem, report, DEEP, target, settings))
    lines = text.splitlines()
    assert lines[0].startswith("BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 num_warps=4")
    assert lines[1] == "on H200: kept, rank 1 of 2 by roofline"
    for part in ("Resources", "Registers a thread"):
        assert part in text
    loop = text[text.index("Hottest loop") :]
    assert "32 trips a program; lines of sample_kernels.py" in loop
    assert "wgmma.mma_async.sync.aligned.m64n64k16" in loop
    assert "$L__BB" in loop
    assert "st.global" not in loop


def test_printed_terms_sum_to_the_printed_prediction(target: Target, settings: Settings) -> None:
    """The table's microseconds are the headline's in all, and the largest is the limit it names."""
    problem = product_problem()
    report = judged(problem, [DEEP, FLAT, SPILLS, ROOMY], target, settings)
    head = r"predicted ([\d.]+) us, limited by (\S+), which takes ([\d.]+) us of them"
    for config in (DEEP, FLAT, SPILLS, ROOMY):
        text = printed(gathered(problem, report, config, target, settings))
        found = re.search(head, text)
        assert found is not None
        table = map(
            _cells, text[text.index("Predicted time") : text.index("Resources")].split("\n")
        )
        rows = {row[0]: float(row[2]) for row in table if len(row) == 4 and row[2] != "us"}
        total = rows.pop("all")
        assert total == float(found[1]) == pytest.approx(sum(rows.values()), abs=1e-6)
        assert (found[2], float(found[3])) == max(rows.items(), key=lambda term: term[1])


def test_a_config_that_does_not_compile(target: Target, settings: Settings) -> None:
    """Stage and reason, once; the nearest config that runs by name; no numbers of its own."""
    problem = product_problem()
    report = judged(problem, [DEEP, FLAT, NONE], target, settings)
    explained = gathered(problem, report, NONE, target, settings)
    text = printed(explained)
    assert "dropped at compile, not ranked" in text
    assert "does not compile: kernel at lower: " in text
    assert text.count("arange's range must be a power of 2") == 1
    other = verdict_of(report, DEEP)
    assert explained.instead == other
    told = f"BLOCK_K 24 -> 32, num_stages 3 -> 4 ({other.predicted_us:.1f} us; rank 1)"
    assert f"the nearest that runs: {told}" in text
    assert "Resources" not in text
    assert "predicted" not in text


def test_a_config_that_cannot_run(target: Target, settings: Settings) -> None:
    """The limit against what it takes; what it would be is told as such; nothing to try."""
    problem, wide = product_problem(), Config(LARGE, num_warps=4, num_stages=15)
    report = judged(problem, [DEEP, ROOMY, wide], target, settings)
    explained = gathered(problem, report, wide, target, settings)
    text = printed(explained)
    features = explained.verdict.features
    assert features is not None
    used, limit = features["shared_bytes"], target.shared_bytes_per_block
    assert f"shared_memory: {used:,.0f} bytes of shared memory, over {limit:,} a program" in text
    assert "could it run, predicted" in text
    assert "try:" not in text
    assert "the nearest that runs: num_stages 15 -> 2" in text


def test_a_config_below_the_cut(target: Target, settings: Settings) -> None:
    """Its rank and how many are kept, its time and that of the last that was kept."""
    problem = product_problem()
    report = judged(problem, [ROOMY, DEEP, FLAT, SPILLS], target, settings, keep=1)
    verdict = verdict_of(report, SPILLS)
    text = printed(gathered(problem, report, SPILLS, target, settings))
    first = next(v for v in report.verdicts if v.rank == 1)
    assert f"rank {verdict.rank} by roofline, 1 are kept" in text
    times = f"predicted {verdict.predicted_us:.1f} us; the last kept, rank 1, "
    assert f"{times}{first.predicted_us:.1f} us" in text


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)]


def test_what_spills_is_told_to_spill_less(target: Target, settings: Settings) -> None:
    """The words that spill, and the same config without the cap, with its time and its rank."""
    problem = product_problem()
    report = judged(problem, [ROOMY, DEEP, FLAT, SPILLS], target, settings)
    verdict, roomy = verdict_of(report, SPILLS), verdict_of(report, ROOMY)
    assert verdict.features is not None
    assert verdict.bottleneck == "L1"
    text = printed(gathered(problem, report, SPILLS, target, settings))
    gain = roomy.predicted_us / verdict.predicted_us - 1
    named = f"({roomy.predicted_us:.1f} us, {gain:+.0%}; rank {roomy.rank})"
    assert verdict.terms_us is not None
    assert roomy.terms_us is not None
    l1 = f"{verdict.terms_us['L1']:.1f} -> {roomy.terms_us['L1']:.1f}"
    assert f"maxnreg 96 -> none: L1 and the load-store units {l1} us {named}" in text
