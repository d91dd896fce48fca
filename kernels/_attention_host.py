"""Host side of the attention kernels: options, checks and arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import check_shape, check_tensors, multiple

DTYPES = ("fp16", "bf16", "fp32")

DIMS = (16, 32, 64, 128, 256)
"""Head sizes: the extents that a tile in Triton may have."""

KEY = (
    *("D", "CAUSAL", "WINDOWED", "PADDING", "DROPOUT", "MULTIPLE", "DENSE"),
    *(pow2("heads"), pow2("M"), pow2("N")),
)
"""The tuning key: a config is chosen for each combination of these."""


def _shape(B: int, H: int, KV: int, N: int, D: int, causal: int) -> dict[str, int]:
    return {"B": B, "H": H, "KV": KV, "M": N, "N": N, "D": D, "causal": causal}


SHAPES = (
    _shape(4, 16, 16, 1024, 64, 0),
    _shape(2, 8, 8, 4096, 64, 0),
    _shape(1, 32, 32, 512, 64, 0),
    _shape(8, 12, 12, 384, 64, 0),
    _shape(1, 8, 8, 8192, 64, 0),
    _shape(4, 16, 16, 1024, 64, 1),
    _shape(1, 8, 8, 8192, 64, 1),
    _shape(4, 16, 16, 2048, 128, 0),
    _shape(4, 16, 16, 2048, 128, 1),
    _shape(2, 32, 8, 4096, 128, 1),
)

BACKWARD_SHAPES = (
    _shape(4, 16, 16, 1024, 64, 0),
    _shape(2, 8, 8, 4096, 64, 1),
    _shape(4, 16, 16, 2048, 128, 0),
    _shape(4, 16, 16, 2048, 128, 1),
    _shape(2, 32, 8, 4096, 128, 1),
)

_WIDEST = 256
_ROW_BYTES = 16
_LENGTHS, _MASK = 1, 2


@dataclass(frozen=True)
class Attending:
    """Options of one call of attention besides its tensors; `attention` describes each.

    Attributes:
        causal: query m sees keys up to m alone.
        window: keys that a query sees up to its own; None for all.
        padding: lengths (batch,) or a mask (batch, keys) of keys to see; None for all.
        dropout: the share of weights to drop.
        seed: seed that draws the dropped weights.
        scale: factor of the scores; None for 1 / sqrt(dim).
    """

    causal: bool = False
    window: int | None = None
    padding: torch.Tensor | None = None
    dropout: float = 0.0
    seed: int = 0
    scale: float | None = None

    def checked(self, what: str, q: torch.Tensor, k: torch.Tensor) -> Attending:
        """Return these options with the scale filled in, checked against the tensors.

        Raises:
            ValueError: an option is out of bounds, or the padding does not fit the keys.
        """
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        bounds = {
            "window": (self.window is None or self.window >= 1, "1 or more, or None"),
            "dropout": (0.0 <= self.dropout < 1.0, "from 0 to below 1"),
            "seed": (0 <= self.seed < 1 << 63, "between 0 and 2**63 - 1"),
            "scale": (0.0 < scale < math.inf, "above 0 and finite"),
        }
        for name, (holds, wanted) in bounds.items():
            if not holds:
                raise ValueError(f"{what}: {name} is {getattr(self, name)}; it must be {wanted}")
        if self.padding is not None:
            _check_padding(what, self.padding, k)
        return replace(self, scale=scale)


def _check_padding(what: str, padding: torch.Tensor, k: torch.Tensor) -> None:
    kinds = {torch.int32: k.shape[:1], torch.int64: k.shape[:1], torch.bool: k.shape[::2][:2]}
    if padding.dtype not in kinds:
        raise ValueError(
            f"{what}: padding is {padding.dtype}; "
            "it must be lengths in i32 or i64, or a mask of bool"
        )
    check_shape(what, "padding", padding, kinds[padding.dtype])
    if padding.device != k.device:
        raise ValueError(f"{what}: padding is on {padding.device}, and k on {k.device}; move one")


def check(what: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse queries, keys and values that do not fit each other or the kernels.

    Raises:
        ValueError: a tensor does not fit; the message names it, what it is and what it must be.
    """
    check_tensors(what, {"q": q, "k": k, "v": v}, DTYPES)
    # Tiles of 256 elements of 4 bytes do not fit shared memory.
    dims = DIMS if q.element_size() == 2 else DIMS[:-1]
    if q.ndim != 4 or q.shape[-1] not in dims:
        raise ValueError(
            f"{what}: q is {tuple(q.shape)}; it must be (batch, heads, queries, dim) "
            f"with a dim of {', '.join(map(str, dims))}"
        )
    if k.ndim != 4 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{what}: k is {tuple(k.shape)}; it must be (batch, heads, keys, dim), "
            f"of a number of heads that divides q's {q.shape[1]}"
        )
    check_shape(what, "k", k, (q.shape[0], k.shape[1], k.shape[2], q.shape[3]))
    check_shape(what, "v", v, k.shape)


