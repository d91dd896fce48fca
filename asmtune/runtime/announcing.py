"""What Triton's own knobs ask to be told of a tuning: `knobs.autotuning.print` and `listener`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asmtune.core.records.tuned import TuneRecord
from asmtune.runtime.misses.answers import Choice, Miss
from asmtune.runtime.triton_configs import as_triton, timings_ms


def announce(miss: Miss, choice: Choice, key: tuple[Any, ...], choices: Mapping[str, Any]) -> None:
    """Tells of a key that was tuned, or found in a store, as Triton's autotuner would.

    Args:
        miss: the launch.
        choice: its config.
        key: as `kernel.cache` has it.
        choices: of how to tune, by keyword.
    """
    from triton import knobs

    if choice.how not in ("tuned", "known"):
        return
    tuned = choice.how == "tuned"
    if knobs.autotuning.print and tuned:
        kernel = miss.problem.name
        print(f"asmtune: {kernel} at {key}: {choice.config}, tuned in {choice.seconds:.2f} s")  # noqa: T201
    listener = getattr(knobs.autotuning, "listener", None)  # newer than Triton 3.6
    if listener is None:
        return
    record = choice.record or _record(miss, choices)
    if record is not None:
        listener(
            fn=_function(miss),
            key=key,
            best_config=as_triton(choice.config),
            configs_timings=timings_ms(record),
            duration=choice.seconds if tuned else None,
            cache_hit=not tuned,
        )


def _record(miss: Miss, choices: Mapping[str, Any]) -> TuneRecord | None:
    """The whole record of a key whose config alone was read."""
    from asmtune.base.settings import Settings
    from asmtune.store.layers import find_tuned
    from asmtune.store.safe_store import open_user_store
    from asmtune.tuning.identity import expected_of

    shelf = open_user_store(Settings.from_environment())
    return find_tuned(miss.key, expected_of(miss.problem, miss.space, choices), shelf).record


def _function(miss: Miss) -> Any:
    from asmtune.core.problem import jit_function

    return jit_function(miss.problem.kernel)
