"""Attention forward, and what autograd makes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.workshop.kernel_checks.inputs import LAYOUTS
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of

ALSO = ("attention_backward", "_attention_backward_q")
ROUNDED = {"fp16": "fp16 weights", "bf16": "bf16 weights"}
ON_GPU = {"fp32": "tf32 weights"}


def heads(B: int, H: int, KV: int, M: int, N: int, D: int, causal: int) -> dict[str, int]:
    """A shape by name."""
    return {"B": B, "H": H, "KV": KV, "M": M, "N": N, "D": D, "causal": causal}


def blocks(block_m: int, block_n: int = 32, stages: int = 2) -> Config:
    """A config with blocks of so many queries and keys."""
    return Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages)


def gradients(given: dict[str, Any], config: Config | None = None) -> dict[str, float]:
    """The result and its gradients against the baseline's."""
    module = module_of("attention")
    mine = {name: given[name].detach().requires_grad_() for name in "qkv"}
    exact = {name: given[name].detach().double().requires_grad_() for name in "qkv"}
    with launched_with(config or module.DEFAULT, "attention", *ALSO):
        got = module.attention(**{**given, **mine})
        dy = torch.randn_like(got)
        got.backward(dy)
    want = module.baseline(**{**given, **exact})
    want.backward(dy.double())
    rows = CASE.rows(got.device.type, "fp32")
    found = {"y": excess(got.detach(), want.detach(), rows)}
    return found | {
        f"d{name}": excess(mine[name].grad, exact[name].grad, rows)  # type: ignore[arg-type]
        for name in "qkv"
    }


def options(device: str, part: slice) -> dict[str, float]:
    """Some of: lengths, masks, windows and dropout, apart and together, by several blocks."""
    given = module_of("attention").inputs(heads(2, 2, 1, 70, 100, 16, 0), "fp32", device)
    lengths = torch.tensor([0, 55], device=device)
    mask = torch.rand(2, 100, device=device) > 0.7
    more: list[tuple[dict[str, Any], Config]] = [
        ({"padding": lengths}, blocks(64)),
        ({"padding": lengths + (1 << 33)}, blocks(64)),
        ({"padding": lengths.int() + 60, "causal": True, "window": 20}, blocks(32)),
        ({"padding": mask}, blocks(64, 64)),
        ({"padding": mask, "causal": True, "window": 9, "dropout": 0.2}, blocks(32, 128)),
        ({"window": 40}, blocks(32, stages=3)),
        ({"window": 2, "causal": True}, blocks(128)),
        ({"window": (9, 30)}, blocks(32)),
        ({"causal": True, "dropout": 0.4, "seed": (1 << 40) + 7}, blocks(32, 64)),
        ({"scale": 0.7, "padding": lengths + 10}, blocks(128)),
    ]
    found = {}
    for settings, config in more[part]:
        for what, error in gradients({**given, **settings}, config).items():
            found[f"{what} with {', '.join(settings)} by {config}"] = error
    return found


def masks(device: str, part: slice) -> dict[str, float]:
    """Some masks of scores, boolean and additive, by head and shared, with windows."""
    given = module_of("attention").inputs(heads(2, 2, 1, 33, 50, 16, 0), "fp32", device)
    some, bias = torch.rand(2, 2, 33, 50, device=device), torch.randn(2, 2, 33, 50, device=device)
    some[:, :, 5], bias[0, 1, 7] = 1.0, -torch.inf  # queries that see nothing
    bias[:, :, :, 3] = -torch.inf
    lengths = torch.tensor([0, 55], device=device)
    more: list[tuple[dict[str, Any], Config]] = [
        ({"mask": some < 0.5}, blocks(32)),
        ({"mask": some[:, :1] < 0.5, "causal": True, "dropout": 0.2}, blocks(16, 64)),
        ({"mask": some[:1, :, :1] < 0.3, "window": (5, 9)}, blocks(32)),
        ({"mask": bias[:, :1, :, ::2].repeat(1, 1, 1, 2), "padding": lengths}, blocks(32)),
        ({"mask": bias.mT.contiguous().mT, "window": (None, 3), "scale": 0.3}, blocks(16, 64)),
        ({"mask": bias[:, :, :, :1], "padding": some[:, 0, 0] < 0.7}, blocks(32)),
        ({"window": (20, 7)}, blocks(16, stages=3)),
        ({"window": (0, 1), "padding": lengths}, blocks(64)),
    ]
    found = {}
    for place, (settings, config) in [*enumerate(more)][part]:
        for what, error in gradients({**given, **settings}, config).items():
            found[f"{what} with {place}: {', '.join(settings)} by {config}"] = error
    return found


