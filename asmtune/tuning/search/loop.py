"""The loop: workers compile the next batch while the GPU times the last one."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.core.config import Config
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.search.base import (
    Compiler,
    Limits,
    Proposal,
    SearchResult,
    Strategy,
    TrialTimer,
)
from asmtune.tuning.search.state import SearchState

MOST_IN_VAIN: Final = 32
"""Configs that fail on the GPU before one runs: then it is not the configs that are at fault."""


def run(
    strategy: Strategy,
    state: SearchState,
    compiler: Compiler,
    timer: TrialTimer,
    limits: Limits,
    observer: TuningListener | None = None,
) -> SearchResult:
    """Compile and time until the strategy sees no gain, or a limit is reached; fill the state.

    Whatever is raised, `KeyboardInterrupt` as well, passes through and leaves the state with
    all that was known by then. A batch that is being compiled when the search ends is not
    waited for.
    """
    observer = observer or TuningListener()
    observer.search_started(state)
    reason = _Search(strategy, state, compiler, timer, limits, observer).until()
    return SearchResult(reason, state.finalists(limits.finalists))


def batch_of(
    proposal: Proposal, state: SearchState, limits: Limits, first: Sequence[Config] = ()
) -> list[Config]:
    """Return the batch of a proposal and of other configs, within the limit of compiles."""
    batch = list(dict.fromkeys([*first, *proposal.configs]))
    # What is put in front takes the place of others: the workers are as many as before.
    size = max(len(first), len(proposal.configs))
    if limits.compiles is not None:
        size = min(size, max(limits.compiles - state.compiles, 0 if state.compiles else 1))
    return _longest_first(batch[:size], state)


def _longest_first(batch: Sequence[Config], state: SearchState) -> list[Config]:
    """Order a batch so that its slow compiles do not begin last, by instructions of the sketches.

    On 16 processors the second of two rounds of an epilogue's batch began with the slowest: 3.0 s.
    Instructions rank the seconds of recorded compiles at 0.79 to 0.97 (Spearman, 4 kernels). What
    is not known begins first.
    """

    def size(config: Config) -> float:
        features = state.initial[config].features
        return math.inf if features is None else features.get("instructions", math.inf)

    return sorted(batch, key=size, reverse=True)


@dataclass
class _Search:
    """A run of the loop."""

    strategy: Strategy
    state: SearchState
    compiler: Compiler
    timer: TrialTimer
    limits: Limits
    observer: TuningListener
    proposal: Proposal = field(default_factory=Proposal)

    def until(self) -> str:
        """Run to the end; return why it ended."""
        if not self.state.configs:
            return f"none of {len(self.state.initial)} configs can run: rules dropped all"
        self._compile(self.state.opening())
        while True:
            if self.state.pending:
                self._collect()
                if not self.state.pending and self.state.later is None:
                    self._compile()
            timed = self._time()
            ended = self._spent()
            if not ended and self._may_compile() and self.state.rank_again():
                self.observer.ranked_again(self.state)
                ended = self._spent()  # that may have taken seconds
            if not ended and not self.state.pending:
                self._compile()  # With the last timings known, there may be more to gain.
                if not self.state.pending and not timed:
                    ended = self._exhausted()
            if ended:
                return ended

    def _compile(self, first: Sequence[Config] = ()) -> None:
        """Start the next batch, with some configs in front; none if nothing is left."""
        self.proposal = self.strategy.propose(self.state)
        batch = batch_of(self.proposal, self.state, self.limits, first)
        if batch:
            self.state.begin_batch(batch, self.proposal.gain)
            self.compiler.start(batch)

    def _collect(self) -> None:
        start = time.monotonic()
        verdicts = self.compiler.collect()
        more = self.proposal.as_they_come and bool(verdicts)
        self.state.add_verdicts(verdicts, more=more)
        self.observer.batch(verdicts, time.monotonic() - start)

    def _time(self) -> bool:
        """Time what is worth it; return whether anything was."""
        state = self.state
        if state.default in state.pending:
            return False  # its output is what the others' are compared with
        chosen = list(dict.fromkeys([*state.due(), *self.strategy.select(state)]))
        if not chosen:
            return False
        outcomes = self.timer.trial([state.verdicts[config] for config in chosen])
        state.add_outcomes(outcomes)
        self.observer.trial(outcomes, self.proposal.gain)
        return True

    def _may_compile(self) -> bool:
        most = self.limits.compiles
        return most is None or self.state.compiles < most

    def _spent(self) -> str:
        """Return the limit that ends the search at once; "" if none is reached."""
        state, limits = self.state, self.limits
        if state.default in state.pending:
            return ""  # without it nothing can be timed
        if state.seconds >= limits.seconds:
            return f"budget: {limits.seconds:g} s spent"
        # A bound may be kept by few: what breaks it is not tried in vain.
        inaccurate = sum(failure.kind == "inaccurate" for failure in state.failures.values())
        if not state.timings and state.trials - inaccurate >= MOST_IN_VAIN:
            return f"none of the first {state.trials} configs tried ran: {_commonest(state)}"
        return ""

    def _exhausted(self) -> str:
        state = self.state
        if not self._may_compile() and self.proposal.configs:
            return f"budget: {state.compiles} configs compiled"
        if not state.timings:
            return f"none of {len(state.failures)} configs tried ran: {_commonest(state)}"
        return self.proposal.reason


def _commonest(state: SearchState) -> str:
    """Describe the commonest failure, with an example."""
    kinds = Counter((failure.stage, failure.kind) for failure in state.failures.values())
    (kind, count) = kinds.most_common(1)[0]
    config, failure = next((c, f) for c, f in state.failures.items() if (f.stage, f.kind) == kind)
    return f"{count} fail as {config} does: {failure}"
