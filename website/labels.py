"""Names of the rows and columns of the result files in the pages' tables."""

from __future__ import annotations

from typing import Final

REPLAYED: Final = {
    "chance": "`chance`",
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
    "without layouts of warps and banks": "without layouts of warps and banks",
    "without bounds of masks": "without bounds of masks",
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
    "scan": "scan by chunks, forward and backward",
    "gated_norm": "gated RMS norm, forward and backward",
    "cut_cross_entropy": "loss without logits, forward and backward",
    "tensorwise": "cast to FP8, one scale",
    "experts": "cast of experts to FP8, a scale a row",
}
LIKE: Final = "the same"
GROUPS: Final = (
    ("matmul in fp16", "cuBLAS", "gemm", "matmul", "over_vendor"),
    (
        "linear + bias + GELU in bf16",
        "cuBLAS, then PyTorch's GELU",
        "gemm",
        "linear",
        "over_vendor",
    ),
    (
        "attention forward, head sizes 64 and 128",
        "the fastest of SDPA's backends",
        "attention",
        "attention",
        "over_vendor",
    ),
    (
        "attention backward",
        "SDPA's backward",
        "attention_backward",
        "attention_backward",
        "over_vendor",
    ),
    (
        "convolution + bias + ReLU, channels last",
        "PyTorch with cuDNN",
        "convolution",
        "conv2d",
        "over_vendor",
    ),
    (LIKE, "cuDNN's fused kernel", "convolution", "conv2d", "over_cudnn_convolution_relu"),
    ("GRU, a layer in one launch", "cuDNN", "recurrent", "gru", "over_vendor"),
    (LIKE, "our kernel launched once a step", "recurrent", "gru", "over_steps"),
    ("softmax, cross entropy and its backward", "PyTorch", "softmax", "", "over_vendor"),
    (
        "layer norm and RMSNorm, with their backwards",
        "PyTorch",
        "normalisation",
        "",
        "over_vendor",
    ),
    (
        "element-wise: add, broadcast + ReLU, GELU, dropout, rotary embedding",
        "PyTorch",
        "element-wise",
        "",
        "over_vendor",
    ),
)
"""Lines of the table of kernels: label, against what, and which rows of kernels.json: their group,
their kernel ("" for all of the group), and the factor that is averaged."""
TUNED_AGAINST: Final = {
    "autotune": "`triton.autotune`",
    "exhaustive_5_20": "all compiled by {cores}, timed 5/20 ms",
}
AIBENCH8: Final = {
    "full": "as tuned",
    "dispatch_off": "launched with the default configs in place of the tuned ones",
    "contract_off": "tuned, without contracts on what divides sizes and addresses",
    "asm_off": "tuned, as many configs timed, picked at random instead of by the assembly",
}
ROWS: Final = {
    "oracle": "the {kernels} of the first table",
    "families": "{kernels} families",
    "families2": "{kernels} more families",
    "h100_families": "{kernels} of all these, timed on an H100",
    "kinds": "{kernels} kernels of kinds that these lack",
}
"""Files of training rows, by what their kernels are."""
SOURCES: Final = (
    "side_by_side",
    "h100_side_by_side",
    "large_space",
    "replay",
    "replay_families2",
    "replay_rows",
    "promise",
    "first_stage",
    "ablation",
    "ablation_families2",
    "replay_strategies",
    "replay_strategies_kinds",
    "derived_target",
    "prune_overhead",
    "launch_cost",
    "h100_launch_cost",
    "cold_start",
    "large_store",
    "packages",
    "kernels",
    "wide_h200",
    "wide_h100",
    "h100_kernels",
    "aibench8",
    "h100_aibench8",
    "h100_host_cost",
    "h200_host_cost",
    "ladder",
    "ladder_attention",
    "ladder_conv",
    "backward_conv2d",
    "backward_gru",
    "roofline",
    "false_alarms",
    "lowprec_groups",
)
"""Result files of the table that says how each was made."""
