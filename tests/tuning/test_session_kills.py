"""Processes that tune one key: SIGKILL at 24 moments loses nothing, and ranks agree."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.predict.prune.flow import Funnel
from asmtune.store.database import Store
from asmtune.store.safe_store import SafeStore
from asmtune.store.trace.run import run_files
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import EFFORTS
from asmtune.tuning.search.base import BatchSizes
from asmtune.tuning.tuner import Tuner
from tests.store.children import dies_at, finish, memory_folder, say, spread, start
from tests.tuning_support import (
    BEST,
    HostMachine,
    problem,
    request,
    resolved,
    usual_us,
    workshop,
)

KILLS = 24
EFFORT = replace(
    EFFORTS["exhaustive"],
    name="often",
    scorer="roofline",
    pace=BatchSizes(first=4, batch=4, trial=2),
)


def tune(
    folder: Path, n: int, funnel: Funnel | None = None, pipe: int = -1, last: float = math.inf
) -> Tuner:
    """Tune one problem; tell of the end with its count of events.

    A funnel of an earlier run has everything compiled and read. SIGKILL ends it at event `last`.
    """
    events = dies_at(last) if pipe >= 0 else None
    tuning = workshop(folder, HostMachine())
    tuning.options = replace(tuning.options, effort=EFFORT)
    tuning.funnel = funnel or tuning.funnel
    resolved(tuning, made=problem(n))
    if events:
        say(pipe, "done", n, events())
    return tuning


@pytest.mark.slow(seconds=11)
def test_killed_at_24_moments() -> None:
    """After each kill the store is sound and has each record that was reported; runs go on."""
    with memory_folder() as name:
        folder = Path(name)
        funnel = tune(folder, 64).funnel
        last, done = 0, {64}
        for n in (128, 192):
            seen = finish(*start(lambda pipe, n=n: tune(folder, n, funnel, pipe))).split()
            last, done = max(last, int(seen[2])), done | {n}
        n = 256
        for moment in spread(KILLS, seed=5):
            at = 1.3 * moment * last
            child = start(lambda pipe, n=n, at=at: tune(folder, n, funnel, pipe, at))
            lines = finish(*child).splitlines()
            assert not [line for line in lines if not line.startswith("done")], lines
            if lines:
                done, n = done | {n}, n + 64
            with Store.open(folder / "store.sqlite") as store:
                assert store.verify() == []
                assert done <= {one.key.shape["n"] for one in store.records()}
        tune(folder, n, funnel)
        with Store.open(folder / "store.sqlite") as store:
            (record,) = (one for one in store.records() if one.key.shape["n"] == n)
        assert record.winner == BEST
        assert 3 <= (n - 256) // 64 < KILLS, "the kills came too early or too late to show anything"


RANKS = 8


def test_eight_ranks_agree() -> None:
    """Each rank's clock says something else; yet all get the config of the one that tuned."""
    with memory_folder() as name:
        folder = Path(name)

        def rank(number: int, pipe: int) -> None:
            machine = HostMachine(lambda config: usual_us(config) * (1 + 0.01 * number))
            result = resolved(workshop(folder, machine))
            say(pipe, result.outcome, result.record.winner, result.record.median_us)

        ranks = [start(lambda pipe, n=n: rank(n, pipe)) for n in range(RANKS)]
        told = [finish(*each).strip() for each in ranks]
        outcomes = [line.split(maxsplit=1)[0] for line in told]
        assert sorted(outcomes) == ["known"] * (RANKS - 1) + ["tuned"], told
        assert len({line.split(maxsplit=1)[1] for line in told}) == 1, told
        assert str(BEST) in told[0]
        assert len(run_files(folder / "runs")) == 1


def test_who_waits_is_told_for_whom(tmp_path: Path) -> None:
    """A process that waits says which one it waits for; one that does not is busy at once."""

    class Listener(TuningListener):
        """Hears for whom is waited, and lets that one end."""

        def waiting(self, holder: str) -> None:
            heard.append(holder)
            flight.__exit__(None, None, None)

    heard: list[str] = []
    first, second = (workshop(tmp_path, HostMachine()) for _ in range(2))
    made = request(first)
    flight = first.store.lease(made.key, made.expected)
    assert flight.mine
    hasty = workshop(tmp_path, HostMachine())
    hasty.store = SafeStore(str(tmp_path / "store.sqlite"), wait_s=0.0)
    busy = hasty.resolve(made)
    assert (busy.outcome, busy.record) == ("busy", None)
    second.listener = Listener()
    assert second.resolve(made).outcome == "tuned"
    assert str(os.getpid()) in heard[0]
