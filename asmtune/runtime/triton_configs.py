"""Configs as Triton's, for programs and for Triton itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord


def as_triton(config: Config) -> Any:
    """A `triton.Config` of the same values."""
    import triton

    options = (config.num_warps, config.num_stages, config.num_ctas, config.maxnreg)
    return triton.Config(config.kwargs, *options, config.pre_hook, config.ir_override)


def as_listed(config: Config, listed: Sequence[Any]) -> Any:
    """The one of a program's own configs that means the same, else a new `triton.Config`.

    Programs compare `best_config` with what they listed, and look it up among it.
    """
    wanted = config.all_kwargs()
    for own in listed:
        if own is config or own.all_kwargs() == wanted:
            return own
    return as_triton(config)


def timings_ms(record: TuneRecord) -> dict[Any, list[float]]:
    """`[median, p20, p80]` in milliseconds by `triton.Config`."""
    return {
        as_triton(timed.config): [timed.median_us / 1e3, timed.p20_us / 1e3, timed.p80_us / 1e3]
        for timed in record.measurements
    }
