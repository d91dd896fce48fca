"""Contents kept and outputs checked around real launches, memory bounded, nothing waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
import torch
import triton

from asmtune.measure.checks.checker import OutputChecker
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from tests.measure import effect_kernels
from tests.workload import workload_kernels
from tests.workload.workload_lowering import work

Run = Callable[[], object]


def checker_of(
    kernel: Any, grid: tuple[int, ...], values: Mapping[str, Any], **options: Any
) -> OutputChecker:
    """A checker of a launch, by the effects that its IR has."""
    effects = Effects.of([work(kernel, grid=grid, **values)], values)
    names = kernel.arg_names
    arguments = {name: value for name, value in values.items() if name in names}
    return OutputChecker(arguments, effects, CheckOptions(**options))


def launch(kernel: Any, grid: tuple[int, ...], values: Mapping[str, Any], **config: Any) -> Run:
    return lambda: kernel[grid](**{**values, **config})


def product(dtype: torch.dtype, m: int, n: int, k: int) -> dict[str, Any]:
    """Arguments of a product, whose output holds what an earlier launch left."""
    generator = torch.Generator("cuda").manual_seed(1)
    a = torch.randn(m, k, device="cuda", generator=generator).to(dtype)
    b = torch.randn(k, n, device="cuda", generator=generator).to(dtype)
    out = torch.float16 if dtype.itemsize == 1 else dtype
    c = (a.float() @ b.float()).to(out)
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k}


TILES = [(64, 64, 32, 4), (128, 64, 64, 4), (32, 32, 32, 2), (128, 128, 64, 8), (64, 128, 128, 4)]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_of_a_product_passes_and_a_wrong_one_does_not(dtype: torch.dtype) -> None:
    """Tiles that sum in another order pass, in every type; a border that stops early does not."""
    m, n, k = 1000, 700, 1920
    values = product(dtype, m, n, k)
    before = values["c_ptr"].clone()

    def run(bm: int, bn: int, bk: int, warps: int) -> Run:
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
        tile = {"BM": bm, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": 2}
        return launch(workload_kernels.gemm, grid, values, **tile)

    first = {"BM": 64, "BN": 64, "BK": 32}
    with checker_of(workload_kernels.gemm, (176,), {**values, **first}) as checker:
        assert checker.set_reference(run(*TILES[0])) is None
        failures = {tile: checker.check(run(*tile)) for tile in TILES}
        assert failures == dict.fromkeys(TILES)
        a, b = values["a_ptr"].float()[960:, :-640], values["b_ptr"].float()[:-640]

        def short() -> None:
            run(*TILES[0])()
            values["c_ptr"][960:] = (a @ b).to(before.dtype)

        wrong = checker.check(short)
        assert wrong is not None
        assert wrong.kind == "wrong_output"
        missing = launch(workload_kernels.gemm, (100,), values, **first)
        unwritten = checker.check(missing)
        assert unwritten is not None
        assert unwritten.kind == "unwritten"
    assert torch.equal(values["c_ptr"], before)


def test_split_sums_are_known_to_vary() -> None:
    """Atomic sums of parts in any order are allowed what they differ by; a lost part is not."""
    m = n = 128
    values = product(torch.float16, m, n, 8192)
    values["c_ptr"] = torch.full((m, n), 3.0, device="cuda")
    tile = {"BM": 64, "BN": 64, "BK": 32}
    kernel = workload_kernels.split_k
    with checker_of(
        kernel, (2, 2, 16), {**values, **tile, "SPLIT": 16}, reset_to_zero=("c_ptr",)
    ) as checker:
        assert checker.set_reference(launch(kernel, (2, 2, 16), values, **tile, SPLIT=16)) is None
        for split in (1, 4, 16, 64):
            run = launch(kernel, (2, 2, split), values, **tile, SPLIT=split)
            assert [checker.check(run) for _ in range(3)] == [None] * 3
        lost = checker.check(launch(kernel, (2, 2, 15), values, **tile, SPLIT=16))
        assert lost is not None
        assert lost.kind == "wrong_output"
    assert bool((values["c_ptr"] == 3).all())


def test_in_place_runs_in_order_without_waiting() -> None:
    """Contents come back before each of many launches, and the host waits for none of it."""
    x = torch.randn(1 << 20, device="cuda")
    before = x.clone()
    values = {"x_ptr": x, "n": x.numel(), "BLOCK": 1024}
    run = launch(effect_kernels.scale_in_place, (1024,), values)
    with checker_of(effect_kernels.scale_in_place, (1024,), values) as checker:
        assert checker.set_reference(run) is None
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(50):
                checker.prepare()
                run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.equal(x, before * 2)
    assert torch.equal(x, before)


def test_pinned_host_memory_is_kept_and_checked() -> None:
    """A kernel may write the host's memory: it is poisoned, compared and restored there."""
    x = torch.randn(5000, device="cuda")
    out = torch.zeros(5000).pin_memory()
    values = {"x_ptr": x, "y_ptr": x, "out_ptr": out, "n": 5000, "BLOCK": 256}
    right = launch(effect_kernels.add, (20,), values)
    with checker_of(effect_kernels.add, (20,), values) as checker:
        assert checker.set_reference(right) is None
        assert checker.check(right) is None
        failure = checker.check(launch(effect_kernels.add_but_the_last, (20,), values))
        assert failure is not None
        assert failure.kind == "unwritten"
    assert not out.any()


PIECE = 32 << 20


def test_a_full_device_keeps_copies_on_the_host() -> None:
    """With little memory left, copies lie on the host, a note says so, and checks go on."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    fillers = [torch.empty(free - (2304 << 20), dtype=torch.uint8, device="cuda")]
    # What PyTorch keeps of earlier tests is room as well, be it in pieces too small to fill.
    with suppress(torch.OutOfMemoryError):
        while torch.cuda.memory_reserved() - torch.cuda.memory_allocated() >= PIECE:
            fillers.append(torch.empty(PIECE, dtype=torch.uint8, device="cuda"))
    try:
        x = torch.ones(320 << 20, device="cuda")
        values = {"x_ptr": x, "n": x.numel(), "BLOCK": 1024}
        grid = (x.numel() // 1024,)
        run = launch(effect_kernels.scale_in_place, grid, values)
        with checker_of(effect_kernels.scale_in_place, grid, values) as checker:
            assert checker.set_reference(run) is None
            assert checker.check(run) is None
            assert checker.check(lambda: None) is not None
            assert checker.notes[0].startswith("the GPU has no room for a copy of x_ptr")
        assert bool((x == 1).all())
    finally:
        fillers.clear()  # a failure would hold them, and fail the tests that come next
