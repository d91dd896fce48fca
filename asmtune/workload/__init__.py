"""What a launch asks for, read from the compiler's first IR (TTIR): pure text in, data out."""

from asmtune.workload.accumulators import accumulator_registers
from asmtune.workload.analyse import Call, Kernel, analyse
from asmtune.workload.dots import Dot, find_dots
from asmtune.workload.syntax import Module
from asmtune.workload.tally import DEFAULT_TRIPS
from asmtune.workload.ttir import parse_ttir
from asmtune.workload.work import Access, ArgumentUse, DotWork, Doubt, LoopWork, Work

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
