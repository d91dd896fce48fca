"""What the rows and columns of the result files are called in the pages' tables."""

from __future__ import annotations

from typing import Final

REPLAYED: Final = {
    "chance": "`chance`",
    "weights": "`weights`",
    "roofline, before compiling": "`roofline`, before compiling",
    "roofline": "`roofline`",
    "learned, before compiling": "`learned`, before compiling",
    "learned, 25% compiled": "`learned`, a quarter compiled",
    "learned": "`learned`",
}
ABLATED: Final = {
    "all features": "all",
    "before compiling": "before compiling",
    "without registers, spills and occupancy": "without registers, spills, occupancy",
    "without instruction counts": "without instruction counts",
    "tile sizes only": "tile sizes, warps, stages only",
}
CUTS: Final = ("top1", "top5", "top10", "top5pct", "top10pct", "worst_top10")
CUT_HEADS: Final = ("top 1", "top 5", "top 10", "top 5%", "top 10%", "worst task, top 10")
TASKS: Final = {
    "gemm": "GEMM",
    "gemm_bias_gelu": "GEMM + bias + GELU",
    "attention": "attention",
    "layernorm": "layer norm",
    "broadcast_relu": "broadcast + ReLU",
}
OPERATIONS: Final = {
    "gla": "gla forward",
    "gated_delta_rule": "gated delta rule forward",
    "dyt": "DyT forward and backward",
    "mlp": "SwiGLU MLP",
    "moe": "mixture of experts",
    "layer_norm": "layer norm forward and backward",
    "cross_entropy": "cross entropy forward and backward",
    "bmm": "bmm (its own tuner, left alone)",
    "token": "1 token",
    "batch": "16 tokens",
    "prompt": "2048 tokens",
}
GROUPS: Final = {
    "gemm": (
        "matmul in fp16, linear + bias + GELU in bf16, 22 shapes",
        "cuBLAS, and PyTorch's GELU",
    ),
    "attention": ("attention forward, head sizes 64 and 128", "the fastest of SDPA's backends"),
    "convolution": ("convolution + bias + ReLU, channels last", "PyTorch with cuDNN"),
    "conv2d/cudnn_convolution_relu": ("the same", "cuDNN's fused kernel"),
    "recurrent": ("GRU, a layer in one launch", "cuDNN"),
    "gru/steps": ("the same", "our kernel launched once a step"),
    "softmax": ("softmax, cross entropy and its backward", "PyTorch"),
    "normalisation": ("layer norm and RMSNorm, with their backwards", "PyTorch"),
    "element-wise": (
        "element-wise: add, broadcast + ReLU, GELU, dropout, rotary embedding",
        "PyTorch",
    ),
}
