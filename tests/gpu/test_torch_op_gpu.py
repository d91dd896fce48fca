"""Winners with caps and clusters, and winners by size, in programs that Inductor compiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from asmtune import Config, Space, asm_autotune
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.events import UntunedWarning
from asmtune.runtime.launch.planning import LaunchWarning
from tests.dispatch import torch_kernels
from tests.gpu import gpu_kernels

N = 1 << 16
CAPPED = Config({"BLOCK": 2048}, num_warps=1, maxnreg=64)  # 116 registers without the cap
OTHER = triton.Config({"BLOCK": 256}, num_warps=4, num_ctas=2)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No graph of another test's; a launch with another config than its winner fails the test."""
    torch.compiler.reset()
    with torch._inductor.config.patch(force_disable_caches=True), warnings.catch_warnings():
        warnings.simplefilter("error", UntunedWarning)
        warnings.simplefilter("error", LaunchWarning)
        yield
    torch.compiler.reset()


def known(kernel: Any, *sizes: int) -> AsmAutotuner:
    """A kernel of which each key's config is the capped one, without any timing."""
    space = Space.from_configs([CAPPED])
    tuned: AsmAutotuner = asm_autotune(space=space, key=["n"], small=None)(kernel)
    for n in sizes:
        check(adder(tuned), n)
    return tuned


def adder(kernel: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function that launches a kernel among PyTorch's own operations."""

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x + 1, y, out, n)
        return out * 2

    return add


def check(function: Callable[..., torch.Tensor], *sizes: int) -> None:
    """Call it with vectors of these sizes; the results are right."""
    for n in sizes:
        x, y = torch.randn(2, n, device="cuda")
        torch.testing.assert_close(function(x, y), (x + 1 + y) * 2)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_cap_reaches_the_gpu(mode: str) -> None:
    """The kernel that the compiled program launches has no more registers than the cap."""
    kernel = known(gpu_kernels.add, N)
    kernel._forget()
    counters.clear()
    check(torch.compile(adder(kernel), fullgraph=True, mode=mode), *[N] * 4)
    launched = kernel._launcher.last
    assert launched.config == CAPPED
    assert launched.kernel.metadata.maxnreg == 64
    assert 0 < launched.kernel.n_regs <= 64
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_sizes_of_one_graph_have_their_own_winners() -> None:
    """One graph of a dynamic size launches two keys with different values, cap and cluster."""
    kernel = known(gpu_kernels.add, N, 3 * N)
    (key,) = [key for key in kernel.cache if key[0] == 3 * N]
    kernel.cache[key] = OTHER
    check(adder(kernel), 3 * N)
    counter = CompileCounterWithBackend("inductor")
    graph = torch.compile(adder(kernel), backend=counter, dynamic=True, fullgraph=True)
    for n, config in ((N, CAPPED), (3 * N, Config.of(OTHER)), (N, CAPPED)):
        check(graph, n)
        assert kernel.best_config == config
    assert counter.frame_count == 1


def test_an_argument_in_place() -> None:
    """A program's own tensor, which the capped kernel doubles, is doubled once."""
    space = Space.from_configs([CAPPED])
    scale: Any = asm_autotune(space=space, key=["n"], small=None)(gpu_kernels.scale_in_place)

    def twice(x: torch.Tensor) -> torch.Tensor:
        n = x.numel()
        scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
        return x + 1

    x = torch.randn(N, device="cuda")
    twice(x)
    expected = x * 2 + 1
    torch.testing.assert_close(torch.compile(twice, fullgraph=True, dynamic=False)(x), expected)
    torch.testing.assert_close(x, expected - 1)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_gradients(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """A training step through a capped kernel is right, also when it is replayed."""
    monkeypatch.setattr(torch_kernels, "doubling", known(gpu_kernels.add, N))
    step = torch.compile(
        lambda x: (torch_kernels.Doubled.apply(x) ** 2).sum(), fullgraph=True, mode=mode
    )
    for _ in range(4):
        x = torch.randn(N, device="cuda", requires_grad=True)
        step(x).backward()
        torch.testing.assert_close(x.grad, 8 * x.detach())
    assert torch_kernels.doubling.best_config == CAPPED
