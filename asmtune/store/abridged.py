"""A record with what its reader needs: the fastest configs, and by how much the winner leads."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from asmtune.core.records.timings import Measurement
from asmtune.core.records.tuned import TuneRecord
from asmtune.store.codec import config_text

_DECIMALS: Final = 3  # nanoseconds; event timers resolve less


def abridged(record: TuneRecord, count: int) -> TuneRecord:
    """A record of its winner and the fastest others, without samples and failures.

    Times are rounded to 1 ns, but for those below it.

    Args:
        record: with its winner among the timings.
        count: timings to keep, the winner's among them; at least that.
    """
    winner = config_text(record.winner)
    ranked = sorted(
        record.measurements, key=lambda timing: (config_text(timing.config) != winner, _us(timing))
    )
    kept = sorted(ranked[: max(count, 1)], key=_us)
    return replace(record, measurements=tuple(map(_rounded, kept)), failures=())


def _us(timing: Measurement) -> float:
    return timing.median_us


def _rounded(timing: Measurement) -> Measurement:
    times = {name: getattr(timing, name) for name in ("median_us", "p20_us", "p80_us")}
    rounded = {name: round(us, _DECIMALS) or us for name, us in times.items()}
    return replace(timing, samples_us=(), **rounded)
