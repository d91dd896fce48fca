"""cuDNN's GRU layer, which the GRU kernels are timed against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.entry import Inputs


def cudnn(given: Inputs) -> Callable[[], Any]:
    """Build `torch.nn.GRU` with its weights flattened; cuDNN and PyTorch use tf32 for fp32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x, h0 = given["x"], given["h0"][None]
    layer = torch.nn.GRU(x.shape[2], h0.shape[2]).to(device=x.device, dtype=x.dtype)
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(layer, f"{name}_l0").copy_(given[name])
    layer.flatten_parameters()

    def launch() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            output, last = layer(x, h0)
        return output, last[0]

    return launch
