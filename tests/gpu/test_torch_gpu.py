"""Autotuned kernels inside PyTorch on a GPU: its compiler, operators, graphs, autograd, threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import triton
from torch._inductor.utils import run_and_get_code

from asmtune import Config, Space
from asmtune.runtime.events import UntunedWarning
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.session import Session
from tests.dispatch import test_torch_compile
from tests.dispatch.test_torch_compile import adder
from tests.gpu import gpu_kernels

SPACE = Space({"BLOCK": (256, 512, 1024), "num_warps": (2, 4)}, default=Config({"BLOCK": 256}))
N = 1 << 20


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernel and values of each tuning, which is real."""
    seen: list[str] = []
    run = Session.run

    def counted(self: Session, request: TuningRequest) -> TuningResult:
        seen.append(f"{request.key.kernel.rpartition('.')[2]} {request.key.shape['n']}")
        return run(self, request)

    monkeypatch.setattr(Session, "run", counted)
    return seen


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No graph of another test's, nor one that an earlier run left on disk."""
    torch.compiler.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch.compiler.reset()


@pytest.fixture
def quiet() -> Iterator[None]:
    """An untuned launch fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntunedWarning)
        yield


decorated = partial(test_torch_compile.decorated, gpu_kernels.add, space=SPACE)
check = partial(test_torch_compile.check, device="cuda")


def in_code(config: Config) -> str:
    """A config as it stands in Inductor's code, where it is the only one."""
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return f"configs=[{values}]"


def test_inductor_launches_what_was_tuned(tunings: list[str], quiet: None) -> None:
    """After one eager launch the compiled graph holds the tuned config alone, and is right."""
    kernel = decorated()
    check(adder(kernel), N)
    graph = torch.compile(adder(kernel), fullgraph=True)
    x, y = torch.randn(2, N, device="cuda")
    out, (code, *_) = run_and_get_code(graph, x, y)
    torch.testing.assert_close(out, (x + 1 + y) * 2)
    best = kernel.best_config
    assert best is not None
    if best.maxnreg is None:
        assert in_code(best) in code
        assert code.count("configs=[{") == 1
    else:
        assert code.count("torch.ops.asmtune.launch.default(") == 1
    assert tunings == [f"add {N}"]


def test_an_untuned_key_is_compiled_with_the_default(tunings: list[str]) -> None:
    """What nobody tuned is right, times nothing inside the graph, and gives one warning."""
    kernel = decorated()
    graph = torch.compile(adder(kernel), fullgraph=True, dynamic=False)
    x, y = torch.randn(2, N, device="cuda")
    with pytest.warns(UntunedWarning, match=rf"add at n={N}.*set_stance") as seen:
        out, (code, *_) = run_and_get_code(graph, x, y)
    torch.testing.assert_close(out, (x + 1 + y) * 2)
    assert in_code(Config({"BLOCK": 256})) in code
    assert [w.category for w in seen].count(UntunedWarning) == 1
    assert tunings == []


def test_triton_op(tunings: list[str], quiet: None) -> None:
    """Under `triton_op` an eager call tunes and launches; a compiled one takes what it found."""
    kernel = decorated()

    @torch.library.triton_op("asmtune_gpu_tests::add", mutates_args={})
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        torch.library.wrap_triton(kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
            x, y, out, n
        )
        return out

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return add(x + 1, y) * 2

    check(function, N, N)
    check(torch.compile(function, fullgraph=True), N, N)
    assert tunings == [f"add {N}"]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_custom_op(tunings: list[str], quiet: None, mode: str) -> None:
    """An opaque operator is launched by asmtune, which tunes in the first run of the graph.

    In "reduce-overhead" PyTorch records the later runs into CUDA graphs: nothing is tuned there.
    """
    kernel = decorated()

    @torch.library.custom_op(f"asmtune_gpu_tests::opaque_{mode[:6]}", mutates_args={})
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        return out

    add.register_fake(lambda x, _: torch.empty_like(x))
    function = torch.compile(lambda x, y: add(x + 1, y) * 2, fullgraph=True, mode=mode)
    check(function, N, N, N, N)
    assert tunings == [f"add {N}"]


doubling: Any = None


class Doubled(torch.autograd.Function):
    """Launches a kernel forward, and another size of it backward."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice the first half of x."""
        x = x[: x.numel() // 2]
        out, n = torch.empty_like(x), x.numel()
        doubling[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, x, out, n)
        return out

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
        """Twice the gradient, for both halves."""
        grad = torch.cat([grad, torch.zeros_like(grad)])
        out, n = torch.empty_like(grad), grad.numel()
        doubling[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](grad, grad, out, n)
        return out


@pytest.mark.parametrize("traced", [False, True])
def test_backward(tunings: list[str], monkeypatch: pytest.MonkeyPatch, traced: bool) -> None:
    """PyTorch's backward thread tunes and launches a key of its own; the gradient is right."""
    monkeypatch.setitem(globals(), "doubling", decorated())

    def function(x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x).sum()

    runs = [function, torch.compile(function, fullgraph=True)] if traced else [function]
    expected = torch.cat([torch.full((N // 2,), 2.0), torch.zeros(N // 2)])
    for run in runs:
        x = torch.randn(N, device="cuda", requires_grad=True)
        run(x).backward()
        assert torch.equal(x.grad.cpu(), expected)
    assert sorted(tunings) == sorted([f"add {N // 2}", f"add {N}"])


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@two_gpus
def test_a_graph_on_the_second_device(tunings: list[str], quiet: None) -> None:
    """What is compiled for the second GPU's tensors takes the config tuned there."""
    kernel = decorated()
    with torch.cuda.device(1):
        check(adder(kernel), N, device="cuda:1")
    check(torch.compile(adder(kernel), fullgraph=True), N, device="cuda:1")
    assert tunings == [f"add {N}"]
