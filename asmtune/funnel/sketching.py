"""Which configs are worth a compile, by a prediction before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.funnel.ranking import Ranker, line_up
from asmtune.records import Reason, Selection, Verdict
from asmtune.score import Scorer, moments_of
from asmtune.score.keep import Keep, table_of


def default_budget(scorer: Scorer) -> Keep | None:
    """Return `auto` where the scorer's error before compiling was measured, else None for all."""
    is_measured = "sketch" in moments_of(scorer) and table_of(scorer.name, "sketch") is not None
    return Keep(option="compile") if is_measured else None


@dataclass(frozen=True)
class Shortlist:
    """What a prediction before compiling leaves.

    Attributes:
        configs: to compile: the best, near ties of other tiles, the default, and those whose
            sketch cannot be read.
        dropped: what cannot run, and those below, best first.
        selection: how many ranks are compiled; None for all.
    """

    configs: tuple[Config, ...]
    dropped: tuple[Verdict, ...] = ()
    selection: Selection | None = None


def check_compile(budget: Keep, scorer: Scorer) -> None:
    """Refuses a budget of compiles that a scorer cannot spend.

    Raises:
        InputError: it ranks nothing before compiling, or the budget is auto and its error
            at this moment was never measured.
    """
    if "sketch" not in moments_of(scorer):
        raise InputError(
            f"compile {budget}: {scorer.name} ranks only what is compiled; "
            "compile all, or rank by learned or roofline"
        )
    budget.check(scorer.name, "sketch")


def shortlisted(
    sketched: Sequence[Verdict], ranker: Ranker, budget: Keep, default: Config
) -> Shortlist:
    """Ranks what can run as far as a sketch tells, and takes the best.

    Args:
        sketched: verdicts of rules and sketches.
        ranker: at the moment "sketch".
        budget: how many.
        default: taken whatever its rank.
    """
    line = line_up([verdict for verdict in sketched if verdict.kept], ranker, budget)
    configs: list[Config] = []
    dropped: list[Verdict] = []
    for verdict in sketched:
        if verdict.failure is not None and verdict.failure.stage == "read":
            # Nothing is known against it: the compiler took it, and its assembly can tell.
            configs.append(verdict.config)
        elif not verdict.kept:
            dropped.append(verdict)
    for index, verdict in enumerate(line.verdicts):
        if line.keeps(index) or verdict.config == default:
            configs.append(verdict.config)
        else:
            dropped.append(_uncompiled(verdict, index + 1, line.most))
    return Shortlist(tuple(configs), tuple(dropped), line.selection)


def _uncompiled(verdict: Verdict, rank: int, most: int) -> Verdict:
    """A config left out: its predicted time stands, its features were but estimates."""
    reason = Reason("sketched_only", f"rank {rank} before compiling, {most} are compiled")
    return replace(
        verdict, kept=False, dropped_at="sketch", reasons=(reason,), features=None, artifact=None
    )
