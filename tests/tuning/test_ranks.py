"""Processes that miss one key together: one tunes, and all launch the same config."""

from __future__ import annotations

import os
from pathlib import Path

from asmtune.store.trace.run import run_files
from asmtune.tuning.listener import TuningListener
from tests.store.children import finish, memory_folder, say, start
from tests.tuning_support import (
    BEST,
    HostMachine,
    request,
    resolved,
    usual_us,
    workshop,
)

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
    busy = workshop(tmp_path, HostMachine(), on_busy="fallback").resolve(made)
    assert (busy.outcome, busy.record) == ("busy", None)
    second.listener = Listener()
    assert second.resolve(made).outcome == "tuned"
    assert str(os.getpid()) in heard[0]