def laid(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor if its rows are dense and at multiples of 16 bytes; else a copy."""
    per = _ROW_BYTES // x.element_size()
    steps = [s for s, size in zip(x.stride()[:-1], x.shape[:-1], strict=True) if size > 1]
    # Tensors without memory have no address.
    start = 0 if x.is_meta else x.data_ptr()
    if x.stride(-1) == 1 and not any(s % per for s in steps) and start % _ROW_BYTES == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def strides(**tensors: torch.Tensor) -> dict[str, Any]:
    """Give the strides of batches, heads and rows by kernel parameter, and whether rows are dense.

    Along axes of extent 1 strides are 0, whatever the tensor's are.
    """
    strides: dict[str, Any] = {
        f"stride_{name}{axis}": x.stride(place) if x.shape[place] > 1 else 0
        for name, x in tensors.items()
        for place, axis in enumerate("bhr")
    }
    dense = all(x.shape[2] <= 1 or x.stride(2) == x.shape[3] for x in tensors.values())
    return {**strides, "DENSE": dense}


def sizes(q: torch.Tensor, k: torch.Tensor, how: Attending) -> dict[str, Any]:
    """Give extents, options and contracts by kernel parameter."""
    (batches, heads, M, D), N = q.shape, k.shape[2]
    narrow = how.window is not None and how.window < M
    return {
        "heads": batches * heads,
        "H": heads,
        "GROUP": heads // k.shape[1],
        "M": M,
        "N": N,
        "window": how.window if narrow else 0,
        "scale": how.scale,
        "seed": how.seed,
        "threshold": round(how.dropout * (1 << 31)),
        "boost": 1.0 / (1.0 - how.dropout),
        "D": D,
        "CAUSAL": how.causal,
        "WINDOWED": narrow,
        "PADDING": _padding(how.padding),
        "DROPOUT": how.dropout > 0.0,
        "MULTIPLE": min(multiple(M, N), _WIDEST),
    }


def _padding(padding: torch.Tensor | None) -> int:
    return 0 if padding is None else _MASK if padding.dtype == torch.bool else _LENGTHS


def padding_ptr(how: Attending, other: torch.Tensor) -> torch.Tensor:
    """Give the lengths or the mask in bytes; without padding, `other`, which is not read."""
    if how.padding is None:
        return other
    padding = how.padding.contiguous()
    return padding.view(torch.uint8) if padding.dtype == torch.bool else padding


def room_for_heads(q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Allocate a gradient of keys or values for each head of the queries."""
    if q.shape[1] == x.shape[1]:
        return torch.empty_like(x)
    extents = (*q.shape[:2], *x.shape[2:])
    return torch.empty(extents, dtype=torch.float32, device=x.device)


def summed(grads: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Sum, in x's dtype, the gradients of the heads that share keys or values."""
    if grads.shape == x.shape:
        return grads
    return grads.view(*x.shape[:2], -1, *x.shape[2:]).sum(2).to(x.dtype)
