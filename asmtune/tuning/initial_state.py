"""The state that a search begins with: sketches, and seeds of other keys' records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.features.sketch.reader import can_sketch
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.ranking import Ranker
from asmtune.predict.prune.rounds import WORTH_IT, SketchRounds, thinned
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import make_scorer
from asmtune.store.codec import config_text
from asmtune.store.neighbours import neighbours
from asmtune.triton_api.user_state import carried
from asmtune.tuning.options import Effort

MOST_SEEDS: Final = 6
"""Configs of other shapes and devices that go into the first batch; half of them may be of other
devices, or all where this device has no record. The 6 best of the same key on an H100 or H200 kept
0.997 of the best speed with 8 timings on the other, the 2 best 0.996."""

BEST_OF_EACH: Final = 2
"""Number of a record's fastest configs that are seeds; of the same code and key more."""


def seeds_of(
    records: Collection[TuneRecord], key: TuneKey, here: Target | None = None
) -> tuple[Config, ...]:
    """Return configs that were good on other shapes or devices, the nearest record's first.

    Args:
        records: of any keys; those of the key's kernel and dtypes count, in order of `neighbours`.
        key: the key to be tuned.
        here: the device's target; without it other devices are left out.
    """
    near = neighbours(records, key, here)
    most = MOST_SEEDS // 2 if any(one.is_here for one in near) else MOST_SEEDS
    seeds: dict[Config, None] = {}
    elsewhere = 0
    for one in near:
        count = most if one.same_code else BEST_OF_EACH
        fastest = sorted(one.record.config_timings, key=lambda m: m.median_us)[:count]
        own = dict.fromkeys([one.record.winner.plain, *(m.config for m in fastest)])
        fresh = [config for config in own if config not in seeds]
        if not one.is_here:
            fresh = fresh[: most - elsewhere]
            elsewhere += len(fresh)
        seeds |= dict.fromkeys(fresh)
    return tuple(seeds)[:MOST_SEEDS]


MOST_SKETCHES: Final = 384
FOR_A_FIRST: Final = 8
"""Sketches of a large space at most, and for each config of a search's first batch. 384 are enough
for the batches of a thorough search, whose models then see hardly an estimate."""

SHARES: Final = (0.25, 0.6, 1.0)
"""Shares of the sketches that are made until each round ends. The first batch is ranked by the
first round, and compiled during the others. In a replay of 5 shapes of a GEMM with 674 configs
`balanced` kept 0.9999 of the best speed with 77 compiles, as with a first round of 0.4; with 0.15
it kept 0.993, and with all rounds before the first batch 1.0 with 128 compiles."""


FOR_A_WORKER: Final = 2
"""Configs of a short list for each worker. A sketch costs a tenth of a compile, and a first batch
is compiled after the sketches: compiling all takes no more than one round of compiles longer."""


def is_short(count: int, effort: Effort, jobs: int) -> bool:
    """Return whether `count` configs are all compiled at once by `jobs` workers.

    Nothing is sketched, and no model chooses: a first batch would be all or nearly all of them.
    """
    return effort.strategy == "model" and count <= max(effort.pace.first, FOR_A_WORKER * jobs)


class FirstRanking:
    """Ranks a space before compiling: at once for the first batch, and better while that compiles.

    A sample of a large space is sketched first, and a thread sketches the rest of the best. Another
    thread loads the scorer.

    Attributes:
        front: sketches the configs.
        verdicts: on all configs, in the space's order, for the first batch.
    """

    def __init__(self, front: ProblemAnalysis, scorer: Scorer) -> None:
        self.verdicts: list[Verdict] = []
        self.front, self._scorer = front, scorer
        self._threads = ThreadPoolExecutor(2, "asmtune-rank", carried())
        self._rounds: SketchRounds | None = None
        self._sketches: Future[list[Verdict]] | None = None
        self._sketching: ProblemAnalysis | None = None
        self._closed = False

    @property
    def later(self) -> Callable[[], list[Verdict]] | None:
        """Return a function that waits for the verdicts for later batches; None if none come."""
        return None if self._rounds is None else self._wait

    def sketch(self, funnel: Funnel, configs: Sequence[Config], effort: Effort) -> None:
        """Sketch all configs, or a sample of a large space, while the scorer is loaded."""
        front = self.front
        ready = self._threads.submit(self._scorer.prepare)
        most = min(MOST_SKETCHES, FOR_A_FIRST * effort.pace.first)
        if len(configs) <= WORTH_IT * most:
            self.verdicts = front.verdicts(configs, "sketch", funnel.sketches)
        else:
            ranker = Ranker(make_scorer("roofline"), funnel.target, "sketch")
            self._rounds = SketchRounds(front, configs, ranker, most, funnel.sketches, SHARES)
            self._rounds.advance(front)
            self.verdicts = self._rounds.candidates()
        ready.result()

    def start(self) -> None:
        """Start the rest of the sketches, if workers can make them beside compiles."""
        # One worker is busy with compiles.
        if self.front.workers.jobs > 1:
            self._start()

    def stop(self) -> None:
        """Begin no further round of sketches, and end the one that runs."""
        self._closed = True
        if self._sketching is not None:
            self._sketching.stop()

    def close(self) -> None:
        """End what runs in the background, and wait for it."""
        self.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _rest(self, rounds: SketchRounds, front: ProblemAnalysis) -> list[Verdict]:
        while not self._closed and rounds.advance(front):
            pass
        return rounds.candidates()

    def _start(self) -> None:
        if self._rounds is not None and self._sketches is None:
            # Stragglers of a batch are given up without ending the sketches.
            self._sketching = self.front.fork()
            self._sketches = self._threads.submit(self._rest, self._rounds, self._sketching)

    def _wait(self) -> list[Verdict]:
        self._start()
        return self.verdicts if self._sketches is None else self._sketches.result()


def first_ranking(
    funnel: Funnel,
    front: ProblemAnalysis,
    configs: Sequence[Config],
    effort: Effort,
    wanted: Iterable[Config] = (),
) -> FirstRanking:
    """Judge each config before compiling: by its sketch where that is worth it, else by rules.

    A part of a very large space is judged, the `wanted` ones among it.
    """
    sketches = (
        effort.strategy == "model"
        and not is_short(len(configs), effort, front.workers.jobs)
        and funnel.scorer.ranks_before_compiling
        and can_sketch(front.target)
    )
    ranking = FirstRanking(front, funnel.scorer)
    with ExitStack() as stack:
        stack.callback(ranking.close)
        if sketches:
            configs = thinned(configs, MOST_SKETCHES, wanted)
            ranking.sketch(funnel, configs, effort)
        else:
            ranking.verdicts = [front.by_rules(config) for config in configs]
        stack.pop_all()
    return ranking


def own_seeds(configs: Sequence[Config], seeds: Iterable[Config]) -> tuple[Config, ...]:
    """Return the space's own configs that equal seeds, behind those of hand-edited IR.

    A config of the store has no `pre_hook`; the space's own takes its place. One with a derived
    cap, which is not of the space, is left out: it is derived again. No model can predict
    hand-edited configs.
    """
    own = {config_text(config): config for config in configs}
    near = [mine for config in seeds if (mine := own.get(config_text(config))) is not None]
    edited = (config for config in configs if config.ir_override is not None)
    return tuple(dict.fromkeys([*edited, *near]))
