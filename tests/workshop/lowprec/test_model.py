"""Errors through a small transformer, and layers in FP8."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asmtune.workshop.lowprec import (
    Fp8Linear,
    dequantize,
    trace,
    with_fp8,
)


def transformer() -> nn.Module:
    """A small one of PyTorch's own modules, in bf16."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(16, 32), encoder, nn.Linear(32, 8)).bfloat16()


def batch() -> torch.Tensor:
    """A batch for it."""
    return torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.mark.slow
def test_each_layer_has_its_errors_and_costs() -> None:
    """Rows are those of the innermost modules; FP8 shows alone where it is, and cumulative after.

    Errors without FP8 are those of bf16. Models, their modes and hooks are left as they were.
    """
    model = transformer()
    low = with_fp8(model, ["1.layers.1.linear1"])
    low.train()
    fused = torch.backends.mha.get_fastpath_enabled()
    found = trace(low, batch(), reference=model)
    assert low.training
    assert torch.backends.mha.get_fastpath_enabled() == fused
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in low.modules()]
    assert sum(map(sum, hooks)) == 1, "the FP8 layer's own"
    layers = {layer.name: layer for layer in found.layers}
    assert "1.layers.0" not in layers, "it calls others"
    assert {"0", "1.layers.0.self_attn", "1.layers.1.linear1", "1.layers.1.norm2"} <= set(layers)
    assert layers["1.layers.1.linear1"].kind == "Fp8Linear"
    low_error = layers.pop("1.layers.1.linear1").alone.rms_share
    assert 0.01 < low_error < 0.1
    assert all(layer.alone.rms_share < 0.006 for layer in layers.values())
    after, before = layers["1.layers.1.linear2"], layers["1.layers.0.linear2"]
    assert after.cumulative.rms_share > 2 * before.cumulative.rms_share
    assert after.flops == 2 * (2 * 8) * 64 * 32
    assert found.output.rms_share < low_error


def test_a_layer_alone_sees_the_model_s_own_inputs() -> None:
    """A layer after a wrong one has no error of its own, and the wrong one's cumulative error."""
    exact = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()
    wrong = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()
    first, relu = trace(wrong, torch.randn(8, 4).double(), reference=exact).layers
    assert first.alone.rms_share > 0.1
    assert relu.alone.max_abs == 0.0
    assert relu.cumulative.rms_share > 0.1


def test_a_layer_called_twice_has_two_rows() -> None:
    """Calls of a shared layer are told apart; a model without inner modules is its own layer.

    An input of names or a tuple is passed on. What is NaN in both has no error of 0.
    """

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.linear(self.linear(x))}

    for given in ({"x": torch.randn(2, 4)}, (torch.randn(2, 4),)):
        assert [layer.name for layer in trace(Twice(), given).layers] == ["linear", "linear#2"]
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, float("nan"))
    (only,) = trace(model, torch.ones(1, 2)).layers
    assert (only.name, only.kind) == ("", "Linear")
    assert only.alone.rms_share != 0


def test_fp8_layers_follow_their_inputs_in_training_alone() -> None:
    """Scales move in training mode, stay in evaluation, and outlive a change of dtype."""
    torch.manual_seed(0)
    linear = nn.Linear(16, 8)
    low = Fp8Linear(linear)
    x = torch.randn(4, 16)
    expected = linear(x).detach()
    assert float((low(x).detach() - expected).abs().max()) < 0.1 * float(expected.abs().max())
    low(4 * x)
    updates, amax = low.scaler.updates, float(low.scaler.amax)
    low.eval()
    low(100 * x)
    assert (low.scaler.updates, float(low.scaler.amax)) == (updates, amax)
    other = Fp8Linear(nn.Linear(16, 8))
    other.load_state_dict(low.state_dict())
    assert torch.equal(other.eval()(x), low(x))
    assert low.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_fp8_layers_take_empty_inputs_and_pass_gradients() -> None:
    """No token gives no output and moves no scale; small gradients are those of the weight."""
    low = Fp8Linear(nn.Linear(4, 3))
    assert low(torch.empty(0, 4)).shape == (0, 3)
    assert low.scaler.updates == 0
    x = torch.randn(2, 4, requires_grad=True)
    low(x)[:, 1].sum().mul(1e-6).backward()
    weight = dequantize(low.weight.view(torch.float8_e4m3fn), low.weight_scale)
    torch.testing.assert_close(x.grad, 1e-6 * weight[1].expand(2, 4))


def test_conversion_keeps_modes_and_shared_layers() -> None:
    """A layer in evaluation stays so, one under two names stays one, and a model may be one."""
    linear = nn.Linear(4, 4)
    made = with_fp8(nn.Sequential(linear, nn.ReLU(), linear).eval())
    assert isinstance(made, nn.Sequential)
    assert isinstance(made[0], Fp8Linear)
    assert made[0] is made[2]
    assert not any(module.training for module in made.modules())
    assert isinstance(with_fp8(linear), Fp8Linear)
