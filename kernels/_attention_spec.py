"""References, inputs, vendors and spaces that the specs of attention's kernels share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.space.space import Space
from asmtune.kernels._attention import columns_of
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._common import by_name
from asmtune.kernels.dropout import philox

_LOG2E = 1.4426950408889634


def visible(q: torch.Tensor, k: torch.Tensor, how: Attending) -> torch.Tensor:
    """Mark the keys that each query sees; broadcasts to (batch, heads, queries, keys)."""
    M, N = q.shape[2], k.shape[2]
    m = torch.arange(M, device=q.device)[:, None]
    n = torch.arange(N, device=q.device)[None, :]
    seen = torch.ones((1, 1, M, N), dtype=torch.bool, device=q.device)
    left, right = how.sides
    if left is not None:
        seen = seen & (n >= m - left)
    if right is not None:
        seen = seen & (n <= m + right)
    if how.mask is not None:
        seen = seen & (how.mask if how.mask.dtype == torch.bool else how.mask != -math.inf)
    if how.padding is not None:
        own = how.padding
        mask = own if own.dtype == torch.bool else n < own[:, None]
        seen = seen & mask[:, None, None, :]
    return seen


def dropped(q: torch.Tensor, k: torch.Tensor, how: Attending) -> torch.Tensor:
    """Compute the factor of each weight: 0 where it is dropped, else 1 / (1 - dropout)."""
    (batches, heads, M, _), N = q.shape, k.shape[2]
    quads = triton.cdiv(N, 4)
    counts = torch.arange(batches * heads * M * quads, device=q.device)
    words = torch.stack(philox(counts, how.seed), 1).view(batches, heads, M, 4 * quads)[..., :N]
    keep = words >> 1 >= round(how.dropout * (1 << 31))
    return torch.where(keep, 1.0 / (1.0 - how.dropout), 0.0).to(q.dtype)


def sharing(heads: int, key_heads: int) -> int:
    """Give how many heads of queries share a key head; refuse key heads that do not divide them."""
    if heads % key_heads:
        raise ValueError(f"{key_heads} key heads do not divide {heads} heads of queries")
    return heads // key_heads


def widened(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeat keys or values for each head of the queries that shares them."""
    return x.repeat_interleave(sharing(heads, x.shape[1]), 1)


def scores(q: torch.Tensor, k: torch.Tensor, how: Attending) -> torch.Tensor:
    """Compute scaled scores, -inf where a query does not see a key."""
    assert how.scale is not None
    s = q @ widened(k, q.shape[1]).mT * how.scale
    if how.mask is not None and how.mask.dtype != torch.bool:
        s = s + how.mask
    return s.masked_fill(~visible(q, k, how), -math.inf)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: Attending
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention, and log2 of its sums; inf for a query that sees no key."""
    s = scores(q, k, how)
    blind = ~visible(q, k, how).any(-1).expand(s.shape[:-1])
    p = s.masked_fill(blind[..., None], 0.0).softmax(-1)
    if how.dropout > 0.0:
        p = p * dropped(q, k, how)
    y = (p @ widened(v, q.shape[1])).masked_fill(blind[..., None], 0.0)
    return y, (s.logsumexp(-1) * _LOG2E).masked_fill(blind, math.inf)


def head_by_head(
    compute: Callable[..., tuple[torch.Tensor, ...]],
    queries: Sequence[torch.Tensor],
    keys: Sequence[torch.Tensor],
    how: Attending,
) -> tuple[torch.Tensor, ...]:
    """Call `compute` for one head of queries and its key head after the other; join the results.

    Scores in float64 of 32 heads and 16,384 tokens are 64 GiB, and five tests run at once on a GPU.
    Dropout and masks depend on the head, so that with them all heads are computed together.
    """
    if how.dropout > 0.0 or how.mask is not None:
        return compute(*queries, *keys, how)
    heads = queries[0].shape[1]
    group = sharing(heads, keys[0].shape[1])
    parts = [
        compute(*(x[:, i : i + 1] for x in queries), *(x[:, j : j + 1] for x in keys), how)
        for i, j in ((i, i // group) for i in range(heads))
    ]
    return tuple(torch.cat(part, 1) for part in zip(*parts, strict=True))


def attend_by_heads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: Attending
) -> tuple[torch.Tensor, ...]:
    """Compute what `attend` does, one head after the other where heads do not differ."""
    return head_by_head(attend, (q,), (k, v), how)


def differentiate(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    how: Attending,
) -> tuple[torch.Tensor, ...]:
    """Compute gradients of q, and of k and v for each head of queries, from what forward saved.

    `delta` is the sums of dy * y.
    """

    def compute(
        dy: torch.Tensor,
        q: torch.Tensor,
        lse: torch.Tensor,
        delta: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        how: Attending,
    ) -> tuple[torch.Tensor, ...]:
        assert how.scale is not None
        drop = dropped(q, k, how) if how.dropout > 0.0 else torch.ones((), dtype=q.dtype)
        p = torch.exp2(scores(q, k, how) * _LOG2E - lse[..., None])
        dp = dy @ widened(v, q.shape[1]).mT * drop.to(q.device)
        ds = p * (dp - delta[..., None]) * how.scale
        dk, dv = ds.mT @ q, (p * drop.to(q.device)).mT @ dy
        return ds @ widened(k, q.shape[1]), dk, dv

    return head_by_head(compute, (dy, q, lse, delta), (k, v), how)


def random_heads(
    shape: Mapping[str, int], dtype: str, device: str, *names: str
) -> dict[str, torch.Tensor]:
    """Make random tensors of queries (q, y, dy) or keys (k, v) by name."""
    queries = (shape["B"], shape["H"], shape["M"], shape["D"])
    keys = (shape["B"], shape["KV"], shape["N"], shape["D"])
    return {
        name: torch.randn(keys if name in "kv" else queries, device=device).to(torch_dtype(dtype))
        for name in names
    }


def forward_of(given: Mapping[str, torch.Tensor], how: Attending) -> dict[str, torch.Tensor]:
    """Compute y and lse, which forward saves for backward."""
    q, k, v = (given[name].float() for name in "qkv")
    y, lse = attend_by_heads(q, k, v, how.checked("attention", q, k))
    return {"y": y.to(given["q"].dtype), "lse": lse}


def backward_inputs(
    shape: Mapping[str, int], dtype: str, device: str
) -> tuple[dict[str, torch.Tensor], Attending]:
    """Make random heads, what forward saves of them, the sums of dy * y, and the options."""
    how = Attending(causal=bool(shape["causal"]))
    given = random_heads(shape, dtype, device, "dy", "q", "k", "v")
    given |= forward_of(given, how)
    given["delta"] = (given["dy"].float() * given["y"].float()).sum(-1)
    return given, how


_LN_2 = 0.6931471805599453


def flash(q: Any, k: Any, v: Any, causal: bool, scale: Any, sums: bool = True) -> Any:  # noqa: ARG001
    """Compute attention and natural logarithms of the sums by FlashAttention-2."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention
    return fused(q, k, v, 0.0, causal, False, scale=scale)


