"""The tree of a model's modules, with their errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asmtune.measure.accuracy import AccuracyStats
from asmtune.workshop.lowprec import trace
from asmtune.workshop.lowprec.layers import LayerErrors, ModelTrace
from tests.workshop.lowprec.test_model import batch, transformer

NONE = AccuracyStats(elements=0)


def call(name: str, depth: int, error: float | None = None) -> LayerErrors:
    """A row of a module; one without an error of its own calls others."""
    alone = NONE if error is None else AccuracyStats(elements=1, rms_share=error)
    return LayerErrors(name, "Block", alone, AccuracyStats(elements=1), 0, depth)


def cells(tree: str) -> list[list[str]]:
    """Words of the lines below the headings."""
    return [line.split() for line in tree.splitlines()[1:]]


def test_the_tree() -> None:
    """Modules are indented by nesting, under the names that their callers give them."""
    calls = (
        call("", 0),
        call("0", 1, 0.125),
        call("1", 1),
        call("1.layers.0", 2),
        call("1.layers.0.linear", 3, 0.5),
        call("1.layers.1", 2, 0.0),
        call("line\nbreak\x1b[2J", 1),
    )
    found = ModelTrace((), AccuracyStats(elements=1), calls)
    assert found.tree().splitlines()[:-1] == [
        "module                class  alone  cumulative",
        "(model)               Block      -           0",
        "  0                   Block   0.12           0",
        "  1                   Block      -           0",
        "    layers.0          Block      -           0",
        "      linear          Block    0.5           0",
        "    layers.1          Block      0           0",
    ]
    assert len(found.tree().splitlines()) == 8, "a name breaks no line"
    assert ModelTrace((), NONE).tree().split() == found.tree().splitlines()[0].split()


@pytest.mark.slow
def test_every_module_of_a_transformer_is_in_its_tree() -> None:
    """Containers have a cumulative error; layers are those of the flat list."""
    found = trace(transformer(), batch())
    names = [each.name for each in found.modules]
    assert names[:5] == ["", "0", "1", "1.layers.0", "1.layers.0.self_attn"]
    assert [each for each in found.modules if each in found.layers] == list(found.layers)
    assert [each.depth for each in found.modules[:5]] == [0, 1, 1, 2, 3]
    whole, encoder = found.modules[0], found.modules[2]
    assert whole.cumulative == found.output
    assert (encoder.kind, encoder.alone, encoder.flops) == ("TransformerEncoder", NONE, 0)
    assert 0 < encoder.cumulative.rms_share < 0.05


class Shared(nn.Module):
    """Calls one block twice, whose layer the model calls as well under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4))
        self.head = self.block[0]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the head's output after the block's."""
        return torch.sigmoid(self.head(self.block(self.block(values))))


def test_modules_called_twice_and_shared_ones_have_a_line_a_call() -> None:
    """Calls are numbered; a shared module has its first name, in full where another calls it."""
    found = trace(Shared(), torch.randn(2, 4))
    assert [(each.name, each.depth) for each in found.modules] == [
        ("", 0),
        ("block", 1),
        ("block.0", 2),
        ("block#2", 1),
        ("block.0#2", 2),
        ("block.0#3", 1),
    ]
    labels = [line.split("  S")[0].split("  L")[0].rstrip() for line in found.tree().splitlines()]
    assert labels[1:] == ["(model)", "  block", "    0", "  block#2", "    0#2", "  block.0#3"]


def test_an_output_that_is_not_finite_is_no_small_error() -> None:
    """RMS leaves NaN out; the tree says "inf"."""
    model, exact = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].bias[0] = torch.nan
    found = trace(model, torch.ones(1, 2), reference=exact)
    assert [line[-2:] for line in cells(found.tree())] == [["-", "inf"], ["inf", "inf"]]


def test_a_model_that_is_one_layer_has_a_line() -> None:
    """A model without inner modules is its own only layer."""
    found = trace(nn.Linear(2, 2), torch.ones(1, 2))
    assert [each.name for each in found.layers] == [""]
    assert cells(found.tree())[0][:2] == ["(model)", "Linear"]
