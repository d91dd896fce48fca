"""Triton's own tests of its autotuner as a specification, as far as they need no GPU.

Each runs twice: with `@asm_autotune`, and with an unchanged `triton.autotune` under `patch()`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune.base.errors import InputError
from asmtune.runtime import calls
from tests.dispatch.host_gpu import (
    HostGpu,
    configs,
    copy,
    grid,
    increment,
    staged,
)

ROOT = Path(__file__).parents[2]
N = 1024
BLOCKS = (32, 128)
Decorator = Callable[..., Any]


def vectors(n: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers, and a place for as many."""
    return torch.arange(float(n)), torch.empty(n)


class UsersClock:
    """A user's `do_bench`: launches once, and gives times as it is told to."""

    def __init__(self, *times_ms: float) -> None:
        self.times_ms = list(times_ms)
        self.asked = 0

    def __call__(self, kernel_call: Callable[[], Any], quantiles: Any) -> list[float]:
        """The next time."""
        kernel_call()
        self.asked += 1
        return [self.times_ms[(self.asked - 1) % len(self.times_ms)]] * len(quantiles)


def test_a_users_clock_decides(autotune: Decorator, gpu: HostGpu) -> None:
    """The least of what `do_bench` gives wins, and is what the tuner shows."""
    faster = 128

    def clock(kernel_call: Callable[[], Any], quantiles: Any) -> list[float]:
        kernel_call()
        return [1.0, 0.9, 1.1] if gpu.seen[-1] == faster else [2.0, 1.9, 2.1]

    kernel = autotune(configs(), ["n"], do_bench=clock)(copy)
    x, out = vectors()
    kernel[grid](x, out, N)
    assert set(gpu.seen) == set(BLOCKS)
    assert kernel.best_config.kwargs["BLOCK"] == faster
    timings = {c.kwargs["BLOCK"]: list(times) for c, times in kernel.configs_timings.items()}
    assert timings == {128: pytest.approx([1.0, 0.9, 1.1]), 32: pytest.approx([2.0, 1.9, 2.1])}


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
def test_reset_to_zero_is_for_tuning_alone(autotune: Decorator, option: str) -> None:
    """The first launch finds what the caller put there, as all later ones do, and no zeros."""
    kernel = autotune(configs(), ["n"], **{option: ["x_ptr"]})(increment)
    x = torch.full((N,), 5.0)
    for expected in (6.0, 7.0):
        kernel[grid](x, N)
        assert torch.equal(x, torch.full((N,), expected))


@pytest.mark.slow
def test_hooks_come_in_pairs(autotune: Decorator, gpu: HostGpu) -> None:
    """Each launch of the tuning has one hook before and one after it; none after the last."""
    seen: list[str] = []

    def before(values: dict[str, Any], reset_only: bool = False) -> None:
        assert values["x_ptr"] is not None
        seen.append("reset" if reset_only else "before")

    def after(values: dict[str, Any], exception: Exception | None) -> None:
        assert seen[-1] == "before"
        seen.append("after")

    clock = UsersClock(1.0, 2.0)
    kernel = autotune(configs(4096, 32), ["n"], pre_hook=before, post_hook=after, do_bench=clock)(
        triton.heuristics({"STAGES": lambda values: 64 if values["n"] == 4096 else 4})(staged)
    )
    kernel[(1,)](torch.ones(4096), 4096)
    counted = Counter(seen)
    assert counted["before"] == counted["after"] > 0
    assert (counted["reset"], seen[-1]) == (1, "reset")
    # 64 stages of 4096 numbers need a MiB of shared memory: not launched, where Triton would try.
    assert kernel.best_config.kwargs["BLOCK"] == 32
    assert gpu.launched[-1]["STAGES"] == 64


@pytest.mark.parametrize("with_model", [False, True])
def test_pruning(autotune: Decorator, gpu: HostGpu, with_model: bool) -> None:
    """The user's functions get what Triton gives them, and what they keep is what is launched."""
    seen: dict[str, Any] = {}

    def early(listed: list[Any], named: dict[str, Any], **keywords: Any) -> list[Any]:
        seen["named"], seen["keywords"] = set(named), keywords
        return [listed[1]]

    def model(**values: Any) -> float:
        seen.setdefault("blocks", []).append(values["BLOCK"])
        return -float(values["BLOCK"])

    pruned = {"perf_model": model, "top_k": 1} if with_model else {"early_config_prune": early}
    clock, listed = UsersClock(1.0), configs()
    kernel = autotune(listed, ["n"], prune_configs_by=pruned, do_bench=clock)(copy)
    x, out = vectors()
    kernel[grid](x, out, n=N)
    assert torch.equal(out, x)
    assert [launch["BLOCK"] for launch in gpu.launched] == [128]
    assert kernel.best_config.all_kwargs() == listed[1].all_kwargs()
    assert clock.asked == gpu.tuned == 0  # one is left, and not timed
    if with_model:
        assert seen == {"blocks": [32, 128]}
    else:
        assert seen["named"] == {"x_ptr", "out_ptr"}
        assert seen["keywords"]["n"] == N


