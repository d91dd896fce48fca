"""Attention with FP8 keys and values, at every granularity of scales, whole and split."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest import mock

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.inputs import LAYOUTS, widened
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of
from tests.kernels.cases import attention
from tests.kernels.cases.attention import ROUNDED

NAME = "attention_fp8"


def heads(
    B: int, H: int, KV: int, M: int, N: int, D: int, causal: int, group: int = 0, e5m2: int = 0
) -> dict[str, int]:
    """A shape by name."""
    return {**attention.heads(B, H, KV, M, N, D, causal), "group": group, "e5m2": e5m2}


def blocks(block_m: int, block_n: int = 32, split: int = 1) -> Config:
    """Make a config with blocks of queries and keys, in a number of parts."""
    return Config({"BLOCK_M": block_m, "BLOCK_N": block_n, "SPLIT": split}, num_stages=2)


def error(
    given: dict[str, Any], config: Config | None = None, read: dict[str, Any] | None = None
) -> float:
    """The error by a config, which may split any keys; the kernel reads `read` in place of some."""
    module = module_of(NAME)
    with (
        launched_with(config or module.DEFAULT, NAME),
        mock.patch.object(module, "room_for_parts", return_value=1 << 22),
    ):
        got = module.attention_fp8(**{**given, **(read or {})})
    return excess(got, module.baseline(**widened(given)), ROUNDED)


def made(device: str, *numbers: int) -> dict[str, Any]:
    """Arguments at a shape of heads, in fp16."""
    given: dict[str, Any] = module_of(NAME).inputs(heads(*numbers), "fp16", device)
    return given


def scales(device: str, split: int) -> dict[str, float]:
    """Compare keys and values with scales of unlike groups, sizes and formats, in parts."""
    given, found = made(device, 2, 4, 2, 21, 150, 16, 0), {}
    given["v"] = given["v"].to(torch.float8_e5m2)

    def some(*extents: int) -> torch.Tensor:
        return torch.exp2(8 * torch.randn(extents, device=device).clamp(-1, 1))

    pairs = {
        "a number": (some(), some(1)),
        "a head's": (some(2, 2, 1, 1), some(1, 2, 1, 1)),
        "a channel's": (some(2, 2, 1, 16), some(1, 1, 1, 16)),
        "128 keys', the last fewer": (some(2, 2, 2, 1), some(1, 2, 2, 1)),
        "75 and 50 keys', which no block divides": (some(1, 2, 2, 1), some(2, 1, 3, 1)),
        "a key's": (some(2, 1, 150, 1), some(2, 2, 150, 1).mT.contiguous().mT),
        "a channel's and 30 keys'": (some(2, 2, 1, 16), some(2, 2, 5, 1)),
    }
    for what, (scale_k, scale_v) in pairs.items():
        # Scores of some tens: larger ones leave one key alone its weight.
        scale_k = scale_k / scale_k.max()
        config = blocks(32, 32 if split == 1 else 16, split)
        more = {"scale_k": scale_k, "scale_v": scale_v}
        found[f"scales: {what}, in {split}"] = error({**given, **more}, config)
    tiny = {"scale_k": some() * 1e-30, "scale_v": some(1, 1, 5, 1) * 1e-3}
    tiny["scale_v"][0, 0, 2] = torch.finfo(torch.float32).tiny
    found["scales near the end of fp32"] = error({**given, **tiny, "scale": 1e29})
    return found


def options(device: str) -> dict[str, float]:
    """Lengths, masks and windows, apart and together, in parts of which some are empty."""
    given, found = made(device, 2, 2, 1, 70, 100, 16, 0, 20), {}
    lengths = torch.tensor([0, 55], device=device)
    keep = torch.rand(2, 2, 70, 100, device=device) > 0.3
    more: list[tuple[dict[str, Any], Config]] = [
        ({"padding": lengths}, blocks(64, 32, 4)),
        ({"padding": lengths.int() + 60, "causal": True, "window": 20}, blocks(32)),
        ({"padding": torch.rand(2, 100, device=device) > 0.7}, blocks(64, 64)),
        ({"window": (9, 30)}, blocks(32, 16, 2)),
        ({"window": (None, 30)}, blocks(16, 32, 2)),
        ({"window": 2, "causal": True}, blocks(128)),
        ({"mask": keep[:, :1]}, blocks(32, 32, 2)),
        ({"mask": keep[:1, :, :1].float(), "scale": 0.7}, blocks(32)),
    ]
    for settings, config in more:
        found[f"{', '.join(settings)} by {config}"] = error({**given, **settings}, config)
    return found


def decoding(device: str) -> dict[str, float]:
    """One query and few, whose heads share keys, by as many parts as blocks and by more."""
    found = {}
    for M, split in ((1, 8), (3, 2)):
        given = made(device, 2, 8, 2, M, 130, 32, 0, 128, M % 2)
        for name in "qkv":
            given[name] = given[name].transpose(1, 2).contiguous().transpose(1, 2)
        found[f"{M} queries"] = error(given, blocks(16, 32, split))
        lengths = torch.tensor([9, 0], device=device)
        found[f"{M} queries, lengths"] = error({**given, "padding": lengths}, blocks(16, 32, split))
    return found


def layouts(device: str) -> dict[str, float]:
    """Queries, keys and values that are not contiguous, or lie where vectors cannot be loaded."""
    given = made(device, 2, 2, 2, 33, 40, 16, 1, 1)
    return {
        f"layout: {what}": error({**given, **{name: laid(given[name]) for name in "qkv"}})
        for what, laid in LAYOUTS.items()
    }


def values(device: str) -> dict[str, float]:
    """NaN, infinities and the largest values of both formats, in queries and in keys."""
    found = {}
    for name in "qk":
        for e5m2, value in ((0, math.nan), (0, 448.0), (1, math.inf), (1, -57344.0)):
            given = made(device, 1, 2, 2, 34, 40, 16, 0, 0, e5m2)
            wide = given[name].float()
            wide.view(-1)[::37] = value
            given[name] = wide.to(given[name].dtype)
            found[f"{value} in {name}"] = error(given)
    return found


def edges(device: str) -> dict[str, float]:
    """No keys give 0, no queries nothing; parts leave the counts that they met."""
    module, found = module_of(NAME), {}
    given = made(device, 1, 2, 1, 20, 33, 16, 0)
    with launched_with(module.DEFAULT, NAME):
        no_keys = {name: given[name][:, :, :0] for name in "kv"}
        none = module.attention_fp8(**{**given, **no_keys})
        some = module.attention_fp8(**{**given, "q": given["q"][:, :, :0]})
    found["no keys give 0"] = float(none.abs().max()) * 1e9
    found["no queries"] = float(some.shape != (1, 2, 0, 16)) * 2
    arguments = module.problem(heads(1, 2, 2, 70, 200, 48, 1, 40), "fp16", device).arguments
    arguments["parts_ptr"] = torch.full((1 << 18,), math.nan, device=device)
    config = blocks(32, 32, 4).all_kwargs()
    for _ in range(2):
        module.kernel[module._grid({**arguments, **config})](**arguments, **config)
    found["parts"] = excess(arguments["y_ptr"], module.reference(arguments), ROUNDED)
    found["counts are 0 again"] = float(arguments["count_ptr"].abs().sum()) * 2
    return found


CASE = Case(
    shapes=(
        heads(1, 2, 1, 70, 60, 16, 0, 20),
        heads(2, 1, 1, 64, 64, 32, 1, -1, 1),
        heads(1, 4, 2, 65, 33, 16, 1),
        heads(1, 1, 1, 1, 9, 16, 0, 1),
        heads(1, 1, 1, 33, 130, 64, 1, 128),
        heads(1, 2, 1, 5, 70, 128, 0, -1),
        heads(1, 2, 1, 33, 40, 48, 1, -1),
        heads(1, 1, 1, 17, 64, 80, 0, 32),
    ),
    configs=(blocks(32), blocks(128, 64)),
    varied=("v",),
    keywords=({"causal": True, "scale": 0.5}, {"window": (12, 40)}),
    rounded=ROUNDED,
    extras=(
        partial(scales, split=1),
        partial(scales, split=4),
        options,
        decoding,
        layouts,
        values,
        edges,
    ),
    is_parted=True,
)
