"""`weights`: the formula that the project began with, kept as it was proposed.

10 x mma.sync + 2 x cp.async - 30 x bar.sync - 5 x (bra + ret), counted by
mnemonic over the whole PTX, cp.async with its commit and wait forms. On Hopper
it ranks worse than chance (benchmarks/results/replay.json): it pays for
unrolling, and does not know wgmma. It is the baseline to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asmtune.predict.score.base import Candidate

WEIGHTS: Final = {
    "text_mma_sync": 10.0,
    "text_cp_async": 2.0,
    "text_bar_sync": -30.0,
    "text_bra": -5.0,
    "text_ret": -5.0,
}
"""Points for each occurrence in the PTX, by feature name."""


class Weights:
    """The weighted sum of mnemonic counts."""

    name = "weights"
    draws = 1

    def score(self, candidates: Sequence[Candidate], draw: int = 0) -> list[float]:  # noqa: ARG002
        """The sum for each candidate; one that was not compiled comes last."""
        return [_sum(candidate) for candidate in candidates]


def _sum(candidate: Candidate) -> float:
    features = candidate.features
    if features is None:
        return float("-inf")
    return sum(weight * features[name] for name, weight in WEIGHTS.items())