def test_a_share_is_of_what_early_pruning_left(autotune: Decorator, gpu: HostGpu) -> None:
    """The model sees what early pruning left, and `top_k` is a share of that."""
    estimated: list[int] = []

    def model(**values: Any) -> float:
        estimated.append(values["BLOCK"])
        return float(values["BLOCK"])

    clock = UsersClock(*(1.0 + step for step in range(10)))
    pruned = {
        "early_config_prune": lambda listed, *_, **__: listed[:6],
        "perf_model": model,
        "top_k": 0.5,
    }
    blocks = [32 << step for step in range(6)]
    listed = configs(*blocks, *[32 << step for step in range(6, 8)])
    kernel = autotune(listed, ["n"], prune_configs_by=pruned, do_bench=clock)(copy)
    kernel[grid](*vectors(), n=N)
    assert estimated == blocks
    assert {config.kwargs["BLOCK"] for config in kernel.configs_timings} == set(blocks[:3])


def test_a_model_is_asked_only_where_it_chooses(autotune: Decorator, gpu: HostGpu) -> None:
    """Where no more configs are left than `top_k`, all are timed, unestimated."""
    pruned = {"perf_model": lambda **_: pytest.fail("it was asked"), "top_k": 2}
    autotune(configs(), ["n"], prune_configs_by=pruned)(copy)[grid](*vectors(), n=N)
    assert set(gpu.seen) == {32, 128}


@pytest.mark.parametrize("left", [[], None])
def test_nothing_left_is_an_error(autotune: Decorator, gpu: HostGpu, left: Any) -> None:
    """Pruning that leaves nothing, or forgets to return, raises before any launch."""
    kernel = autotune(
        configs(), ["n"], prune_configs_by={"early_config_prune": lambda *_, **__: left}
    )(copy)
    with pytest.raises((InputError, triton.TritonError)):
        kernel[grid](*vectors(), n=N)
    assert gpu.launched == []


def test_a_cleared_cache_asks_the_store(autotune: Decorator, gpu: HostGpu) -> None:
    """After `kernel.cache.clear()` the key is looked up anew, and the store knows it."""
    kernel = autotune(configs(), ["n"])(copy)
    for _ in range(2):
        kernel[grid](*vectors(), n=N)
        assert len(kernel.cache) == 1
        kernel.cache.clear()
    assert gpu.tuned == 1


def test_a_failed_tuning_is_tried_again(autotune: Decorator, gpu: HostGpu) -> None:
    """Of two threads at one new key, the second tunes where the first has failed."""
    entered, release = threading.Event(), threading.Event()
    inner = UsersClock(1.0, 2.0)

    def clock(kernel_call: Callable[[], Any], quantiles: Any) -> list[float]:
        if not entered.is_set():
            entered.set()
            assert release.wait(60)
            raise RuntimeError("first benchmark failed")
        return inner(kernel_call, quantiles)

    kernel = autotune(configs(), ["n"], do_bench=clock)(copy)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(kernel[grid], *vectors(), n=N)
        try:
            assert entered.wait(60)
            second = pool.submit(kernel[grid], *vectors(), n=N)
        finally:
            release.set()
        with pytest.raises(InputError, match="first benchmark failed"):
            first.result(60)
        second.result(60)
    assert len(kernel.cache) == 1


def test_threads_tune_one_key_once(autotune: Decorator, gpu: HostGpu) -> None:
    """Threads that launch one new key together wait for one tuning; other keys tune as well."""
    kernel = autotune(configs(), ["n"])(copy)
    ready = threading.Barrier(4)

    def launch(n: int) -> None:
        x, out = vectors(n)
        ready.wait(60)
        kernel[grid](x, out, n)
        assert torch.equal(out, x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, [N, N, N, 2 * N]))
    assert gpu.tuned == len(kernel.cache) == 2


def test_devices_are_keys_of_their_own(
    autotune: Decorator, gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GPUs of one model have an entry each in memory, and one tuning, which the store holds."""
    kernel = autotune(configs(), ["n"])(copy)
    for device in (0, 1):
        monkeypatch.setattr(calls, "device_index", lambda device=device: device)
        kernel[grid](*vectors(), n=N)
    assert {key[-1] for key in kernel.cache} == {0, 1}
    assert gpu.tuned == 1


def test_warmup_launches_nothing(
    autotune: Decorator, gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`warmup` compiles the configs that pruning leaves, and launches and tunes nothing."""
    compiled: list[dict[str, Any]] = []
    monkeypatch.setattr(
        copy, "warmup", lambda *_, **values: compiled.append(values) or len(compiled)
    )
    pruned = {"early_config_prune": lambda listed, *_, **__: listed[:2]}
    kernel = autotune(configs(32, 64, 128), ["n"], prune_configs_by=pruned)(copy)
    assert kernel.warmup(*vectors(), n=N, grid=(1,)) == [1, 2]
    assert [values["BLOCK"] for values in compiled] == [32, 64]
    assert kernel.warmup(torch.float32, torch.float32, N, grid=(1,)) == [3, 4]
    assert gpu.launched == []
    assert gpu.tuned == 0


INTERPRETED = ROOT / "tests" / "dispatch" / "interpreted_cases.py"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["asm_autotune", "patched", "before"])
def test_interpreter(tmp_path: Path, how: str) -> None:
    """With TRITON_INTERPRET=1 kernels run on CPU tensors, untimed, without any GPU's driver."""
    done = subprocess.run(
        [sys.executable, str(INTERPRETED), how],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "ASMTUNE_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "copied": True,
        "incremented": 1.0,
        "filled": 1.0,
        "staged": True,
        "pruned": 128,
        "empty grid": 7.0,
        "driver": False,
    }
    assert list(tmp_path.iterdir()) == []
