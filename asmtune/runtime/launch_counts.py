"""Counts launches, and names the kernels whose launches are shorter than the host's time for one.

The launcher counts by itself, in C (`launch/native/plan.c`): a launch of a known key costs no call
of Python. How long a launch takes on the GPU is what the store has of its key: the time of its
config, else its prediction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.settings import Settings
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.calls import KernelCall, memory_key
from asmtune.runtime.events import planning, recording, whole_record

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningRequest

FEWEST: Final = 30
"""Launches of a kernel that say something of the program, and not of how it starts."""


@dataclass(frozen=True)
class LaunchTally:
    """Launches of one kernel, their mean time of the host, and that of the GPU where it is known.

    What the host does before a launch counts where it follows another one within a millisecond.
    """

    kernel: str
    count: int
    host_us: float
    gpu_us: float | None

    @property
    def is_short(self) -> bool:
        """Return whether a launch takes the host longer than the GPU."""
        return self.gpu_us is not None and self.gpu_us < self.host_us


class LaunchCounts:
    """The plans of a program's launches, each with the key that it is for."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, tuple[Any, ...]], tuple[TuneKey, Provenance]] = {}
        self._plans: list[tuple[str, tuple[Any, ...], Any]] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the launches of all plans that are made, until the context is left."""
        with ExitStack() as held:
            held.enter_context(recording(self._requested))
            held.enter_context(planning(self._planned))
            yield

    def _requested(self, request: TuningRequest, call: KernelCall) -> None:
        name = request.key.kernel, memory_key(call, request.key.shape)
        self._keys[name] = request.key, request.expected

    def _planned(self, kernel: str, key: tuple[Any, ...], plan: Any) -> None:
        plan.count(True)
        self._plans.append((kernel, key, plan))

    def tallies(self) -> list[LaunchTally]:
        """Sum up the launches by kernel."""
        kernels: dict[str, list[tuple[tuple[Any, ...], Any]]] = defaultdict(list)
        for kernel, key, plan in self._plans:
            if plan.followed:
                kernels[kernel].append((key, plan))
        return [self._tally(kernel, plans) for kernel, plans in sorted(kernels.items())]

    def _tally(self, kernel: str, plans: list[tuple[tuple[Any, ...], Any]]) -> LaunchTally:
        count = sum(plan.launches for _, plan in plans)
        host_ns = sum((p.before_ns / p.followed + p.quickest_ns) * p.launches for _, p in plans)
        times = [self._gpu_us(kernel, key, plan.config) for key, plan in plans]
        known = [us * p.launches for us, (_, p) in zip(times, plans, strict=True) if us is not None]
        gpu_us = sum(known) / count if len(known) == len(plans) else None
        return LaunchTally(kernel, count, host_ns / count / 1000, gpu_us)

    def _gpu_us(self, kernel: str, key: tuple[Any, ...], config: Any) -> float | None:
        """Return the time of a key's launch with a config: measured, else predicted, or None."""
        from asmtune.store.safe_store import open_user_store

        if (kernel, key) not in self._keys:
            return None
        asked = self._keys[kernel, key]
        record = whole_record(*asked)
        timed = () if record is None else record.measurements
        us = next((one.median_us for one in timed if one.config == config), None)
        if us is not None:
            return us
        stored = open_user_store(Settings.from_environment()).find_prediction(*asked)
        return stored.predicted_us if stored is not None and stored.config == config else None

    def launch_bound(self) -> list[str]:
        """Say by kernel where the host's launches limit the program; nothing if the GPU does.

        A launch whose time on the GPU is not known counts as long as the host takes for it.
        """
        tallies = self.tallies()
        host_us = sum(one.count * one.host_us for one in tallies)
        gpu_us = sum(
            one.count * (one.host_us if one.gpu_us is None else one.gpu_us) for one in tallies
        )
        if gpu_us >= host_us:
            return []
        return [
            f"launch-bound: {one.kernel}: {one.count:,} launches of {one.gpu_us:.1f} us, "
            f"for each of which the host takes {one.host_us:.1f} us; fuse them or capture them "
            "in a CUDA graph"
            for one in tallies
            if one.is_short and one.count >= FEWEST
        ]
