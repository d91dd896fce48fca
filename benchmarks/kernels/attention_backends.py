"""Fastest backend of PyTorch's attention, against which entries are timed."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Launch = Callable[[], Any]

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


def gradients(given: Mapping[str, Any]) -> Launch:
    """Compute the gradients of q, k and v, by the backend with the fastest backward."""

    def prepare() -> Launch:
        leaves = [given[name].detach().requires_grad_() for name in "qkv"]
        y = attend(dict(zip("qkv", leaves, strict=True)), given["how"].causal)
        return lambda: torch.autograd.grad(y, leaves, given["dy"], retain_graph=True)

    return fastest(prepare, given["q"].device)


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
