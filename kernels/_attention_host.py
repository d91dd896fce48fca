"""Host side of the attention kernels: options, checks and arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import check_shape, check_tensors, multiple

DTYPES = ("fp16", "bf16", "fp32")

MOST_DIM = 256
"""Largest head size, of halves: tiles of 256 columns of 4 bytes do not fit shared memory."""

KEY = (
    *("D", "CAUSAL", "WINDOWED", "PADDING", "MASK", "DROPOUT", "MULTIPLE", "DENSE"),
    *(pow2("heads"), pow2("M"), pow2("N")),
)
"""The tuning key: a config is chosen for each combination of these."""


def of_length(B: int, H: int, KV: int, N: int, D: int, causal: int) -> dict[str, int]:
    """Name the extents of a problem with as many queries as keys."""
    return {"B": B, "H": H, "KV": KV, "M": N, "N": N, "D": D, "causal": causal}


SHAPES = (
    of_length(4, 16, 16, 1024, 64, 0),
    of_length(2, 8, 8, 4096, 64, 0),
    of_length(1, 32, 32, 512, 64, 0),
    of_length(8, 12, 12, 384, 64, 0),
    of_length(1, 8, 8, 8192, 64, 0),
    of_length(4, 16, 16, 1024, 64, 1),
    of_length(1, 8, 8, 8192, 64, 1),
    of_length(4, 16, 16, 2048, 128, 0),
    of_length(4, 16, 16, 2048, 128, 1),
    of_length(2, 32, 8, 4096, 128, 1),
)

BACKWARD_SHAPES = (
    of_length(4, 16, 16, 1024, 64, 0),
    of_length(2, 8, 8, 4096, 64, 1),
    of_length(4, 16, 16, 2048, 128, 0),
    of_length(4, 16, 16, 2048, 128, 1),
    of_length(2, 32, 8, 4096, 128, 1),
)

Window = int | tuple[int | None, int | None] | None
"""Keys that a query sees up to its own, or how many before and after it; None for all."""

_WINDOW = "1 or more, or None, or a pair (left, right) of 0 or more or None"
_SEED = "between 0 and 2**63 - 1, an int"
_WIDEST = 256
_ROW_BYTES = 16
_MOST_ROWS = 256
_LENGTHS, _MASK = 1, 2


@dataclass(frozen=True)
class Attending:
    """Options of one call of attention besides its tensors; `attention` describes each.

    Attributes:
        causal: query m sees keys up to m alone.
        window: keys that a query sees up to its own, or pair of how many before and after its
            own; None for all.
        padding: lengths (batch,) or a mask (batch, keys) of keys to see; None for all.
        mask: mask of scores, boolean or additive, that broadcasts to (batch, heads, queries,
            keys); None for none.
        dropout: the share of weights to drop.
        seed: seed that draws the dropped weights.
        scale: factor of the scores; None for 1 / sqrt(dim).
    """

    causal: bool = False
    window: Window = None
    padding: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    seed: int = 0
    scale: float | None = None

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """Give how many keys before and after its own a query sees at most; None for all."""
        if isinstance(self.window, tuple):
            left, right = self.window
        else:
            left, right = None if self.window is None else self.window - 1, None
        return left, 0 if self.causal else right

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but the causal diagonal hides a key, and no weight is dropped."""
        left, right = self.sides
        seen = left is None and (self.causal or right is None)
        return seen and self.padding is None and self.mask is None and self.dropout == 0.0

    def checked(self, what: str, q: torch.Tensor, k: torch.Tensor) -> Attending:
        """Return these options with the scale filled in, checked against the tensors.

        The window is None where it hides no key, so that the vendor is a candidate.

        Raises:
            ValueError: an option is out of bounds, or padding or mask do not fit the tensors.
        """
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        bounds = {
            "window": (_is_window(self.window), _WINDOW),
            "dropout": (
                _is_number(self.dropout) and 0.0 <= self.dropout < 1.0,
                "from 0 to below 1",
            ),
            "seed": (isinstance(self.seed, int) and 0 <= self.seed < 1 << 63, _SEED),
            "scale": (_is_number(scale) and 0.0 < scale < math.inf, "above 0 and finite"),
        }
        for name, (holds, wanted) in bounds.items():
            if not holds:
                raise ValueError(f"{what}: {name} is {getattr(self, name)}; it must be {wanted}")
        if self.padding is not None:
            _check_padding(what, self.padding, k)
        if self.mask is not None:
            _check_mask(what, self.mask, q, k)
        left, right = self.sides
        left = None if left is None or left + 1 >= q.shape[2] else left
        right = None if self.causal or right is None or right + 1 >= k.shape[2] else right
        window = None if left is None and right is None else (left, right)
        return replace(self, scale=scale, window=window)


def _is_number(value: Any) -> bool:
    """Return whether a value is no tensor, which a launch does not take as a number."""
    return isinstance(value, int | float)


def _is_window(window: Any) -> bool:
    sides, least = (window, 0) if isinstance(window, tuple) else ((window,), 1)
    whole = (n is None or (type(n) is int and n >= least) for n in sides)
    return len(sides) == 2 - least and all(whole)


