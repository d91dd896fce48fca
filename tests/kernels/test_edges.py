"""Public kernels at the edges: empty tensors, far strides, autocast, gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from asmtune.kernels import (
    attention,
    conv2d,
    cross_entropy,
    dropout,
    gelu,
    gru,
    layernorm,
    matmul,
    quantise,
    rmsnorm,
    rope,
    scaled_matmul,
    tiled_matmul,
)
from asmtune.kernels._attention_host import laid
from asmtune.kernels._common import check_tensors
from asmtune.kernels._gemm_host import product
from asmtune.kernels._gru import gates_of
from asmtune.triton_api.interpreter import exact_floats
from tests.interpreter import Interpreter

GROUPS = ("tensor", "row", "column", (1, 128), (128, 128), (0, 3))


@pytest.mark.parametrize("empty", ["a", "b", "both"])
def test_products_of_none_are_empty(empty: str) -> None:
    """A batch without matrices, and FP8 operands without rows or columns, have empty results."""
    a = torch.zeros((3, 4) if empty == "b" else (0, 3, 4))
    b = torch.zeros((4, 5) if empty == "a" else (0, 4, 5))
    assert matmul.matmul(a, b).shape == (0, 3, 5)
    rows, columns = 3 * (empty == "b"), 5 * (empty == "a")
    a, b = (torch.zeros(x).to(torch.float8_e4m3fn) for x in ((rows, 16), (16, columns)))
    c = scaled_matmul.scaled_matmul(a, b, torch.tensor(1.0), torch.tensor(1.0))
    assert c.shape == (rows, columns)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("given", [None, "scales", "amax"])
def test_scales_of_an_empty_tensor(group: Any, given: str | None) -> None:
    """They are 1, or those that are given, and not what memory held before."""
    x = torch.zeros(0, 5)
    count = quantise.quantise(x, "e4m3", group)[1].shape
    numbers = torch.rand(count) + 0.5
    memory = torch.full((4096,), torch.nan)
    del memory
    found = quantise.quantise(x, "e4m3", group, **({given: numbers} if given else {}))
    exact = {None: torch.ones(count), "scales": numbers, "amax": numbers / 448}[given]
    assert found[0].shape == x.shape
    assert torch.equal(found[1], exact)


def halves(*extents: int) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(extents, dtype=torch.float16, device="meta")


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (halves(256, 10_000_000), halves(10_000_000, 8), "A"),
        (halves(64, 64), halves(64, 40_000_000), "B"),
        (halves(300, 1), halves(1, 9_000_000), "C"),
    ],
)
def test_blocks_further_than_32_bits_are_refused(
    a: torch.Tensor, b: torch.Tensor, name: str
) -> None:
    """Rows so far apart that offsets within a block would overflow are named, not misread."""
    made = product("matmul", a, b, None, "none")
    c = halves(1, a.shape[0], b.shape[1])
    with pytest.raises(ValueError, match=f"^{name} of a product is .*divide the product"):
        made.arguments(c)


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (halves(1 << 16, 1 << 15), halves(1 << 15, 8), "a"),
        (halves(8, 1 << 15), halves(1 << 16, 1 << 15).mT, "b"),
        (halves(1 << 16, 8), halves(8, 1 << 15), "c"),
    ],
)
def test_matrices_further_than_32_bits_are_refused(
    a: torch.Tensor, b: torch.Tensor, name: str
) -> None:
    """Offsets that would wrap are refused before anything is launched; a long K alone has none."""
    with pytest.raises(ValueError, match=f"tiled_matmul: a tile of {name} lies up to 21"):
        tiled_matmul.tiled_matmul(a, b)
    tiled_matmul._check_reach(halves(1 << 28, 16).mT, halves(1 << 28, 16))


@pytest.mark.parametrize(("apart", "copied"), [(1 << 22, False), (1 << 24, True)])
def test_heads_with_rows_far_apart_are_copied(apart: int, copied: bool) -> None:
    """Rows of heads so far apart that a block's offsets would overflow are laid side by side."""
    steps = (300 * apart, 300 * apart, apart, 1)
    x = torch.empty_strided((1, 1, 300, 16), steps, dtype=torch.float16, device="meta")
    assert laid(x).stride(2) == (16 if copied else apart)


