"""Shapes of the plan "wide": GEMMs and attention of models that are served, and odd sizes.

None of them is tuned for, and no config is shipped for those that a kernel's SHAPES lack. M is the
number of tokens: 1 to 64 where tokens are generated, more where a prompt is read. N and K are those
of the projections in the configs that Meta (Llama 3 8B, 70B), Alibaba (Qwen2.5 7B) and DeepSeek
(V3) published with their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asmtune.kernels._attention_host import of_length
from asmtune.kernels.scaled_matmul import GRANULARITIES

Shape = Mapping[str, int]

_LLAMA_8B: Final = {
    "qkv": (6144, 4096), "out": (4096, 4096), "up": (28672, 4096), "down": (4096, 14336),
}  # fmt: skip
_LLAMA_70B: Final = {
    "qkv": (10240, 8192), "out": (8192, 8192), "up": (57344, 8192), "down": (8192, 28672),
}  # fmt: skip
_QWEN_7B: Final = {"qkv": (4608, 3584), "up": (37888, 3584), "down": (3584, 18944)}
_DEEPSEEK: Final = {
    "in": (2112, 7168), "q": (24576, 1536), "kv": (32768, 512), "out": (7168, 16384),
    "shared_up": (4096, 7168), "shared_down": (7168, 2048),
}  # fmt: skip

_GENERATED: Final = (1, 16, 64)
"""Tokens at a time where one is made for each request."""

_SQUARES: Final = (512, 768, 1000, 1024, 1280, 1536, 2001, 2048, 3072, 4096, 5000, 6144, 8192)

_SCALED: Final = (
    (4096, 4096, 4096), (8192, 7168, 2048), (128, 7168, 16384), (16, 14336, 4096),
    (1, 6144, 4096), (1, 4096, 14336), (8, 28672, 4096), (16, 4096, 4096),
    (32, 57344, 8192), (64, 8192, 28672), (64, 2112, 7168), (64, 24576, 1536),
    (128, 4096, 7168), (256, 7168, 2048), (512, 6144, 4096), (1024, 28672, 4096),
    (2048, 4096, 14336), (4096, 24576, 1536), (4096, 7168, 16384), (8192, 8192, 8192),
)  # fmt: skip


def _gemm(M: int, N: int, K: int, transposed: int, batch: int = 1) -> Shape:
    return {"batch": batch, "M": M, "N": N, "K": K, "transposed": transposed}


def gemms() -> tuple[Shape, ...]:
    """List 60 products: projections with the weights as (out, in), the others in both layouts."""
    generated = [
        _gemm(M, *extents, 1)
        for M in _GENERATED
        for extents in (*_LLAMA_8B.values(), _DEEPSEEK["out"], _DEEPSEEK["in"], _QWEN_7B["qkv"])
    ]
    large = [_gemm(64, *extents, 1) for extents in _LLAMA_70B.values()]
    read = [
        _gemm(M, *extents, 1)
        for M, extents in (
            (128, _LLAMA_8B["qkv"]), (256, _LLAMA_8B["down"]), (512, _LLAMA_8B["up"]),
            (1024, _LLAMA_70B["qkv"]), (1024, (5120, 5120)), (2048, _LLAMA_8B["down"]),
            (2048, _LLAMA_70B["out"]), (4096, _LLAMA_8B["up"]), (8192, _LLAMA_8B["out"]),
            (8192, _LLAMA_70B["down"]), (333, _QWEN_7B["qkv"]), (1024, _QWEN_7B["down"]),
            (4096, _QWEN_7B["up"]), (512, _DEEPSEEK["q"]), (2048, _DEEPSEEK["kv"]),
            (1024, _DEEPSEEK["shared_up"]), (4096, _DEEPSEEK["shared_down"]), (4608, (6144, 4096)),
        )
    ]  # fmt: skip
    squares = [_gemm(n, n, n, nth % 2) for nth, n in enumerate(_SQUARES)]
    squares += [_gemm(4096, 4096, 4096, 0)]
    batches = [
        _gemm(1024, 1024, 1024, 0, 8),
        _gemm(512, 512, 128, 1, 64),
        _gemm(128, 512, 64, 0, 96),
    ]
    return (*generated, *large, *read, *squares, *batches)


def attentions() -> tuple[Shape, ...]:
    """List 24 problems: heads of 64 and 128, causal or not, grouped or not, 512 to 16,384 long.

    Six more have heads of other sizes: those of Stable Diffusion 1.5 (40 and 160), SigLIP So400m
    (72), Phi-2 (80), Phi-3 mini (96), and of DeepSeek V3's queries and keys (192).
    """
    return (
        *(
            of_length(batch, heads, keys, length, dim, causal)
            for batch, heads, keys, length in (
                (8, 16, 16, 512), (4, 16, 16, 2048), (2, 16, 16, 8192),
                (4, 32, 8, 1024), (2, 32, 8, 4096), (1, 32, 8, 16384),
            )
            for dim in (64, 128)
            for causal in (0, 1)
        ),
        of_length(2, 8, 8, 4096, 40, 0),
        of_length(8, 16, 16, 729, 72, 0),
        of_length(2, 32, 32, 2048, 80, 1),
        of_length(1, 32, 32, 4096, 96, 1),
        of_length(8, 8, 8, 1024, 160, 0),
        of_length(1, 32, 32, 2048, 192, 1),
    )  # fmt: skip


def backwards() -> tuple[Shape, ...]:
    """List 8 problems: heads of 64 and 128, causal or not, grouped or not, 1024 to 8192 long.

    Three more have heads of 40, 80 and 96. The float64 weights of their checks
    take up to 4 GiB each, six at once.
    """
    return tuple(
        of_length(*extents)
        for extents in (
            (4, 32, 8, 1024, 64, 1), (4, 32, 8, 1024, 128, 0),
            (2, 16, 16, 2048, 64, 0), (2, 16, 16, 2048, 128, 1),
            (1, 32, 8, 4096, 64, 0), (1, 32, 8, 4096, 128, 1),
            (1, 8, 8, 8192, 64, 1), (1, 8, 8, 8192, 128, 0),
            (2, 8, 8, 4096, 40, 0), (2, 32, 32, 2048, 80, 1), (1, 32, 32, 2048, 96, 1),
        )
    )  # fmt: skip


def scaled() -> tuple[Shape, ...]:
    """List 20 projections, 1 to 8192 rows, with scales by tensor, by row and by block each."""
    names = ("M", "N", "K", "GROUP_A", "GROUP_B", "GROUP_K")
    return tuple(
        dict(zip(names, (*extents, *group), strict=True))
        for extents in _SCALED
        for group in GRANULARITIES.values()
    )


SHAPES: Final = {
    "matmul": gemms,
    "attention": attentions,
    "attention_backward": backwards,
    "scaled_matmul": scaled,
}
"""Functions that list the shapes, by the kernel's name."""
