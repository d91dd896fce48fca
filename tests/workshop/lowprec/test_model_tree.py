"""The tree of a model's modules: times that add up, errors beside them, text and HTML."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asmtune.measure.accuracy import AccuracyStats
from asmtune.workshop.lowprec import trace
from asmtune.workshop.lowprec.layers import LayerErrors, ModelTrace
from tests.workshop.lowprec.test_model import batch, transformer

NONE = AccuracyStats(elements=0)


def call(name: str, depth: int, seconds: float, error: float | None = None) -> LayerErrors:
    """A row of a module; one without an error of its own calls others."""
    alone = NONE if error is None else AccuracyStats(elements=1, rms_share=error)
    return LayerErrors(name, "Block", alone, AccuracyStats(elements=1), 0, seconds, depth)


def fixed(*calls: LayerErrors) -> ModelTrace:
    """A trace of these calls."""
    return ModelTrace((), AccuracyStats(elements=1, rms_share=0.25), calls)


def cells(tree: str) -> list[list[str]]:
    """Words of the lines below the headings."""
    return [line.split() for line in tree.splitlines()[1:]]


def test_times_add_up() -> None:
    """Own times of all lines sum to the model's; a child's time is taken from its parent alone."""
    found = fixed(
        call("", 0, 10e-3),
        call("0", 1, 1e-3, 0.125),
        call("1", 1, 7e-3),
        call("1.layers.0", 2, 4e-3),
        call("1.layers.0.linear", 3, 3e-3, 0.5),
        call("1.layers.1", 2, 2e-3, 0.0),
    )
    assert found.tree().splitlines() == [
        "module        class      ms   share  self ms  alone  cumulative",
        "(model)       Block  10.000  100.0%    2.000      -           0",
        "  0           Block   1.000   10.0%    1.000   0.12           0",
        "  1           Block   7.000   70.0%    1.000      -           0",
        "    layers.0  Block   4.000   40.0%    1.000      -           0",
        "      linear  Block   3.000   30.0%    3.000    0.5           0",
        "    layers.1  Block   2.000   20.0%    2.000      0           0",
    ]
    assert sum(float(line[4]) for line in cells(found.tree())) == pytest.approx(10.0)


def test_children_that_took_longer_leave_no_negative_time() -> None:
    """Means over other numbers of calls may exceed the parent's; its own time is 0 then."""
    lines = cells(fixed(call("", 0, 1e-3), call("a", 1, 0.6e-3), call("b", 1, 0.5e-3)).tree())
    assert [line[4] for line in lines] == ["0.000", "0.600", "0.500"]


@pytest.mark.slow
def test_every_module_of_a_transformer_is_in_its_tree() -> None:
    """Containers have a time and a cumulative error; layers are those of the flat list."""
    found = trace(transformer(), batch())
    names = [each.name for each in found.modules]
    assert names[:5] == ["", "0", "1", "1.layers.0", "1.layers.0.self_attn"]
    assert [each for each in found.modules if each in found.layers] == list(found.layers)
    assert [each.depth for each in found.modules[:5]] == [0, 1, 1, 2, 3]
    whole, encoder = found.modules[0], found.modules[2]
    assert whole.cumulative == found.output
    assert (encoder.kind, encoder.alone, encoder.flops) == ("TransformerEncoder", NONE, 0)
    assert 0 < encoder.cumulative.rms_share < 0.05
    for depth in range(3):
        outer = sum(each.seconds for each in found.modules if each.depth == depth)
        inner = sum(each.seconds for each in found.modules if each.depth == depth + 1)
        assert 0 < inner <= outer


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
    found = trace(Shared(), torch.randn(2, 4), repeats=2)
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
    assert all(each.seconds > 0 for each in found.modules)


def test_without_a_profiler_there_are_no_times() -> None:
    """`repeats=0` shows errors alone."""
    found = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4), repeats=0)
    assert [line[2:5] for line in cells(found.tree())] == [["-", "-", "-"]] * 3
    assert ModelTrace((), NONE).tree().split() == found.tree().splitlines()[0].split()


def test_an_output_that_is_not_finite_is_no_small_error() -> None:
    """RMS leaves NaN out; the tree says "inf"."""
    model, exact = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].bias[0] = torch.nan
    found = trace(model, torch.ones(1, 2), reference=exact, repeats=0)
    assert [line[-2:] for line in cells(found.tree())] == [["-", "inf"], ["inf", "inf"]]


def test_a_model_that_is_one_layer_has_a_line() -> None:
    """A model without inner modules is its own only layer."""
    found = trace(nn.Linear(2, 2), torch.ones(1, 2), repeats=0)
    assert [each.name for each in found.layers] == [""]
    assert cells(found.tree())[0][:2] == ["(model)", "Linear"]


def test_the_page_is_whole_and_escaped() -> None:
    """Names of modules and classes are text, without scripts; nesting is kept."""
    kind = type("<script>alert(1)</script>", (nn.ReLU,), {})
    inner = nn.Sequential()
    inner.add_module("<b>&", kind())
    found = trace(nn.Sequential(inner), torch.randn(2, 2), repeats=0)
    html = found.to_html()
    assert html.startswith("<!DOCTYPE html>")
    assert html.endswith("</html>")
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "\N{NO-BREAK SPACE}" * 8 + "&lt;b" in html
    assert found._repr_html_() in html
    inner.add_module("line\nbreak\x1b[2J", nn.ReLU())
    assert len(trace(inner, torch.randn(2, 2), repeats=0).tree().splitlines()) == 4
