"""Prepared calls on a GPU, against the functions that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from asmtune import asm_autotune, replay_calls
from asmtune.core.alternatives import call_of
from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.kernels._common import is_hopper
from asmtune.kernels._conv2d import gradients
from asmtune.workshop.kernel_checks.reports import as_tuple
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.host_cost import CASES
from tests.kernels.accuracy import case_of, doubled, launched_with, module_of
from tests.kernels.test_conv2d_gradients import WAYS, exact_gradients, operands

ONE = Config({"BLOCK": 256})


@asm_autotune(configs=[ONE], key=["n"])
@triton.jit
def scaled(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    """Multiply by a number."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)


def _grid(values: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["n"], values["BLOCK"]),)


@replay_calls
def twice(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    """Scale by way of memory that is not returned."""
    between, y = torch.empty_like(x), torch.empty_like(x)
    scaled[_grid](x, between, x.numel(), scale)
    scaled[_grid](between, y, x.numel(), scale)
    return y


def test_calls_do_what_the_function_does() -> None:
    """Calls on random extents and numbers, most of them prepared, give the right results."""
    for number in range(200):
        x = torch.randn(1 + number % 7, 64, device="cuda")
        scale = float(number % 3)
        assert torch.equal(twice(x, scale), x * scale * scale)
    assert len(twice.prepared) == 21  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_public_functions(name: str) -> None:
    """Prepared calls give the function's own bits, forward and backward, on new inputs."""
    module, case = module_of(name), CASES[name]
    public = getattr(module, name)
    # What a backward pass tunes may add in any order.
    with launched_with(module.DEFAULT, name, *case_of(name).also):
        public.prepared.refused.clear()
        for seed in range(5):
            torch.manual_seed(seed)
            given = module.inputs(case.shape, "fp16", "cuda")
            leaves = [given[key].requires_grad_() for key in case.inputs]
            got, want = (
                _results(call, given, leaves) for call in (public, public.prepared.ordinary)
            )
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        assert len(public.prepared)
        assert not [r for r in public.prepared.refused if "no plan" not in r]


def _results(call: Callable[..., Any], given: Any, leaves: list[Any]) -> tuple[Any, ...]:
    result = call(**given)
    if not leaves:
        return as_tuple(result)
    return (result, *torch.autograd.grad(result, leaves, torch.ones_like(result)))


def test_calls_go_to_the_current_stream() -> None:
    """A prepared call on another stream waits for that stream's work, with memory of its own."""
    x = torch.ones(1 << 16, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(4):
            twice(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.add_(1)
        y = twice(x)
    stream.synchronize()
    assert torch.equal(y, torch.full_like(x, 8.0))


def test_calls_are_captured() -> None:
    """A CUDA graph holds a prepared call, and its replay does it again."""
    x = torch.ones(1000, device="cuda")
    for _ in range(4):
        twice(x)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(4):
            twice(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        y = twice(x)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(x, 12.0))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("dim", [64, 128])
def test_vendors_of_attention(dtype: str, causal: int, dim: int) -> None:
    """FlashAttention-2, cuDNN and Gluon write results and logarithms of sums as the kernel does."""
    module = module_of("attention")
    skipped = () if is_hopper(torch.device("cuda")) else ("gluon",)
    shape = {"B": 2, "H": 4, "KV": 4, "M": 256, "N": 256, "D": dim, "causal": causal}
    problem = module.problem(shape, dtype, "cuda")
    want = module.reference(problem.arguments)
    rows = case_of("attention").rows("cuda", dtype)
    for name, function in module._tuned.options.choices["alternatives"].items():
        if name in skipped:
            continue
        for output in module.OUTPUTS:
            problem.arguments[output].fill_(float("nan"))
        call_of(function, module.kernel.arg_names, problem.arguments)()
        for output, exact in zip(module.OUTPUTS, want, strict=True):
            assert excess(problem.arguments[output], exact, rows) <= 1, (name, output)
    given = module.inputs(shape, dtype, "cuda")
    exact = module.baseline(**{**given, **{key: given[key].double() for key in "qkv"}})
    for name, function in module.attention.prepared.alternatives.items():
        assert name in skipped or excess(function(**given), exact, rows) <= 1, name


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("dim", [64, 128])
def test_ways_of_attentions_backward(dtype: str, causal: int, dim: int) -> None:
    """The Gluon kernel, on Hopper, and two launches make the gradients of float64."""
    module = module_of("attention_backward")
    shape = {"B": 2, "H": 4, "KV": 2, "M": 1152, "N": 1152, "D": dim, "causal": causal}
    given = module.inputs(shape, dtype, "cuda")
    want = module.baseline(**doubled(given))
    rows = case_of("attention_backward").rows("cuda", dtype)
    for gluon in (False, True):
        # Without it each of the two launches would be tuned first.
        with launched_with(module.DEFAULT, "attention_backward", "_attention_backward_q"):
            made = module.attention_backward(**given, gluon=gluon)
        for name, mine, exact in zip("qkv", made, want, strict=True):
            assert excess(mine, exact, rows) <= 1, (name, gluon)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_vendor_of_a_convolution(dtype: str) -> None:
    """CuDNN writes and returns what the kernel does, in the same layout."""
    name = "conv2d"
    module, rows = module_of(name), case_of(name).rows("cuda", dtype)
    shapes = [shape for shape in case_of(name).shapes if shape["channels"] >= 32]
    for shape in shapes[:2]:
        problem, given = module.problem(shape, dtype, "cuda"), module.inputs(shape, dtype, "cuda")
        (function,) = module._tuned.options.choices["alternatives"].values()
        (who,) = module._tuned.options.choices["alternatives"]
        for output in module.OUTPUTS:
            problem.arguments[output].fill_(float("nan"))
        call_of(function, module.kernel.arg_names, problem.arguments)()
        wanted = as_tuple(module.reference(problem.arguments))
        for output, want in zip(module.OUTPUTS, wanted, strict=True):
            assert excess(problem.arguments[output], want, rows) <= 1, (shape, output)
        with launched_with(module.DEFAULT, name):
            own = as_tuple(getattr(module, name)(**given))
        exact = as_tuple(module.baseline(**doubled(given)))
        made = as_tuple(getattr(module, name).prepared.alternatives[who](**given))
        for mine, want, ours in zip(made, exact, own, strict=True):
            assert excess(mine, want, rows) <= 1, shape
            assert (mine.dtype, mine.stride()) == (ours.dtype, ours.stride())


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_convolutions_gradients(way: dict[str, Any], dtype: str) -> None:
    """CuDNN's gradients of image and weights are those of float64, in channels_last."""
    rows, given = case_of("conv2d").rows("cuda", dtype), operands(way, torch_dtype(dtype), "cuda")
    made = gradients(given["dy"], given["x"], given["weight"], *[*given.values()][3:], (True, True))
    for got, want in zip(made, exact_gradients(given), strict=True):
        assert excess(got, want, rows) <= 1
        assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("group", [0, -1, 128])
def test_dequantised(dtype: str, group: int) -> None:
    """Attention on widened keys and values computes what the kernel for FP8 does."""
    module = module_of("attention_fp8")
    shape = {"B": 2, "H": 4, "KV": 2, "M": 256, "N": 256, "D": 64, "causal": 1, "e5m2": 0}
    given = module.inputs({**shape, "group": group}, dtype, "cuda")
    with launched_with(module_of("attention").DEFAULT, "attention"):
        got = module.attention_fp8.prepared.alternatives["dequantised"](**given)
    rows = case_of("attention_fp8").rows("cuda", dtype)
    assert excess(got, module.baseline(**doubled(given)), rows) <= 1


@pytest.mark.parametrize("dtype", ["fp8e4nv", "i8", "fp16"])
def test_cublas(dtype: str) -> None:
    """CuBLAS multiplies what the kernel does, 8 bits too."""
    module = module_of("matmul")
    given = module.inputs({"batch": 1, "M": 64, "N": 128, "K": 256}, dtype, "cuda")
    got = module.matmul.prepared.alternatives["cublas"](**given)
    want = module.baseline(**given)
    assert got.dtype == want.dtype
    assert excess(got, want.double(), case_of("matmul").rows("cuda", dtype)) <= 1
