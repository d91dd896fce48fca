"""Attention against the fastest backend of PyTorch's: FlashAttention-2's, cuDNN's or xFormers'."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_spec import attend_by_heads
from asmtune.kernels.attention_fp8 import dequantised
from benchmarks.kernels.entry import Entry, Inputs, Shape

Launch = Callable[[], Any]

HALVES = {"fp16": "fp16", "bf16": "bf16"}

BACKENDS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)


def attend(given: Mapping[str, Any], causal: bool) -> torch.Tensor:
    """Call `scaled_dot_product_attention` on a kernel's inputs."""
    q, k, v = (given[name] for name in "qkv")
    grouped = q.shape[1] != k.shape[1]
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def fastest(prepare: Callable[[], Launch], device: torch.device) -> Launch:
    """Make a launch by the fastest backend, which stays selected; each is tried first.

    Args:
        prepare: makes the launch; what it does before, such as a forward pass, takes the
            backend that is on as well.
        device: device of the inputs; on a CPU there is nothing to choose.
    """
    if device.type != "cuda":
        return prepare()
    times = {}
    for backend in BACKENDS:
        with sdpa_kernel(backend), warnings.catch_warnings():
            # One that has no kernel for this shape says why, before it raises.
            warnings.simplefilter("ignore")
            try:
                times[backend] = _seconds(prepare())
            except RuntimeError:
                continue
    if not times:
        return prepare()
    _leave_on(min(times, key=times.__getitem__))
    return prepare()


def _leave_on(backend: SDPBackend) -> None:
    # A context around each launch would be timed with it.
    torch.backends.cuda.enable_flash_sdp(backend is SDPBackend.FLASH_ATTENTION)
    torch.backends.cuda.enable_cudnn_sdp(backend is SDPBackend.CUDNN_ATTENTION)
    torch.backends.cuda.enable_mem_efficient_sdp(backend is SDPBackend.EFFICIENT_ATTENTION)


def _seconds(launch: Launch, runs: int = 7) -> float:
    times = []
    for _ in range(runs + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[2:])


def forward(given: Inputs) -> Launch:
    """Launch the fastest backend at the shape."""
    detached = {**given, **{name: given[name].detach() for name in "qkv"}}
    return fastest(lambda: lambda: attend(detached, given["causal"]), given["q"].device)


def forward_of_fp8(given: Inputs) -> Launch:
    """Launch the fastest backend on the same keys and values in q's dtype, made before."""
    q, causal = given["q"], given["causal"]
    wide = {name: dequantised(given[name], given[f"scale_{name}"], q.dtype) for name in "kv"}
    return fastest(lambda: lambda: attend({"q": q, **wide}, causal), q.device)


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Compute attention one key head after the other: scores of all heads may take 64 GiB."""
    how = Attending(causal=causal).checked("attention", q, k)
    return attend_by_heads(q, k, v, how)[0]


def backward(given: Inputs) -> Launch:
    """Compute the gradients of q, k and v, by the backend with the fastest backward."""

    def prepare() -> Launch:
        leaves = [given[name].detach().requires_grad_() for name in "qkv"]
        y = attend(dict(zip("qkv", leaves, strict=True)), given["causal"])
        return lambda: torch.autograd.grad(y, leaves, given["dy"], retain_graph=True)

    return fastest(prepare, given["q"].device)


def flops(products: float) -> Callable[[Shape], float]:
    """Count the operations of a number of products of M x N x D a head, half where causal."""

    def counted(shape: Shape) -> float:
        extents = shape["B"] * shape["H"] * shape["M"] * shape["N"] * shape["D"]
        return extents * products * (1.0 if shape["causal"] else 2.0)

    return counted


ENTRIES = {
    "attention": Entry(
        vendor_name="scaled_dot_product_attention, the fastest of flash, cuDNN and efficient",
        vendor=forward,
        exact=exact,
        group="attention",
        flops=flops(2),
        rates=HALVES,
        dtypes=("fp16", "bf16"),
    ),
    # Memory limits one query a head, whose rows have a mean of their own.
    "attention_fp8": Entry(
        vendor_name="scaled_dot_product_attention in 16 bits, the fastest backend",
        vendor=forward_of_fp8,
        group="attention with FP8 keys",
        apart=lambda shape, _: shape["M"] == 1,
        flops=flops(2),
        rates=HALVES,
    ),
    "attention_backward": Entry(
        vendor_name="scaled_dot_product_attention backward",
        vendor=backward,
        group="attention_backward",
        flops=flops(5),
        rates=HALVES,
        dtypes=("fp16", "bf16"),
    ),
}
