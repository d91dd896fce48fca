"""Rules that drop configs which cannot run, and rules that remark on slow ones.

A hard rule drops a config, and only one that the compiler or the driver would refuse. Everything
else is ranked, spills included: a spilling config can be the fastest. Each rule is applied as
soon as its input is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.core.config import foreign_option
from asmtune.core.records.verdicts import Reason
from asmtune.ir.ttir.costs import Dot
from asmtune.predict.score.scorer import Candidate

Moment = Literal["config", "ir", "assembly"]


@dataclass(frozen=True)
class Rule:
    """A named condition that a config may break.

    Attributes:
        name: as reports show it.
        moment: the input it needs: the config alone, the front end's IR, or the assembly.
        hard: True if a config that breaks it cannot run and is dropped.
        meaning: one sentence for listings.
        broken: returns what is wrong, with its numbers; None if the rule holds.
    """

    name: str
    moment: Moment
    hard: bool
    meaning: str
    broken: Callable[[Candidate], str | None]


def broken_rules(
    candidate: Candidate, moment: Moment, *, hard: bool, rules: Iterable[Rule] | None = None
) -> tuple[Reason, ...]:
    """Return the rules of a moment that a candidate breaks."""
    broken = (
        (rule.name, rule.broken(candidate))
        for rule in (RULES if rules is None else rules)
        if rule.moment == moment and rule.hard == hard
    )
    return tuple(Reason(name, text) for name, text in broken if text is not None)


def _threads(candidate: Candidate) -> str | None:
    threads = candidate.config.num_warps * candidate.target.warp_size
    limit = candidate.target.max_threads_per_block
    if threads <= limit:
        return None
    return f"{candidate.config.num_warps} warps are {threads} threads, over {limit} a program"


def _vendor_option(candidate: Candidate) -> str | None:
    # A name that AMD's compiler takes may be the kernel's own parameter: the front end knows.
    names = candidate.config.kwargs
    return foreign_option(candidate.config, candidate.target.backend, names)


def _register_cap(candidate: Candidate) -> str | None:
    cap, limit = candidate.config.maxnreg, candidate.target.max_registers_per_thread
    if cap is None or cap <= limit:
        return None
    return f"maxnreg {cap} changes nothing: a thread has {limit} registers at most"


# The tensor cores of sm_80 and newer take 256 bits of K at once: 16 elements of
# 16 bits, 32 of 8 (PTX ISA, shapes of mma.sync, wgmma and tcgen05). Triton's
# front end refuses less, but for 32-bit floats, which some versions multiply as
# tf32 8 deep, and 64-bit ones, which have instructions of their own.
_DEPTH_BITS: Final = 256


def _tensor_depth(candidate: Candidate) -> str | None:
    if candidate.target.backend != "cuda":
        return None
    for dot in candidate.dots or ():
        # Hardware without an instruction for 4-bit floats unpacks them first.
        if 8 <= dot.operand_bits <= 16:
            depth = _DEPTH_BITS // dot.operand_bits
            if dot.k % depth:
                return (
                    f"K={dot.k} of the {dot.m}x{dot.n} dot is no multiple of {depth}, "
                    f"the depth of the tensor instruction for {dot.operand}"
                )
    return None


# ptxas 12.8 and 13 name the least register target they accept: 42, 58, 90 and
# 154 for wgmma of N = 32, 64, 128 and 256, so N/2 accumulators and 26 more.
_WGMMA_OVERHEAD: Final = 26


def _accumulators(candidate: Candidate) -> str | None:
    cap = candidate.config.maxnreg
    target = candidate.target
    if cap is None or target.backend != "cuda" or target.capability != 90:
        return None
    for dot in candidate.dots or ():
        columns = _wgmma_columns(dot, candidate.config.num_warps)
        # A warpgroup of 128 threads holds 64 rows of accumulators.
        bits = 16 if dot.accumulator == "f16" else 32
        needed = columns * 64 * bits // (128 * 32) + _WGMMA_OVERHEAD
        if columns and needed > cap:
            return (
                f"wgmma of {columns} columns needs {needed} registers a thread "
                f"for its accumulators, over maxnreg {cap}"
            )
    return None


def _wgmma_columns(dot: Dot, num_warps: int) -> int:
    """Return N of the wgmma that Triton picks for a dot; 0 where it takes mma.sync.

    Triton lays warps along M first, 16 rows each, and takes the widest
    instruction that divides what is left of N (mmaVersionToInstrShape).
    """
    if dot.operand not in ("f16", "bf16") or dot.batch != 1 or dot.m < 64 or num_warps % 4:
        return 0
    warps_along_n = max(num_warps // max(dot.m // 16, 1), 1)
    widest = min(max(dot.n // warps_along_n, 8), 256)
    return next((n for n in range(widest - widest % 8, 0, -8) if dot.n % n == 0), 0)


def _shared_memory(candidate: Candidate) -> str | None:
    used = _feature(candidate, "shared_bytes")
    limit = candidate.target.shared_bytes_per_block
    if used is None or used <= limit:
        return None
    return f"{used:,.0f} bytes of shared memory, over {limit:,} a program"


def _registers(candidate: Candidate) -> str | None:
    programs = _feature(candidate, "programs_per_sm_by_registers")
    if programs is None or programs >= 1:
        return None
    used = _feature(candidate, "regs_per_thread")
    file = candidate.target.registers_per_sm
    return (
        f"{used:.0f} registers a thread in {candidate.config.num_warps} warps, "
        f"over the {file:,} registers of an SM"
    )


def _spills(candidate: Candidate) -> str | None:
    words = _feature(candidate, "spill_words")
    return f"{words:.0f} words a thread go through local memory" if words else None


def _feature(candidate: Candidate, name: str) -> float | None:
    return None if candidate.features is None else candidate.features[name]


RULES: Final = (
    Rule(
        "threads", "config", True, "More threads than a program of the target may have.", _threads
    ),
    Rule(
        "vendor_option",
        "config",
        True,
        "An option that another vendor's compiler takes.",
        _vendor_option,
    ),
    Rule(
        "tensor_depth",
        "ir",
        True,
        "K of a dot is not a multiple of the tensor instruction's depth.",
        _tensor_depth,
    ),
    Rule(
        "accumulators", "ir", True, "The accumulators of a wgmma do not fit maxnreg.", _accumulators
    ),
    Rule(
        "shared_memory",
        "assembly",
        True,
        "More shared memory than a program of the target may have.",
        _shared_memory,
    ),
    Rule(
        "registers",
        "assembly",
        True,
        "One program's registers do not fit the register file of an SM.",
        _registers,
    ),
    Rule(
        "register_cap",
        "assembly",
        False,
        "maxnreg over what a thread can address (a remark: the assembler ignores it).",
        _register_cap,
    ),
    Rule("spills", "assembly", False, "Registers spill to local memory (a remark).", _spills),
)
"""Every rule, in the order in which they are applied."""
