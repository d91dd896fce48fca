"""A compile that hangs, dies or grows costs its own config and nothing else."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.sandbox import Sandbox, borrow_sandbox
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.artifacts import Artifact, Failure
from tests.compile.making import accepted, compiled_in
from tests.compile.process_tree import comes_true
from tests.sample_kernels import (
    one_pointer,
    pair,
    product_problem,
    refused,
    row_sum_problem,
    scale_problem,
    unrolled,
)

SLOW = Config({"BLOCK": 1 << 17}, num_warps=1)
"""4,096 elements a thread: LLVM and ptxas need minutes for it."""


def lowered(target: Target, config: Config | None = None) -> LowerRequest:
    """The request of `row_sum` at some config."""
    return accepted(Lowering(row_sum_problem(), target, 30), config or Config({"BLOCK": 256}))


def group(leader: int) -> list[int]:
    """Live processes of a group."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, pgrp = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == leader and state != "Z":
            members.append(int(folder.name))
    return members


def is_gone(leader: int) -> bool:
    """Whether no process of a group lives, or will in a moment: a busy host ends them later."""
    return comes_true(lambda: not group(leader), 10)


def leader_of(sandbox: Sandbox) -> int:
    """The child's process id, which is its group's."""
    assert sandbox._child is not None
    return sandbox._child.pid


@pytest.mark.slow(seconds=2)
def test_time_limit_ends_the_compile(sandbox: Sandbox, target: Target) -> None:
    """A compile over its limit ends then, with every process that it started; the next works."""
    assert isinstance(compiled_in(sandbox, lowered(target), 60), Artifact)
    child = leader_of(sandbox)
    assert group(child) == [child]
    start = time.monotonic()
    outcome = compiled_in(sandbox, lowered(target, SLOW), 1.5)
    assert time.monotonic() - start < 15  # whole, it takes minutes
    assert outcome.kind == "timeout"
    assert outcome.stage in ("ttgir", "llir", "ptx", "cubin")
    assert "after 1.5 s; ASMTUNE_COMPILE_TIMEOUT_S sets" in outcome.detail
    assert is_gone(child)
    assert isinstance(compiled_in(sandbox, lowered(target), 60), Artifact)
    assert leader_of(sandbox) != child


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_child_that_dies(sandbox: Sandbox, target: Target, number: signal.Signals) -> None:
    """A child that a signal ends while it compiles is a crash that names it; the next works."""
    assert isinstance(compiled_in(sandbox, lowered(target), 60), Artifact)
    child = leader_of(sandbox)
    killer = threading.Timer(0.7, os.kill, (child, number))
    killer.start()
    outcome = compiled_in(sandbox, lowered(target, SLOW), 60)
    killer.join()
    if number is signal.SIGSEGV:  # MLIR may survive it in a pass, in doubt, or go on to the limit
        assert outcome.kind in ("crash", "compiler", "timeout")
    else:
        assert outcome.kind == "crash"
        assert number.name in outcome.detail
    assert is_gone(child)
    assert isinstance(compiled_in(sandbox, lowered(target), 60), Artifact)


@pytest.mark.slow
def test_a_pass_that_fails(sandbox: Sandbox, target: Target) -> None:
    """A failure of a pass carries what the compiler said of it on stderr."""
    outcome = compiled_in(sandbox, lowered(target, Config({"BLOCK": 256}, num_ctas=2)), 60)
    if isinstance(outcome, Artifact):
        pytest.skip("this Triton reduces across a cluster")
    assert (outcome.stage, outcome.kind) == ("ttgir", "compiler")
    assert " error: " in outcome.detail.splitlines()[1]
    assert isinstance(compiled_in(sandbox, lowered(target), 60), Artifact)


@pytest.mark.slow
def test_an_assertion_of_the_compiler(sandbox: Sandbox, target: Target) -> None:
    """A compiler that aborts is a crash with the last that it said; the next compile works."""
    request = lowered(target)
    broken = replace(request, ttir=request.ttir.replace("tt.func public", "tt.func private"))
    outcome = compiled_in(sandbox, broken, 60)
    assert outcome.kind in ("crash", "compiler")
    assert isinstance(compiled_in(sandbox, request, 60), Artifact)