def cudnn(q: Any, k: Any, v: Any, causal: bool, scale: Any, sums: bool = True) -> Any:
    """Compute attention, and natural logarithms of the sums if they are wanted, by cuDNN."""
    fused = torch.ops.aten._scaled_dot_product_cudnn_attention
    return fused(q, k, v, None, sums, 0.0, causal, False, scale=scale)


def in_place(kernel: Any, fused: Callable[..., Any]) -> Callable[..., Any]:
    """Return the alternative to a launch of `attention`'s kernel by a function of the vendor's.

    It returns what copies the results, which a race does not time: a call of `attention` without
    gradients makes no copy. With heads of 128 and 512 tokens it takes a quarter as long as cuDNN,
    which lost for it.
    """

    def launch(given: dict[str, Any]) -> Callable[[], None]:
        heads = (given[f"{name}_ptr"] for name in "qkv")
        y, lse, *_ = fused(*heads, given["CAUSAL"], given["scale"])

        def copy() -> None:
            given["y_ptr"].copy_(y)
            torch.mul(lse.view(given["lse_ptr"].shape), 1 / _LN_2, out=given["lse_ptr"])

        return copy

    return by_name(kernel, launch)


def has_vendor(q: torch.Tensor, k: torch.Tensor, how: Attending) -> bool:
    """Return whether the vendor's functions compute the same.

    Theirs have no windows, other padding, masks and dropout, and a diagonal that ends at the last
    query and key. A key of the kernel's holds more than that.
    """
    return how.is_plain and (not how.causal or q.shape[2] == k.shape[2])


SPLITS = (1, 2, 4, 8, 16, 32)
"""Into how many parts keys are split."""

LEAST_OF_A_PART = 256
"""Keys of a part, at least."""

_SHARED = 227 * 1024
_RESERVED = 1024  # of each program, by the driver
_TWO_SUMS = "a thread has 64 scores, or 160 with its sums, at most"
_CAP = 128
"""Registers of a thread where two programs of eight warps share an SM."""


def of_queries(default: Config, held: int) -> Space:
    """Build the space of programs that hold a block of queries and loop over keys.

    Args:
        default: the config to fall back to.
        held: how many tensors have their block of queries in shared memory.
    """

    def fits_shared(
        BLOCK_M: int, BLOCK_N: int, D: int, num_stages: int, maxnreg: int | None
    ) -> bool:
        programs = 1 if maxnreg is None else 2
        return _fits_shared(D, held * BLOCK_M + 2 * num_stages * BLOCK_N, programs)

    return (
        _over_keys(default, {"maxnreg": (None, _CAP)})
        .where("registers are capped for two programs of eight warps", _may_cap)
        .where("queries, and keys and values in stages, fit in shared memory", fits_shared)
    )


