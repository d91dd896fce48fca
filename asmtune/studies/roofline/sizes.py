"""Whether the times of a record are of a shape, and not of another that its key covers as well.

A key may hold sizes in buckets (`pow2(M)`), and a record does not say at which of them it was
timed. Three things tell: a key that names every size; the trace of the run that made the record;
and for what ships, that a module's `SHAPES` are what was timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asmtune.base.errors import InputError
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.records.tuned import TuneKey, TuneRecord
from asmtune.store.lookup import StoreLookup
from asmtune.store.trace.folder import runs_of
from asmtune.store.trace.reader import read_summary
from asmtune.store.trace.run import Summary

KeyOf = Callable[[Shape], TuneKey]
"""The key of a launch of a module at a shape."""


def is_sized(
    found: StoreLookup, module: KernelModule, shape: Shape, key_of: KeyOf, runs: Path
) -> bool:
    """Whether what is stored was timed at a shape.

    Args:
        found: what a lookup gave.
        module: the kernel.
        shape: all of its dimensions.
        key_of: of the launch on the record's device.
        runs: folder of the traces.
    """
    if found.outcome != "hit" or found.record is None:
        return False
    key = found.record.key
    if all(key.shape.get(name, _MISSING) == value for name, value in shape.items()):
        return True
    if found.layer == "shipped":
        every = [module.check_shape(other) for other in module.shapes]
        alike = [other for other in every if key_of(other).shape == key.shape]
        return alike == [shape]
    traced = _sizes(found.record, runs)
    return traced is not None and all(traced.get(n, _MISSING) == v for n, v in shape.items())


_MISSING = object()


def _sizes(record: TuneRecord, runs: Path) -> Mapping[str, Any] | None:
    """The shape that the run was given which made a record; None where no trace tells."""
    found = [run for run in map(_summary, runs_of(runs, record.key)) if run is not None]
    made = [run for run in found if run.header.key == record.key and _is_of(run, record)]
    return made[-1].header.sizes if made else None


def _is_of(run: Summary, record: TuneRecord) -> bool:
    """Whether a run ended with a record's winner at the record's time."""
    ending = run.ending
    if ending is None or ending.winner is None or ending.median_us is None:
        return False
    time = record.median_us
    # Traces keep 6 significant digits.
    near = time is not None and abs(ending.median_us - time) <= 1e-5 * time
    return near and ending.winner.to_dict() == record.winner.to_dict()


def _summary(path: Path) -> Summary | None:
    try:
        return read_summary(path)
    except InputError:  # a damaged trace tells nothing
        return None
