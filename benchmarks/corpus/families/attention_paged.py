"""Decoding over a paged cache: keys found by a table of pages, as many as the sequence has."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    length_ptr,
    y_ptr,
    heads,
    pages,
    scale,
    GROUP: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process the GROUP queries that share a key head of one sequence a program, in 16 rows."""
    seq, head = tl.program_id(0), tl.program_id(1)
    g, d = tl.arange(0, 16), tl.arange(0, D)
    length = tl.load(length_ptr + seq)
    row = (seq * heads + head) * GROUP + g
    q = tl.load(q_ptr + row[:, None] * D + d[None, :], mask=g[:, None] < GROUP, other=0.0)
    top = tl.full([16], -1.0e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for first in range(0, length, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        page = tl.load(table_ptr + seq * pages + n // PAGE, mask=n < length, other=0)
        token = (page.to(tl.int64) * PAGE + n % PAGE) * heads + head
        at = token[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=n[:, None] < length, other=0.0)
        s = tl.where(n[None, :] < length, tl.dot(q, k.T) * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + at, mask=n[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    y = (acc / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row[:, None] * D + d[None, :], y, mask=g[:, None] < GROUP)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 64, "heads": 8, "group": 4, "D": 128, "pages": 128},
    {"batch": 8, "heads": 4, "group": 8, "D": 64, "pages": 64},
    {"batch": 200, "heads": 2, "group": 5, "D": 128, "pages": 33},
)

PAGE = 16
"""Tokens a page."""


def space() -> Space:
    """Build the space: keys, stages and warps."""
    axes = {
        "BLOCK_N": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3, 4),
    }
    return Space(axes).where(
        "the keys' stages fit in shared memory",
        lambda BLOCK_N, D, num_stages: BLOCK_N * D * 4 * num_stages <= 512 * 1024,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads, pages in random order, last pages not full."""
    batch, heads, pages, D = (shape[name] for name in ("batch", "heads", "pages", "D"))
    k, v = (normal((batch * pages, PAGE, heads, D), dtype, device) for _ in range(2))
    q = normal((batch, heads, shape["group"], D), dtype, device)
    length = torch.randint(pages * PAGE // 2, pages * PAGE, (batch,), device=device)
    arguments = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "table_ptr": torch.randperm(batch * pages, device=device).to(torch.int32),
        "length_ptr": length.to(torch.int32),
        "y_ptr": torch.empty_like(q),
        "scale": D**-0.5 * 1.4426950408889634,
        "GROUP": shape["group"],
        "PAGE": PAGE,
    }
    return launch(kernel, shape, arguments, batch, heads)
