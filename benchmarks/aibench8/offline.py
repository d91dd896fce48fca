"""Facts that need no GPU: the code of each launch, and the number of candidates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.ir.asm.cubin import read_cubin
from benchmarks.aibench8.baselines import baseline_of
from benchmarks.aibench8.summary import BASELINE
from benchmarks.aibench8.tasks import Task, contract_of, without_contract

_COPIES = re.compile(r"cp\.async\.c[ag]\.shared\.global .*\], (0x[0-9a-f]+)")
"""Matches PTX's asynchronous copies: bytes that a thread copies to shared memory at once."""


def lines(task: Task, target: Target, settings: Settings) -> Iterator[str]:
    """List a kernel's launches on meta tensors, each with its code, contract and space."""
    problem, space = task.problem("meta"), task.module.space()
    untuned = baseline_of(task.name).problem(task.inputs("meta"))
    default = space.first(**problem.shape)
    launches = [(BASELINE, untuned, config) for config in baseline_of(task.name).CONFIGS]
    launches += [("dispatch_off", problem, default)]
    launches += [("contract_off, default", without_contract(problem), default)]
    for bar, launched, config in launches:
        yield f"{task.name:<12}{bar:<22}{_code(launched, config, target, settings)}  {config}"
    count = len(list(space.configs(**problem.shape)))
    contract = ", ".join(f"{name}={value}" for name, value in contract_of(problem).items())
    yield f"{task.name:<12}{count} configs; contract {contract or 'of alignment alone'}"


def _code(problem: Problem, config: Config, target: Target, settings: Settings) -> str:
    """Describe a compiled launch: registers, spills, widest loads; or why it does not compile."""
    request = Lowering(problem, target, settings.compile_timeout_s).request(config)
    artifact = request if isinstance(request, Failure) else compile_one(request, settings)
    if isinstance(artifact, Failure):
        return str(artifact).splitlines()[0]
    resources = read_cubin(artifact.cubin, artifact.entry)
    ptx = artifact.outputs["ptx"]
    wide = max((n for n in (1, 2, 4) if f"ld.global.v{n}." in ptx), default=1)
    copied = [int(n, 16) // 4 for n in _COPIES.findall(ptx)]
    return (
        f"{resources.regs_per_thread:>4} registers, {resources.spill_words} spilled words, "
        f"{artifact.shared_bytes} bytes shared, loads of up to {max([wide, *copied])} words"
    )
