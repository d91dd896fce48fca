"""Numbers that comparisons tell: what each is called, and how it is made of features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.core.records.verdicts import Features
from asmtune.predict.features.registry import FEATURES


@dataclass(frozen=True)
class Quantity:
    """A number made of features: unit as in the registry, a name to stand before it, formula."""

    unit: str
    words: str
    of: Callable[[Features], float]


def _feature(name: str, words: str) -> Quantity:
    return Quantity(FEATURES[name].unit, words, lambda features: features[name])


def _in_all(name: str, words: str) -> Quantity:
    unit = FEATURES[name].unit
    return Quantity(unit, words, lambda features: features[name] * features["programs"])


_FEATURES: Final = {
    "regs_per_thread": "registers a thread",
    "spill_words": "spilled words a thread",
    "shared_bytes": "shared memory a program",
    "programs_per_sm": "programs an SM holds",
    "programs_per_sm_by_registers": "programs an SM's registers allow",
    "programs_per_sm_by_shared": "programs an SM's shared memory allows",
    "occupancy": "occupancy",
    "num_warps": "warps a program",
    "num_stages": "stages",
    "programs": "programs",
    "waves": "waves",
    "tail": "share of the last wave that stays empty",
    "tensor_cycles": "cycles of the tensor cores a program",
    "shared_cycles": "cycles of shared memory a program",
    "l1_cycles": "cycles of L1 a program",
    "special_cycles": "cycles of the special functions a program",
    "latency_cycles": "cycles of a program's chain of latencies",
    "unique_bytes": "distinct bytes",
    "updates": "atomic updates of one address",
    "lock_turns": "programs that take turns at a lock",
}

QUANTITIES: Final[Mapping[str, Quantity]] = {
    **{name: _feature(name, words) for name, words in _FEATURES.items()},
    "barriers": _feature("program_barriers", "barriers a warp meets"),
    "flops": _in_all("program_flops", "tensor arithmetic in all"),
    "instructions": _in_all("program_instructions", "warp instructions in all"),
    "l2_bytes": _in_all("program_l2_bytes", "traffic between the SMs and L2 in all"),
}
"""Quantities that a comparison shows, by name."""

TERMS: Final[Mapping[str, str]] = {
    "tensor": "the tensor cores",
    "issue": "issuing instructions",
    "shared": "shared memory",
    "L1": "L1 and the load-store units",
    "special": "the special function units",
    "L2": "the way to L2",
    "start": "starting programs",
    "atomics": "updates of one address, one after another",
    "latency": "waiting that nothing hides",
    "DRAM": "DRAM",
    "launch": "the launch itself",
}
"""Words for where predicted time goes."""

CAUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor": ("flops", "tensor_cycles", "programs", "waves"),
    "issue": ("instructions", "spill_words", "waves"),
    "shared": ("shared_cycles", "programs", "waves"),
    "L1": ("l1_cycles", "spill_words", "programs"),
    "special": ("special_cycles", "programs", "waves"),
    "L2": ("l2_bytes",),
    "start": ("programs",),
    "atomics": ("updates", "lock_turns", "programs"),
    "latency": ("latency_cycles", "programs_per_sm", "num_stages", "waves"),
    "DRAM": ("unique_bytes",),
    "launch": (),
}
"""Quantities behind each term of the time, the most telling first."""

RESOURCES: Final = (
    *("regs_per_thread", "spill_words", "shared_bytes", "programs_per_sm"),
    *("programs_per_sm_by_registers", "programs_per_sm_by_shared", "occupancy"),
    *("programs", "waves", "tail", "instructions", "barriers", "l2_bytes", "flops"),
)
