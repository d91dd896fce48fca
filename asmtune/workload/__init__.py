"""What a launch asks for, read from the compiler's first IR (TTIR): pure text in, data out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.workload.accumulators import accumulator_registers as accumulator_registers
    from asmtune.workload.analysis import Call as Call
    from asmtune.workload.analysis import Kernel as Kernel
    from asmtune.workload.analysis import analyse as analyse
    from asmtune.workload.dots import Dot as Dot
    from asmtune.workload.dots import find_dots as find_dots
    from asmtune.workload.doubts import Doubt as Doubt
    from asmtune.workload.syntax import Module as Module
    from asmtune.workload.tally import DEFAULT_TRIPS as DEFAULT_TRIPS
    from asmtune.workload.ttir import parse_ttir as parse_ttir
    from asmtune.workload.work import Access as Access
    from asmtune.workload.work import ArgumentUse as ArgumentUse
    from asmtune.workload.work import DotWork as DotWork
    from asmtune.workload.work import LoopWork as LoopWork
    from asmtune.workload.work import Work as Work

__all__ = [
    "DEFAULT_TRIPS",
    "Access",
    "ArgumentUse",
    "Call",
    "Dot",
    "DotWork",
    "Doubt",
    "Kernel",
    "LoopWork",
    "Module",
    "Work",
    "accumulator_registers",
    "analyse",
    "find_dots",
    "parse_ttir",
]

_HOMES: Final = {
    "Access": "work",
    "ArgumentUse": "work",
    "Call": "analysis",
    "DEFAULT_TRIPS": "tally",
    "Dot": "dots",
    "DotWork": "work",
    "Doubt": "doubts",
    "Kernel": "analysis",
    "LoopWork": "work",
    "Module": "syntax",
    "Work": "work",
    "accumulator_registers": "accumulators",
    "analyse": "analysis",
    "find_dots": "dots",
    "parse_ttir": "ttir",
}

__getattr__ = loader(__name__, _HOMES)
