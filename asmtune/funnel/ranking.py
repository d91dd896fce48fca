"""Which of the configs that can run are worth timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asmtune.config import Config
from asmtune.records import Reason, Verdict
from asmtune.score import Candidate, Scorer
from asmtune.target import Target


def ranked(
    verdicts: Sequence[Verdict], scorer: Scorer, target: Target, keep: int | None, default: Config
) -> list[Verdict]:
    """Scores what can run; keeps the best, and the default whatever its rank.

    Kept configs come first by rank, then what was dropped, by stage.
    """
    running = [verdict for verdict in verdicts if verdict.kept]
    candidates = [Candidate(v.config, target, features=v.features) for v in running]
    scores = scorer.score(candidates)
    best_first = sorted(range(len(running)), key=lambda i: -scores[i])
    most = len(running) if keep is None else max(1, keep)
    done = [verdict for verdict in verdicts if not verdict.kept]
    for rank, index in enumerate(best_first, 1):
        verdict = replace(running[index], rank=rank, score=scores[index])
        if rank > most and verdict.config != default:
            below = Reason("rank", f"rank {rank} by {scorer.name}, {most} are kept")
            verdict = replace(
                verdict, kept=False, dropped_at="score", reasons=(below, *verdict.reasons)
            )
        done.append(verdict)
    return sorted(done, key=_order)


def _order(verdict: Verdict) -> tuple[int, int]:
    """Kept first, then by rank, then compile failures, then what rules dropped."""
    place = {None: 0, "score": 1, "compile": 2, "rules": 3}[verdict.dropped_at]
    return place, verdict.rank or 0