def _check_mask(what: str, mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
    if mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise ValueError(
            f"{what}: mask is {mask.dtype}; it must be bool, True for keys to see, or of fp32 or "
            f"q's {q.dtype}, to be added to the scores"
        )
    wanted = (*q.shape[:3], k.shape[2])
    if mask.ndim != 4 or any(n not in (1, m) for n, m in zip(mask.shape, wanted, strict=True)):
        raise ValueError(
            f"{what}: mask is {tuple(mask.shape)}; it must be {wanted}, each of these or 1"
        )
    if mask.device != q.device:
        raise ValueError(f"{what}: mask is on {mask.device}, and q on {q.device}; move one")


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
    """Refuse queries, keys and values that do not fit each other or the kernels."""
    check_tensors(what, {"q": q, "k": k, "v": v}, DTYPES)
    most = MOST_DIM * 2 // q.element_size()
    check_extents(what, q, k, v, range(8, most + 1, 8))


def check_backward(
    what: str, heads: Mapping[str, torch.Tensor], sums: Mapping[str, torch.Tensor], how: Attending
) -> Attending:
    """Refuse arguments of a backward pass that do not fit; return the options with the scale.

    Args:
        what: the public function's name.
        heads: dy, q, k, v and, where it is needed, y.
        sums: (batch, heads, queries) each, in fp32.
        how: the options of the forward pass.
    """
    q, k = heads["q"], heads["k"]
    check_tensors(what, heads, DTYPES)
    check_tensors(what, sums, ("fp32",))
    check(what, q, k, heads["v"])
    for name in heads.keys() - set("qkv"):
        check_shape(what, name, heads[name], q.shape)
    for name, tensor in sums.items():
        check_shape(what, name, tensor, q.shape[:3])
    return how.checked(what, q, k)


def backward_arguments(
    given: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor], how: Attending
) -> dict[str, Any]:
    """Give the arguments of a launch of one of the two backward kernels by name."""
    every = {**given, **results}
    tensors = {f"{name}_ptr": tensor for name, tensor in every.items()}
    own = sizes(given["q"], given["k"], how)
    own |= mask_arguments(how, given["k"], given["lse"])
    return {**tensors, **own, **strides(**{n: x for n, x in every.items() if x.ndim == 4})}


def check_extents(
    what: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dims: range
) -> None:
    """Refuse shapes that do not fit each other or the kernels' dims; raises as `check`."""
    if q.ndim != 4 or q.shape[-1] not in dims:
        raise ValueError(
            f"{what}: q is {tuple(q.shape)}; it must be (batch, heads, queries, dim) "
            f"with a dim that is a multiple of {dims.step} up to {dims[-1]}"
        )
    if k.ndim != 4 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{what}: k is {tuple(k.shape)}; it must be (batch, heads, keys, dim), "
            f"of a number of heads that divides q's {q.shape[1]}"
        )
    check_shape(what, "k", k, (q.shape[0], k.shape[1], k.shape[2], q.shape[3]))
    check_shape(what, "v", v, k.shape)


def laid(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor if its rows are dense, near, and at multiples of 16 bytes; else a copy.

    Offsets within a block of rows are of 32 bits.
    """
    per = _ROW_BYTES // x.element_size()
    steps = [s for s, size in zip(x.stride()[:-1], x.shape[:-1], strict=True) if size > 1]
    # Tensors without memory have no address.
    start = 0 if x.is_meta else x.data_ptr()
    near = x.shape[-2] <= 1 or x.stride(-2) * _MOST_ROWS < 1 << 31
    aligned = not any(s % per for s in steps) and start % _ROW_BYTES == 0
    if x.stride(-1) == 1 and near and aligned:
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
    left, right = how.sides
    narrow = left is not None and left + 1 < M
    ends = how.causal or (right is not None and right + 1 < N)
    return {
        "heads": batches * heads,
        "H": heads,
        "GROUP": heads // k.shape[1],
        "M": M,
        "N": N,
        "window": left + 1 if left is not None and narrow else 0,
        "ahead": right if ends and not how.causal and right else None,
        "scale": how.scale,
        "seed": how.seed,
        "threshold": round(how.dropout * (1 << 31)),
        "boost": 1.0 / (1.0 - how.dropout),
        "D": D,
        "CAUSAL": ends,
        "WINDOWED": narrow,
        "PADDING": _padding(how.padding),
        "DROPOUT": how.dropout > 0.0,
        "MULTIPLE": min(multiple(M, N), _WIDEST),
    }


def _padding(padding: torch.Tensor | None) -> int:
    return 0 if padding is None else _MASK if padding.dtype == torch.bool else _LENGTHS


def mask_arguments(how: Attending, k: torch.Tensor, other: torch.Tensor) -> dict[str, Any]:
    """Give padding and mask by kernel parameter; for those not given `other`, which is not read."""
    pointers, strides = {"padding_ptr": other, "mask_ptr": other}, [0, 0, 0]
    if how.padding is not None:
        pointers["padding_ptr"] = how.padding.contiguous()
    if how.mask is not None:
        mask = how.mask.expand(*how.mask.shape[:3], k.shape[2])
        mask = mask if mask.stride(3) == 1 else mask.contiguous()
        pointers["mask_ptr"] = mask
        strides = [mask.stride(place) if mask.shape[place] > 1 else 0 for place in range(3)]
    return {
        **{n: t.view(torch.uint8) if t.dtype == torch.bool else t for n, t in pointers.items()},
        **{f"stride_mask{axis}": step for axis, step in zip("bhr", strides, strict=True)},
        "MASK": 0 if how.mask is None else 1 if how.mask.dtype == torch.bool else 2,
    }


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