def layers() -> Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Differentiable functions and arguments, of which the first is differentiated."""
    rows, row = torch.randn(3, 7), torch.randn(7)
    heads = torch.randn(1, 2, 5, 16)
    return {
        "layernorm": (layernorm.layernorm, (rows, row, row)),
        "rmsnorm": (rmsnorm.rmsnorm, (rows, row)),
        "cross_entropy": (cross_entropy.cross_entropy, (rows, torch.tensor([1, 6, 0]))),
        "attention": (attention.attention, (heads, heads, heads)),
        "conv2d": (conv2d.conv2d, (torch.randn(1, 3, 5, 5), torch.randn(4, 3, 3, 3))),
        "gru": (_states, (torch.randn(2, 1, 3), *(torch.randn(s) for s in _GRU))),
        "dropout": (dropout.dropout, (rows, 0.5, 1)),
        "rope": (rope.rope, (torch.randn(3, 2, 2, 8), torch.randn(3, 4), torch.randn(3, 4))),
    }


_GRU = ((1, 4), (12, 3), (12, 4), (12,), (12,))


def _states(*given: torch.Tensor) -> torch.Tensor:
    return gru.gru(*given)[0]


def second_gradients() -> dict[str, str]:
    """Say what comes of gradients of gradients, of a square and of a sum."""
    found = {}
    for name, (function, (x, *others)) in layers().items():
        for what in ("square", "sum"):
            leaf = x.clone().requires_grad_()
            y = function(leaf, *(_leaf(other, name) for other in others))
            total = (y.square() if what == "square" else y).sum()
            (grad,) = torch.autograd.grad(total, leaf, create_graph=True)
            try:
                (grad.square().sum() + leaf.sum()).backward()
                found[f"{name} {what}"] = ""
            except RuntimeError as error:
                found[f"{name} {what}"] = str(error)
    return found


def _leaf(value: Any, name: str) -> Any:
    is_weight = isinstance(value, torch.Tensor) and value.is_floating_point() and name != "rope"
    return value.clone().requires_grad_() if is_weight else value


@pytest.mark.slow(seconds=4)
def test_gradients_of_gradients_are_refused(interpreter: Interpreter) -> None:
    """They have an error of their own, where the second gradient would lack a part unseen.

    The gradients of dropout and rope do not depend on what these are applied to.
    """
    found = interpreter.call("tests.kernels.test_edges:second_gradients")
    assert len(found) == 16
    wrong = {
        what: said
        for what, said in found.items()
        if said != f"{what.split()[0]}: its gradients cannot be differentiated again "
        "(create_graph=True)"
    }
    assert wrong == {"dropout sum": "", "rope sum": ""}


def under_autocast() -> list[float]:
    """Return how far a GRU's states and gradients are from their own where autocast is on."""
    given = [torch.randn(s) for s in ((2, 1, 3), *_GRU)]
    with exact_floats():
        alone = _states_and_gradients(given)
        with torch.autocast("cpu", torch.bfloat16):
            within = _states_and_gradients(given)
    return [float((a - b).abs().max()) for a, b in zip(alone, within, strict=True)]


def _states_and_gradients(given: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [value.clone().requires_grad_() for value in given]
    states = _states(*leaves)
    return [states.detach(), *torch.autograd.grad(states.sum(), leaves)]


@pytest.mark.slow
def test_autocast_leaves_a_gru_alone(interpreter: Interpreter) -> None:
    """Its products are of its tensors' dtype, forward and backward, as its kernels take them."""
    assert interpreter.call("tests.kernels.test_edges:under_autocast") == [0.0] * 7


def test_negated_views_and_tangents_are_refused() -> None:
    """Both would be lost without a word: a kernel sees the numbers that lie in memory."""
    view = torch.randn(5, 1, dtype=torch.complex64).conj().imag
    assert view.is_neg()
    with pytest.raises(ValueError, match=r"matmul: a is a negated view.*resolve_neg"):
        matmul.matmul(view, torch.zeros(1, 3))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.zeros(3, 7), torch.ones(3, 7))
        with pytest.raises(ValueError, match="gelu: x has a tangent"):
            gelu.gelu(dual)
    assert gelu.gelu(torch.zeros(0, 7)).shape == (0, 7)


def test_checks_are_one_graph() -> None:
    """`torch.compile` goes through the checks of tensors, and a GRU's first product."""

    def checked(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        check_tensors("checked", {"x": x, "weight": weight})
        return gates_of(x, weight, bias)

    given = torch.randn(2, 3), torch.randn(6, 3), torch.randn(6)
    found = torch.compile(checked, backend="eager", fullgraph=True)(*given)
    assert torch.equal(found, checked(*given))
