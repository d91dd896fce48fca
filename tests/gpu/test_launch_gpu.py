"""Planned launches on a GPU, against Triton's own of the same kernel."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune import asm_autotune
from asmtune.core.config import Config
from asmtune.runtime.autotuner import AsmAutotuner


def echo(out, a, b, c, wide, flag, x, y, n, T: tl.constexpr = 3, BLOCK: tl.constexpr = 64):
    """Write down what it was given, and copy x + y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(out, a + 0.0)
        tl.store(out + 1, b + 0.0)
        tl.store(out + 2, c + 0.0)
        tl.store(out + 3, (wide % 1000003) + 0.0)
        tl.store(out + 4, flag + 0.0)
        tl.store(out + 5, T + 0.0)
        tl.store(out + 6, tl.num_programs(0) + 0.0)
    inside = at < n
    left = tl.load(x + at, mask=inside).to(tl.float32)
    tl.store(out + 8 + at, left + tl.load(y + at, mask=inside).to(tl.float32), mask=inside)


def own(**options: Any) -> AsmAutotuner:
    """`echo` decorated; one config, so that nothing is tuned."""
    key = options.pop("key", ["n"])
    return asm_autotune([Config({"BLOCK": 64})], key, **options)(triton.jit(echo))


@pytest.fixture
def kernel() -> AsmAutotuner:
    """`echo`."""
    return own()


def draw(random_: random.Random, pool: torch.Tensor) -> dict[str, Any]:
    """Random arguments: ones, multiples of 16, wide numbers, odd pointers, other dtypes."""
    n = random_.choice([1, 16, 17, 64, 100, 128])
    offset = random_.choice([0, 8, 16, 3, 1])
    dtype = random_.choice([torch.float16, torch.float32, torch.bfloat16, torch.int32])
    pair = [pool.to(dtype)[offset:], pool.to(dtype)]
    whole = [0, 1, 16, 17, -5, 2**31 - 1, 48]
    return {
        "a": random_.choice(whole),
        "b": random_.choice([0.5, -2.25, 1.0]),
        "c": random_.choice([1, 2, 16]),
        "wide": random_.choice([1, 16, 2**40, 2**33 + 1, 7]),
        "flag": random_.choice([True, False]),
        "x": pair[0],
        "y": pair[1][random_.choice([0, 1, 8]) :],
        "n": min(n, pair[0].numel()),
        "T": random_.choice([3, 4, 5]),
    }


def test_random_launches_do_what_tritons_do(kernel: AsmAutotuner) -> None:
    """400 launches of random arguments, planned or not, give what Triton's own launch gives."""
    reference, random_ = triton.jit(echo), random.Random(0)
    pool = torch.arange(512, device="cuda", dtype=torch.float32)
    for _ in range(400):
        given = draw(random_, pool)
        outs = [torch.full((8 + 512,), -1.0, device="cuda") for _ in range(2)]
        grid = (random_.choice([2, 3]),)
        kernel[grid](outs[0], **given)
        reference[grid](outs[1], **given, BLOCK=64)
        assert torch.equal(*outs), given
    assert len(kernel._launcher) > 20


def arguments(n: int = 100, device: str = "cuda") -> tuple[Any, ...]:
    """Everyday ones; the output first."""
    out = torch.full((8 + 512,), -1.0, device=device)
    x = torch.arange(512, device=device, dtype=torch.float32)
    return out, 2, 0.5, 3, 2**40, True, x, x, n


def right(given: tuple[Any, ...]) -> bool:
    """Say if the output is what it should be."""
    out, x, n = given[0], given[6], given[8]
    return torch.equal(out[8 : 8 + n], 2 * x[:n]) and bool((out[8 + n :] == -1).all())


def planned(kernel: AsmAutotuner) -> bool:
    """Say if the last launch went by a plan."""
    return kernel._launcher.last is not None


def test_the_second_launch_is_planned_and_returns_the_kernel(kernel: AsmAutotuner) -> None:
    """A launch gives Triton's compiled kernel, the second time without Triton's Python."""
    given = arguments()
    first = kernel[(8,)](*given)
    assert not planned(kernel)
    assert kernel[(8,)](*given) is first
    assert planned(kernel)
    assert right(given)
    assert first.asm["ptx"]


def test_launches_go_to_the_current_stream(kernel: AsmAutotuner) -> None:
    """A planned launch on another stream waits for that stream's work, and no other's."""
    given = arguments()
    kernel[(8,)](*given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    given[0].fill_(-1.0)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        given[6].add_(1)  # behind the sleep; the launch has to see it
        kernel[(8,)](*given)
    stream.synchronize()
    assert planned(kernel)
    assert right(given)


def test_threads_launch_at_once(kernel: AsmAutotuner) -> None:
    """Eight threads with a stream each launch one kernel; every output is right."""
    outcomes: list[bool] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for n in range(90, 120):
                given = arguments(n)
                kernel[(8,)](*given)
                kernel[(8,)](*given)
                torch.cuda.current_stream().synchronize()
                outcomes.append(right(given))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 240
    assert all(outcomes)


def test_planned_launches_are_captured(kernel: AsmAutotuner) -> None:
    """A CUDA graph holds a planned launch, and its replay does it again."""
    given = arguments()
    kernel[(8,)](*given)
    kernel[(8,)](*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[(8,)](*given)
    given[0].fill_(-1.0)
    graph.replay()
    torch.cuda.synchronize()
    assert planned(kernel)
    assert right(given)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices_alternate(kernel: AsmAutotuner) -> None:
    """One kernel launched on two devices in turns has a plan, and a handle, for each."""
    for _ in range(3):
        for device in ("cuda:0", "cuda:1"):
            with torch.cuda.device(device):
                given = arguments(device=device)
                kernel[(8,)](*given)
                assert right(given)
    assert len(kernel._launcher) == 2
