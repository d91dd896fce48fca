"""Where a run took place, and what of that forbids to compare it with another."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from asmtune.base.fingerprint import digest, versions
from asmtune.measure.timing.nvml import device_name, driver_version
from asmtune.studies.regression.run import BenchRun, Environment

_CLOCKS_APART: Final = 0.02
"""Relative difference of two runs' SM clocks that is said."""

_MOST_MHZ: Final = 1e6
"""Whatever a file has beyond is no clock."""

_HINDERED: Final = ("power cap", "slowdown", "power brake", "thermal")


def environment_here() -> Environment:
    """Of PyTorch's current CUDA device, in this process."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(getattr(properties, "uuid", ""))
    return Environment(
        gpu=device_name(),
        board=digest(uuid)[:12] if uuid else "",
        driver=driver_version(),
        versions={**versions(), "cuda": str(torch.version.cuda)},
    )


def obstacles(base: BenchRun, run: BenchRun, *, any_board: bool) -> list[str]:
    """Why nothing of two runs may be compared; empty where all may.

    Args:
        base: the baseline.
        run: what is judged.
        any_board: whether two boards of one model are taken for one.
    """
    found = []
    old, new = base.environment, run.environment
    if old.gpu != new.gpu:
        found.append(f"another GPU: the baseline is of {old.gpu}, this run of {new.gpu}")
    if old.driver != new.driver:
        found.append(f"another driver: the baseline is of {old.driver}, this run of {new.driver}")
    if old.gpu == new.gpu and not any_board and _other_board(base, run):
        found.append(
            f"another board: the baseline is of {old.gpu} {old.board}, this run of {new.board}; "
            "measure both on one, or judge by --threshold history, or give --any-board"
        )
    for name in sorted({*base.timing, *run.timing}):
        before, now = base.timing.get(name), run.timing.get(name)
        if before != now:
            found.append(f"timed otherwise: {name} was {before}, and is {now}")
    return found


def remarks(base: BenchRun, run: BenchRun) -> list[str]:
    """What differs and may explain a change, without forbidding to compare."""
    old, new = base.environment, run.environment
    names = sorted({*old.versions, *new.versions})
    pairs = ((n, old.versions.get(n, "none"), new.versions.get(n, "none")) for n in names)
    found = [f"{name}: {before} before, {now} now" for name, before, now in pairs if before != now]
    if old.gpu == new.gpu and _other_board(base, run):
        found.append(f"board: {old.board} before, {new.board} now; boards of a model differ")
    before_mhz, now_mhz = _sm_mhz(base), _sm_mhz(run)
    if before_mhz and now_mhz and abs(now_mhz / before_mhz - 1) > _CLOCKS_APART:
        found.append(f"SM clock: {before_mhz:.0f} MHz before, {now_mhz:.0f} MHz now")
    for what, one in (("baseline", base), ("run", run)):
        reasons = sorted(set(_hindrances(one)))
        if reasons:
            found.append(f"the {what}'s clocks were held back by {', '.join(reasons)}")
    return found


def _other_board(base: BenchRun, run: BenchRun) -> bool:
    boards = {base.environment.board, run.environment.board}
    return len(boards) > 1 and "" not in boards


def _sm_mhz(run: BenchRun) -> float | None:
    """Median of the processes; None where no process told it."""
    found = [process.clocks.get("sm_mhz") for process in run.processes]
    told = [float(mhz) for mhz in found if isinstance(mhz, int | float) and 0 < mhz < _MOST_MHZ]
    return median(told) if told else None


def _hindrances(run: BenchRun) -> Iterator[str]:
    for process in run.processes:
        reasons = process.clocks.get("throttled_by")
        for reason in reasons if isinstance(reasons, list) else ():
            if any(word in str(reason) for word in _HINDERED):
                yield str(reason)