def of_fp8(default: Config) -> Space:
    """Build the space of `of_queries` for keys and values of one byte, which may be split."""

    def fits_shared(BLOCK_M: int, BLOCK_N: int, D: int, num_stages: int) -> bool:
        # In stages a row takes half; a block of keys and one of values are widened besides.
        return _fits_shared(D, BLOCK_M + (num_stages + 2) * BLOCK_N)

    return (
        _over_keys(default, {"SPLIT": SPLITS})
        .where("queries, and keys and values in stages, fit in shared memory", fits_shared)
        .where("keys are split where programs are few", _may_split)
    )


def _over_keys(default: Config, more: Mapping[str, Sequence[int | None]]) -> Space:
    axes = {
        "BLOCK_M": (64, 16, 32, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (3, 2, 4),  # the first that fits replaces a default that does not
        **more,
    }

    def fits_threads(BLOCK_M: int, BLOCK_N: int, D: int, num_warps: int) -> bool:
        return _fits_threads(num_warps, (BLOCK_M, BLOCK_N, D), 1, 144)

    return (
        Space(axes, default=default)
        .where(
            "a block is of use for the number of queries",
            lambda BLOCK_M, M: _is_of_use(BLOCK_M, M) or BLOCK_M == 64,
        )
        .where("a thread has 64 scores, or 144 with its sums, at most", fits_threads)
    )


def _may_split(SPLIT: int, BLOCK_M: int, heads: int, M: int, N: int, SMS: int) -> bool:
    heads, M, N, most = _largest(heads, M, N)
    programs = heads * triton.cdiv(M, BLOCK_M) * SPLIT
    fits = most >= BLOCK_M and programs <= 4 * SMS
    return SPLIT == 1 or (fits and SPLIT * LEAST_OF_A_PART <= N)


def room_for_parts(heads: int, M: int, N: int, D: int, SMS: int) -> int:
    """Give the bytes that parts of keys take at most, by the splits of `of_fp8`."""
    heads, M, N, most = _largest(heads, M, N)
    parts = min(SPLITS[-1], N // LEAST_OF_A_PART)
    rows = min(heads * max(M, 16) * parts, 4 * SMS * most)
    return rows * (columns_of(D) + 2) * 4 if parts > 1 and heads <= 2 * SMS else 4


def _largest(heads: int, M: int, N: int) -> tuple[int, int, int, int]:
    """Give the extents of the largest problem that shares a config, and its most split rows."""
    heads, M, N = (triton.next_power_of_2(extent) for extent in (heads, M, N))
    return heads, M, N, min(64, max(16, M))


def of_keys(default: Config) -> Space:
    """Build the space of programs that hold a block of keys and loop over queries, two sums."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3),
    }
    return (
        Space(axes, default=default)
        .where(
            "a block is of use for the number of keys",
            lambda BLOCK_N, N: _is_of_use(BLOCK_N, N) or BLOCK_N == 64,
        )
        .where(
            _TWO_SUMS,
            lambda BLOCK_M, BLOCK_N, D, num_warps: _fits_two(num_warps, BLOCK_N, BLOCK_M, D),
        )
        .where(
            "keys, values, and queries in stages fit in shared memory",
            lambda BLOCK_M, BLOCK_N, D, num_stages: _fits_shared(
                D, 2 * (BLOCK_N + num_stages * BLOCK_M)
            ),
        )
    )


def _fits_two(warps: int, held: int, step: int, D: int) -> bool:
    fits = _fits_threads(warps, (held, step, D), 2, 160)
    return fits or (D > 128 and held == 64)  # sums of 256 columns spill in any block


def _is_of_use(block: int, extent: int) -> bool:
    # Of 64 rows or more, blocks below 64 do without the tensor cores' widest instruction.
    return block >= 64 if extent > 64 else 2 * max(extent, 16) > block


def _fits_threads(warps: int, extents: tuple[int, int, int], results: int, most: int) -> bool:
    # `block` rows of `results` sums of D columns; more than 4 warps take 16 rows each.
    block, other, D = extents
    widths = (other, results * columns_of(D))
    scores, sums = (block * width // (warps * 32) for width in widths)
    return scores <= 64 and scores + sums <= most and (block >= 16 * warps or warps == 4)


def _may_cap(BLOCK_M: int, BLOCK_N: int, D: int, num_warps: int, maxnreg: int | None) -> bool:
    # More scores or sums a thread would spill.
    fits = max(2 * BLOCK_N, columns_of(D)) * BLOCK_M <= 64 * 32 * num_warps
    return maxnreg is None or (num_warps == 8 and fits)


def _fits_shared(D: int, rows: int, programs: int = 1) -> bool:
    return programs * (rows * columns_of(D) * 2 + _RESERVED) <= _SHARED + _RESERVED