def mask_values(device: str) -> dict[str, float]:
    """A mask with NaN and infinities that is added to scores."""
    given = module_of("attention").inputs(heads(2, 2, 1, 33, 50, 16, 0), "fp32", device)
    bias = torch.randn(2, 2, 33, 50, device=device)
    bias[0, 1, 7] = bias[:, :, :, 3] = -torch.inf
    bias[0, 0, 4, 9], bias[1, 1, 6, 2] = torch.nan, torch.inf
    with launched_with(module_of("attention").DEFAULT, "attention"):
        got = module_of("attention").attention(**given, mask=bias)
    exact = {**given, **{name: given[name].double() for name in "qkv"}}
    want = module_of("attention").baseline(**exact, mask=bias)
    return {"mask nan, inf": excess(got, want, CASE.rows(device, "fp32"))}


def layouts(device: str) -> dict[str, float]:
    """Queries, keys and values that are not contiguous, or lie where vectors cannot be loaded."""
    found = {}
    given = module_of("attention").inputs(heads(2, 2, 2, 33, 40, 16, 1), "fp32", device)
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        **LAYOUTS,
        "heads inside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    }
    for what, laid in ways.items():
        views = {name: laid(given[name]) for name in "qkv"}
        for name, error in gradients({**given, **views}).items():
            found[f"{name}, {what}"] = error
    # Keys or values that are all the same would leave no gradient to compare.
    same = given["q"][:, :, :1].expand(given["q"].shape)
    for name, error in gradients({**given, "q": same}).items():
        found[f"{name}, one row for all"] = error
    return found


def values(device: str) -> dict[str, float]:
    """Zeros, tiny and infinite values and NaN in queries and keys; scores of hundreds."""
    module, found = module_of("attention"), {}
    fills = {"nan": float("nan"), "inf": float("inf"), "minus inf": float("-inf"), "zero": 0.0}
    for name in "qk":
        for what in (*fills, "huge", "tiny"):
            given = module.inputs(heads(1, 2, 2, 34, 40, 16, 0), "fp16", device)
            if what in fills:
                given[name].view(-1)[::37] = fills[what]
            else:
                given[name] *= {"huge": 1000.0, "tiny": 1e-6}[what]
            for config in (module.DEFAULT, blocks(32, stages=3)):
                with launched_with(config, "attention"):
                    got = module.attention(**given)
                exact = {key: given[key].double() for key in "qkv"}
                found[f"{what} {name} by {config}"] = excess(got, module.baseline(**exact), ROUNDED)
    return found


def edges(device: str) -> dict[str, float]:
    """Results repeat; queries that see nothing are 0 with gradient 0; no keys, no queries."""
    module, found = module_of("attention"), {}
    given = module.inputs(heads(1, 2, 1, 40, 20, 16, 0), "fp32", device)
    for name in "qkv":
        given[name].requires_grad_()
    blind = {**given, "window": 4, "dropout": 0.1, "seed": 3}
    runs = []
    with launched_with(module.DEFAULT, "attention", *ALSO):
        for _ in range(2):
            y = module.attention(**blind)
            runs.append((y, *torch.autograd.grad(y.square().sum(), [given[n] for n in "qkv"])))
        none = module.attention(given["q"], given["k"][:, :, :0], given["v"][:, :, :0])
        found["no keys give 0"] = float(none.detach().abs().max()) * 1e9
        found["and no gradient"] = float(torch.autograd.grad(none.sum(), given["q"])[0].abs().max())
        some = module.attention(given["q"][:, :, :0], given["k"], given["v"])
        keys = torch.autograd.grad(some.sum(), [given["k"], given["v"]])
        found["no queries"] = float(sum(grad.abs().max() for grad in keys)) + some.numel()
    for place, what in enumerate(("y", "dq", "dk", "dv")):
        found[f"{what} repeats"] = 0.0 if torch.equal(runs[0][place], runs[1][place]) else 2.0
    for place in (0, 1):
        found[f"blind {place}"] = float(runs[0][place][:, :, 23:].detach().abs().max()) * 1e9
    found["others see"] = 0.0 if runs[0][0][:, :, :20].abs().amax(-1).min() > 0 else 2.0
    return found


CASE = Case(
    shapes=(
        heads(1, 2, 1, 70, 100, 16, 0),
        heads(2, 1, 1, 64, 64, 32, 1),
        heads(1, 4, 2, 100, 33, 16, 1),
        heads(1, 1, 1, 1, 9, 40, 0),
        heads(1, 1, 1, 33, 130, 64, 1),
        heads(1, 2, 1, 64, 64, 24, 1),
        heads(1, 1, 1, 17, 40, 80, 1),
    ),
    configs=(blocks(32, stages=3), blocks(128)),
    varied=("v",),
    gradients=("q", "k", "v"),
    keywords=(
        {"causal": True, "scale": 0.5},
        {"window": 30},
        {"window": (12, 40)},
        {"causal": True, "window": 7},
        {"dropout": 0.3, "seed": 7},
    ),
    also=ALSO,
    on_gpu=ON_GPU,
    rounded=ROUNDED,
    extras=(
        *(partial(options, part=slice(i, None, 5)) for i in range(5)),
        *(partial(masks, part=slice(i, None, 4)) for i in range(4)),
        *(mask_values, layouts, values, edges),
    ),
    is_parted=True,
)
