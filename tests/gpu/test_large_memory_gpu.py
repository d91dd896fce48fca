"""Large arguments: a pool is restored by the pages that change, outputs tune in what is free."""

from __future__ import annotations

import warnings

import torch
import triton
import triton.language as tl

from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.pages import PAGE
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.memory import free_bytes
from asmtune.runtime.decorator import asm_autotune
from tests.measure.test_pages import WrittenBytes

ROW = 1024
POOL = Effects(reads=frozenset({"pool"}), writes=frozenset({"pool"}))
CONFIGS = [triton.Config({"BLOCK": block}) for block in (256, 512, 1024)]


@triton.jit
def update(pool_ptr, slot_ptr, x_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    """Decay some rows of a pool, and add to them."""
    slot = tl.load(slot_ptr + tl.program_id(0)).to(tl.int64)
    for start in range(0, D, BLOCK):
        at = start + tl.arange(0, BLOCK)
        old = tl.load(pool_ptr + slot * D + at) * 0.5
        tl.store(pool_ptr + slot * D + at, old + tl.load(x_ptr + tl.program_id(0) * D + at))


def pool_of(gib: int) -> torch.Tensor:
    """A pool of rows of ones."""
    return torch.ones((gib << 30) // (4 * ROW), ROW, device="cuda")


def test_a_pool_of_gigabytes_is_restored_by_pages() -> None:
    """Before a timed run some pages of 4 GiB are written; nothing is waited for."""
    pool = pool_of(4)
    rows = torch.tensor([3, 70_000, 1_000_000], device="cuda")

    def run() -> None:
        pool.index_fill_(0, rows, 5.0)

    def stray() -> None:
        run()
        pool[500_000, 17] = 2.0

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with OutputChecker({"pool": pool}, POOL, CheckOptions()) as checker:
        assert checker.set_reference(run) is None
        assert checker.check(run) is None
        failure = checker.check(stray)
        assert failure is not None
        assert failure.kind == "wrong_output"
        assert checker.check(run) is None
        torch.cuda.set_sync_debug_mode("error")
        try:
            with WrittenBytes() as count:
                checker.prepare()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert count.written <= 10 * PAGE
        assert bool((pool == 1).all())
        stray()
    assert bool((pool == 1).all())
    assert torch.cuda.max_memory_allocated() - before < pool.nbytes + pool.nbytes // 2


def test_a_pool_that_takes_half_of_the_memory_tunes() -> None:
    """One copy of it is all that there is room for; its rows are right after the launch."""
    rows = int(0.45 * free_bytes()) // (4 * ROW)
    pool = torch.ones(rows, ROW, device="cuda")
    slots = torch.tensor([3, 7, rows // 2, rows - 1], device="cuda")
    x = torch.ones(4, ROW, device="cuda")
    kernel = asm_autotune(configs=CONFIGS, key=["n"], skip_tuning_below_us=None, effort="quick")(
        update
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(4,)](pool, slots, x, 4, D=ROW)
    assert bool((pool[slots] == 1.5).all())
    pool[slots] = 1.0
    assert bool((pool == 1).all())
