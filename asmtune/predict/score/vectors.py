"""Turn features into the columns that the learned scorer sees.

The base columns of a candidate are the microseconds that a launch takes of each unit of the
target, and how it fills the machine; large numbers are logarithms. Each column appears three
times: as it is, above the task's least, and above the task's median, so that tasks of other sizes
look alike. The microseconds also appear as shares of the roofline's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.fingerprint import digest
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, dram_rate
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.verdicts import Features
from asmtune.predict.score.roofline import (
    LOCK_US,
    UPDATE_US,
    Column,
    Columns,
    predicted_us,
)

Matrix = NDArray[np.float32]

VERSION: Final = 1
"""Raised when a column or a feature changes its meaning, but not its name."""

LEAST_US: Final = 0.05
"""Added to microseconds, so that unused units compare as equal."""

SPILL_BYTES_PER_CYCLE: Final = 64.0
"""Bytes a cycle of spilled registers between an SM and its L1."""

_HOT: Final = ("shared", "integer", "convert", "shuffle", "global")


class _Values(Columns):
    """Features of the candidates, a column each, on a target."""

    def __init__(self, features: Sequence[Features], target: Target) -> None:
        super().__init__(features)
        self.target = target
        self.roofline = predicted_us(self, target)

    @property
    def resident(self) -> Column:
        return np.maximum(1.0, self["programs_per_sm"])

    @property
    def rounds(self) -> Column:
        """Return the programs that each SM runs."""
        return self["programs"] / self.target.sms

    @property
    def warps_on_sm(self) -> Column:
        programs: Column = np.minimum(self.resident, np.ceil(self.rounds))
        return programs * self["num_warps"]

    def us(self, cycles: Column) -> Column:
        """Convert cycles of an SM to microseconds."""
        return cycles * 1e6 / self.target.clock_hz


_Read = Callable[[_Values], Column]


def _unit(name: str) -> _Read:
    return lambda v: v.us(v[name] * np.maximum(v.rounds, 1.0))


def _feature(name: str) -> _Read:
    return lambda v: v[name]


def _share_of_hot(name: str) -> _Read:
    return lambda v: v[f"{name}_hot"] / np.maximum(1.0, v["instructions_hot"])


_MICROSECONDS: Final[Mapping[str, _Read]] = {
    "us_roofline": lambda v: v.roofline,
    "us_tensor": _unit("tensor_cycles"),
    "us_issue": _unit("issue_cycles"),
    "us_shared": _unit("shared_cycles"),
    "us_l1": _unit("l1_cycles"),
    "us_special": _unit("special_cycles"),
    "us_l2_of_sm": lambda v: v.us(
        v["program_l2_bytes"] / L2_BYTES_PER_CYCLE * np.maximum(v.rounds, 1.0)
    ),
    "us_latency": lambda v: v.us(v["latency_cycles"] * np.maximum(1.0, np.ceil(v["waves"]))),
    "us_latency_once": lambda v: v.us(v["latency_cycles"]),
    "us_longest": lambda v: v.us(v["longest_cycles"]),
    "us_dram": lambda v: v["unique_bytes"] / dram_rate(v.target) * 1e6,
    "us_spill": lambda v: v.us(v["program_spill_bytes"] * v.rounds / SPILL_BYTES_PER_CYCLE),
    "us_turns": lambda v: v["updates"] * UPDATE_US + v["lock_turns"] * LOCK_US,
    "us_l2": lambda v: v["programs"] * v["program_l2_bytes"] / v.target.l2_bytes_per_s * 1e6,
}
"""In microseconds of the target; logarithms of them are the columns."""

_COUNTS: Final[Mapping[str, _Read]] = {
    "waves": _feature("waves"),
    "whole_waves": lambda v: np.ceil(v["waves"]),
    "programs": _feature("programs"),
    "resident": lambda v: v.resident,
    "warps_on_sm": lambda v: v.warps_on_sm,
    "registers": _feature("regs_per_thread"),
    "spills_in_loop": lambda v: v["spill_words"] * v["trips"],
    "trips": _feature("trips"),
    "instructions_of_warp": lambda v: v["program_instructions"] / np.maximum(1.0, v["num_warps"]),
    "barriers": _feature("program_barriers"),
    "mma_sync": _feature("text_mma_sync"),
    "bytes_in_flight": lambda v: v["global_load_bytes_hot"] * v.target.warp_size * v.warps_on_sm,
    "async_copies": _feature("async_copy_hot"),
}
"""Numbers from 0 up; logarithms of one more are the columns."""

_PLAIN: Final[Mapping[str, _Read]] = {
    "tail": _feature("tail"),
    "occupancy": _feature("occupancy"),
    "warps": _feature("num_warps"),
    "stages": _feature("num_stages"),
    "shared_memory_share": lambda v: v["shared_bytes"] / v.target.shared_bytes_per_block,
    **{f"{name}_share": _share_of_hot(name) for name in _HOT},
}
"""As they are."""

MICROSECONDS: Final = len(_MICROSECONDS)
"""Number of columns of microseconds, which come first."""

BASE: Final = (*_MICROSECONDS, *_COUNTS, *_PLAIN)
"""Names of the columns of `base_columns`; the roofline's microseconds come first."""

NAMES: Final = (
    *BASE,
    *(f"{name} over least" for name in BASE),
    *(f"{name} over median" for name in BASE),
    *(f"{name} over roofline" for name in _MICROSECONDS),
)
"""Names of a vector's numbers."""


@dataclass(frozen=True)
class Scale:
    """Least and median of each column over all candidates of a task, to compare with."""

    least: Matrix
    median: Matrix

    @classmethod
    def of(cls, base: Matrix) -> Scale:
        """Compute the scale of all candidates of a task."""
        return cls(base.min(axis=0), np.median(base, axis=0).astype(np.float32))


class _Probe(Features):
    """Features that are all one and record which of them were read."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__({})
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return 1.0


@cache
def features_read() -> tuple[str, ...]:
    """Return the names of the features that the columns are made of."""
    probe = _Probe()
    base_columns([probe], load_target("H200", own=False))
    return tuple(sorted(probe.names))


def schema() -> str:
    """Return a digest of the columns and of the features they are made of."""
    return digest(f"vectors {VERSION}", *NAMES, *features_read())


def base_columns(features: Sequence[Features], target: Target) -> Matrix:
    """Return one row a candidate, one column a name of `BASE`."""
    values = _Values(features, target)
    columns = [np.log(read(values) + LEAST_US) for read in _MICROSECONDS.values()]
    columns += [np.log1p(np.maximum(read(values), 0.0)) for read in _COUNTS.values()]
    columns += [read(values) for read in _PLAIN.values()]
    return np.stack(columns, axis=1).astype(np.float32)


def vectors(base: Matrix, scale: Scale) -> Matrix:
    """Return one row a candidate, one column a name of `NAMES`."""
    microseconds = base[:, :MICROSECONDS]
    parts = (base, base - scale.least, base - scale.median, microseconds - base[:, :1])
    return np.hstack(parts).astype(np.float32)
