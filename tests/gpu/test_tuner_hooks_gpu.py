"""`triton.autotune`'s hooks, clock and hand-edited PTX, tuned and launched on a real GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune import asm_autotune
from asmtune.store.database import Store
from tests.gpu import edited_kernels, gpu_kernels
from tests.gpu.edited_kernels import FIVE, SEVEN, is_edited, write_ptx

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256, 512, 1024)]
N = 1 << 16


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def tuned(kernel: Any, configs: list[triton.Config] | None = None, **options: Any) -> Any:
    """An autotuner that always tunes, whatever the size."""
    options = {"skip_tuning_below_us": None, **options}
    return asm_autotune(configs or CONFIGS, key=["n"], **options)(kernel)


@pytest.mark.parametrize("isolate", [False, True])
def test_hooks_restore_what_a_kernel_updates(isolate: bool, tmp_path: Path) -> None:
    """A pair of hooks that count and restore: as many calls after as before, and one result."""
    log = tmp_path / "log"

    def note(word: str) -> None:
        with log.open("a") as file:
            file.write(word + "\n")

    kept: dict[str, torch.Tensor] = {}

    def before(kwargs: dict[str, Any], reset_only: bool = False) -> None:
        note("reset" if reset_only else "pre")
        assert {"x_ptr", "n", "BLOCK", "num_warps"} <= kwargs.keys()
        if not reset_only:
            kept["x"] = kwargs["x_ptr"].clone()

    def after(kwargs: dict[str, Any], exception: Exception | None) -> None:
        note("post")
        assert exception is None
        kwargs["x_ptr"].copy_(kept.pop("x"))

    scale = tuned(gpu_kernels.scale_in_place, pre_hook=before, post_hook=after, isolate=isolate)
    x = torch.randn(N, device="cuda")
    expected = x * 2
    scale[grid](x, N)
    assert torch.equal(x, expected)
    *launches, last = log.read_text().split()
    assert last == "reset"
    assert launches == ["pre", "post"] * (len(launches) // 2)
    assert len(launches) >= 2 * len(CONFIGS)
    scale[grid](x, N)
    assert torch.equal(x, expected * 2)
    assert log.read_text().split()[-1] == "reset"  # a known key calls no hook


def test_a_hook_zeroes_what_a_kernel_adds_to() -> None:
    """With a `pre_hook` in the place of `reset_to_zero` an atomic sum is one launch's."""

    def zero(kwargs: dict[str, Any], reset_only: bool = False) -> None:
        kwargs["total_ptr"].zero_()

    count = tuned(gpu_kernels.count_into, pre_hook=zero)
    x, total = torch.ones(N, device="cuda"), torch.full((1,), 77.0, device="cuda")
    count[grid](x, total, N)
    assert total.item() == N


def test_the_time_of_hooks_is_not_measured(cache_dir: Path) -> None:
    """Hooks that keep the GPU busy for milliseconds leave a time of microseconds."""
    noise = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def busy(kwargs: dict[str, Any], *_: Any, **__: Any) -> None:
        for _ in range(20):
            noise.zero_()

    add = tuned(gpu_kernels.add, pre_hook=busy, post_hook=busy)
    x, y = torch.randn(2, N, device="cuda")
    out = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    busy({})
    start.record()
    busy({})
    end.record()
    torch.cuda.synchronize()
    hook_us = start.elapsed_time(end) * 1e3
    add[grid](x, y, out, N)
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    assert record.median_us is not None
    assert record.median_us < hook_us / 5


def test_the_users_clock_times(cache_dir: Path) -> None:
    """`do_bench` is Triton's own here; its milliseconds are stored as microseconds."""
    given: list[list[float]] = []

    def do_bench(kernel_call: Callable[[], None], quantiles: Any) -> list[float]:
        found = triton.testing.do_bench(kernel_call, warmup=2, rep=5, quantiles=quantiles)
        given.append(list(found))
        return given[-1]

    add = tuned(gpu_kernels.add, do_bench=do_bench)
    x, y = torch.randn(2, N, device="cuda")
    out = torch.empty_like(x)
    add[grid](x, y, out, N)
    assert torch.equal(out, x + y)
    with Store.open(cache_dir / "store.sqlite") as store:
        (record,) = store.records()
    medians = {round(ms[0] * 1e3, 3) for ms in given}
    assert {round(m.median_us, 3) for m in record.measurements} <= medians
    assert len(given) > len(CONFIGS)  # finalists are timed afresh


@pytest.fixture
def ptx() -> str:
    """Compile `add_five` with 256 elements a program; return its PTX."""
    x = torch.randn(N, device="cuda")
    kernel = edited_kernels.add_five[(N // 256,)](x, torch.empty_like(x), N, BLOCK=256, num_warps=4)
    text = str(kernel.asm["ptx"])
    assert FIVE in text
    return text


def with_barrier(ptx: str) -> str:
    """The same, with a barrier at the end: other machine code that computes the same."""
    assert "ret;" in ptx
    return ptx.replace("ret;", "bar.sync 0;\nret;")


def launched(kernel: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """An input, and what three launches leave in the output."""
    x = torch.randn(N, device="cuda")
    out = torch.empty_like(x)
    for _ in range(3):
        out.fill_(float("nan"))
        kernel[grid](x, out, N)
    return x, out


def prefers_files() -> dict[str, Any]:
    """Options by which a hand-edited config is the fastest."""
    last: dict[str, bool] = {}

    def before(kwargs: dict[str, Any], reset_only: bool = False) -> None:
        last["edited"] = bool(kwargs.get("ir_override"))

    def do_bench(kernel_call: Callable[[], None], quantiles: Any) -> float:
        kernel_call()
        torch.cuda.synchronize()
        return 1.0 if last["edited"] else 2.0

    return {"do_bench": do_bench, "pre_hook": before}


def test_a_winning_file_is_launched_and_found_again(tmp_path: Path, ptx: str) -> None:
    """It is launched as it was checked, here and by the next autotuner, though the file changes."""
    path = tmp_path / "edited.ptx"
    edited = write_ptx(path, with_barrier(ptx))
    options = prefers_files()
    first = tuned(edited_kernels.add_five, [edited, *CONFIGS], **options)
    x, out = launched(first)
    assert torch.equal(out, x + 5)
    assert is_edited(first.best_config)
    second = tuned(edited_kernels.add_five, [edited, *CONFIGS], **options)
    x, out = launched(second)
    assert torch.equal(out, x + 5)
    assert second.best_config == first.best_config
    # Whoever edits it now has a new candidate, that is wrong; what was tuned goes on as it was.
    path.write_text(ptx.replace(FIVE, SEVEN))
    x, out = launched(first)
    assert torch.equal(out, x + 5)
    third = tuned(edited_kernels.add_five, [edited, *CONFIGS], **options)
    x, out = launched(third)
    assert torch.equal(out, x + 5)
    assert not is_edited(third.best_config)