def test_memory_limit(target: Target) -> None:
    """A child that may not have the memory to start, or to compile, is a failure."""
    small = Sandbox(64 << 20)
    try:
        outcome = compiled_in(small, lowered(target), 60)
    finally:
        small.close()
    assert outcome.kind == "memory"
    assert "64 MiB: ASMTUNE_COMPILE_MEMORY_MB" in outcome.detail
    assert "\n" not in str(outcome)


def test_compiles_at_once_have_a_child_each(target: Target) -> None:
    """Threads that compile at once in one process do so in children of their own, kept after."""
    with borrow_sandbox(1 << 33) as first, borrow_sandbox(1 << 33) as second:
        assert first is not second
        assert isinstance(compiled_in(first, lowered(target), 60), Artifact)
        child = leader_of(first)
    with borrow_sandbox(1 << 33) as again:
        assert again in (first, second)
    assert group(child) == [child]


@pytest.mark.slow
def test_front_end_time_limit(target: Target) -> None:
    """A kernel that unrolls for minutes ends at the limit, once, and is told what to do."""
    limit_s = 3.0
    lowering = Lowering(one_pointer(unrolled), target, limit_s)
    start = time.monotonic()
    with ThreadPoolExecutor(1) as threads:  # it needs no signal
        outcome = threads.submit(lowering.request, Config({"TIMES": 1_000_000})).result(20)
    assert time.monotonic() - start < 15
    assert (outcome.stage, outcome.kind) == ("lower", "timeout")
    assert "use range, not static_range" in outcome.detail
    start = time.monotonic()
    again = lowering.request(Config({"TIMES": 1_000_000}, num_warps=8))
    assert again == outcome
    assert time.monotonic() - start < limit_s
    assert isinstance(lowering.request(Config({"TIMES": 2})), LowerRequest)


@pytest.mark.slow
def test_nothing_on_the_terminal(
    target: Target, sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither ptxas, for want of registers, nor a kernel at fault writes to the terminal."""
    tile = {"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64}
    request = accepted(Lowering(product_problem(), target, 30), Config(tile, maxnreg=32))
    outcome = compiled_in(sandbox, request, 60)
    assert (outcome.stage, outcome.kind) == ("cubin", "registers")
    assert "Repro command" not in outcome.detail
    refusal = Lowering(one_pointer(refused, n=8), target, 30).request(Config({"BLOCK": 64}))
    assert isinstance(refusal, Failure)
    # MLIR and LLVM speak on stderr, where they fail and where they abort.
    compiled_in(sandbox, lowered(target, Config({"BLOCK": 256}, num_ctas=2)), 60)
    request = lowered(target)
    private = request.ttir.replace("tt.func public", "tt.func private")
    assert isinstance(compiled_in(sandbox, replace(request, ttir=private), 60), Failure)
    assert capfd.readouterr() == ("", "")


REFUSALS = {
    "a name that is not there": (
        one_pointer(refused, n=8), Config({"BLOCK": 64}), "lower", "kernel",
        r'line 4 of the kernel, "tl\.store\(.*": NameError\(.not_defined is not defined.\)',
    ),
    "a function that returns": (
        one_pointer(pair, n=8), Config({}), "lower", "kernel", "it returns a value",
    ),
    "a block of 100": (
        scale_problem(), Config({"BLOCK": 100}), "lower", "kernel",
        "line 3 of the kernel, .*power of 2",
    ),
    "three warps": (
        scale_problem(), Config({"BLOCK": 64}, num_warps=3), "options", "options", "num_warps",
    ),
    "a cluster": (
        scale_problem(), Config({"BLOCK": 64}, num_ctas=2), "options", "options", "num_ctas",
    ),
    "a hook that raises": (
        scale_problem(), Config({"BLOCK": 64}, pre_hook=lambda values: values["absent"]),
        "options", "options", "KeyError: 'absent'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_front_end_refuses(case: str) -> None:
    """A kernel, its options and its hook fail in one line that begins with the kernel's own."""
    problem, config, stage, kind, text = REFUSALS[case]
    outcome = Lowering(problem, load_target("A100"), 30).request(config)
    assert outcome.stage == stage
    assert case == "a hook that raises" or outcome.kind == kind
    assert re.match(text, outcome.detail) or text in outcome.detail
    assert "\n" not in outcome.detail
