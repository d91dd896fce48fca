"""Quantisation to FP8: every byte as PyTorch's saturating cast gives it, at every granularity."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import torch

from asmtune.core.config import Config
from asmtune.kernels import _groups
from asmtune.kernels._fp8 import FORMATS, LIMITS
from tests.kernels.accuracy import Case, launched_with, module_of


def _shape(rows: int, cols: int, group: tuple[int, int], e5m2: int = 0) -> dict[str, int]:
    names = ("rows", "cols", "group_rows", "group_cols", "e5m2")
    return dict(zip(names, (rows, cols, *group, e5m2), strict=True))


def differing(got: torch.Tensor, want: torch.Tensor) -> float:
    """Count bytes that differ; a NaN is 0x7f, whatever its sign was."""
    nan = torch.full_like(got.view(torch.uint8), 0x7F)
    wanted = torch.where(want.float().isnan(), nan, want.view(torch.uint8))
    return 2.0 * float((got.view(torch.uint8) != wanted).sum())


def values(device: str) -> dict[str, torch.Tensor]:
    """Return all fp16 values, and fp32: any bits, halves between neighbours, and beside them."""
    all_ = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    drawn = torch.randint(-(1 << 31), 1 << 31, (1 << 15,), dtype=torch.int64).to(torch.int32)
    found = {"all of fp16": all_, "bits of fp32": drawn.view(torch.float32)}
    for name, kind in FORMATS.items():
        known = torch.arange(1 << 7, dtype=torch.uint8).view(kind).float()
        known = known[known.isfinite()]
        ties = (known[1:] + known[:-1]) / 2
        near = [torch.nextafter(ties, torch.full_like(ties, to)) for to in (0.0, float("inf"))]
        found[f"ties of {name}"] = torch.cat([sign * x for x in (ties, *near) for sign in (1, -1)])
    return {what: x.to(device)[None] for what, x in found.items()}


def cast(device: str) -> dict[str, float]:
    """Compare the cast alone, by a scale of 1, with PyTorch's."""
    module, found = module_of("quantise"), {}
    one = torch.ones((), device=device)
    for format_, kind in FORMATS.items():
        most = LIMITS[format_]
        for what, x in values(device).items():
            with launched_with(Config({"ROWS": 1, "COLS": 2048, "TILES": 2}), "quantise"):
                got, _ = module.quantise(x, format_, scales=one)
            want = x.float().clamp(-most, most).to(kind)
            found[f"{what} to {format_}"] = differing(got, want)
    return found


def grouped(device: str) -> dict[str, float]:
    """Groups of any extents, of one pass and of more; static scales; an amax that was kept."""
    module, found = module_of("quantise"), {}
    groups = ("tensor", "row", "column", (1, 128), (128, 128), (3, 5), (2, 0), (0, 7), (16, 1))
    x = torch.randn(19, 143, device=device)  # beyond most groups, and no multiple of them
    x[::5, ::7] *= 1000
    x[3] = 0
    for group in groups:
        limits: list[tuple[int, dict[str, int]]] = [(1 << 15, {}), (64, {})]
        if group in ("tensor", "column"):  # programs share an amax, as of millions of elements
            limits.append((64, {"_TILE": 512, "NARROWEST": 64, "_MOST_TILES": 2}))
        for limit in limits:
            with (
                launched_with(module.DEFAULT, "quantise"),
                mock.patch.object(module, "_MOST", limit[0]),
                mock.patch.multiple(_groups, **limit[1]) if limit[1] else nullcontext(),
            ):
                got, scales = module.quantise(x, "e4m3", group)
                kept, larger = module.quantise(x, "e4m3", group, amax=scales * 512)
            want, exact = module.baseline(x, "e4m3", group)
            what = f"{group} by limits of {limit}"
            found[what] = differing(got, want) + 2.0 * (not torch.equal(scales, exact))
            want, exact = module.baseline(x, "e4m3", group, amax=scales * 512)
            found[f"{what}, kept"] = differing(kept, want) + 2.0 * (not torch.equal(larger, exact))
        with launched_with(module.DEFAULT, "quantise"):
            again, same = module.quantise(x, "e4m3", group, scales=scales)
        found[f"{group}, static"] = differing(again, got) + 2.0 * (not torch.equal(same, scales))
    return found


CASE = Case(
    shapes=(
        _shape(5, 70, (1, 16)),
        _shape(3, 781, (0, 0)),
        _shape(1, 1, (1, 0)),
        _shape(9, 256, (4, 128), 1),
        _shape(6, 130, (0, 1)),
    ),
    configs=(Config({"ROWS": 4, "COLS": 256, "TILES": 2}),),
    varied=("x",),
    keywords=({"format": "e5m2"}, {"group": "row"}, {"group": "tensor"}),
    rounded=dict.fromkeys(("fp8e4nv", "fp8e5"), "fp8 bytes"),
    extras=(cast, grouped),
)
