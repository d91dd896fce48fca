"""Layers of a language model with Liger Kernel: a dynamic tanh, an MLP, a mixture of experts."""

import torch
from liger_kernel.ops import LigerDyTFunction, LigerFusedMoEFunction, LigerMLPFunction
from stopwatch import Checked, Outputs, Place, exact, gradients, main
from torch.nn.functional import silu


def dyt(place: Place) -> Checked:
    """Run dynamic tanh over 4096 tokens of width 4096, forward and backward."""
    tokens, width = place.size(4096, 16), place.size(4096, 256)
    inputs = {
        "x": _normal(place, tokens, width),
        "alpha": torch.full((1,), 0.5, device=place.device, dtype=torch.bfloat16),
        "gamma": _normal(place, width),
        "beta": _normal(place, width),
    }
    for value in inputs.values():
        value.requires_grad_()
    upstream = _normal(place, tokens, width)

    def call() -> Outputs:
        output = LigerDyTFunction.apply(*inputs.values())
        return {"y": output, **gradients(output, inputs, upstream)}

    def reference() -> Outputs:
        whole = exact(inputs)
        output = whole["gamma"] * torch.tanh(whole["alpha"] * whole["x"]) + whole["beta"]
        return {"y": output, **gradients(output, whole, upstream.double())}

    return Checked(call, reference)


def mlp(place: Place) -> Checked:
    """Run the fused SwiGLU MLP of an 8 B Llama over 4096 tokens, inference, by TMA descriptors."""
    width, hidden = place.size(4096, 128), place.size(14336, 256)
    x = _normal(place, 1, place.size(4096, 64), width)
    gate, up, down = (
        _normal(place, *shape) * width**-0.5
        for shape in ((hidden, width), (hidden, width), (width, hidden))
    )

    def call() -> Outputs:
        with torch.no_grad():
            return {"y": LigerMLPFunction.apply(x, gate, up, down)}

    def reference() -> Outputs:
        tokens = x.double()
        hidden_values = silu(tokens @ gate.double().T) * (tokens @ up.double().T)
        return {"y": hidden_values @ down.double().T}

    return Checked(call, reference)


def moe(place: Place) -> Checked:
    """Run the experts of a 30 B Qwen3 (128, 8 a token) over 4096 tokens, forward."""
    tokens, width, hidden = place.size(4096, 16), place.size(2048, 64), place.size(768, 64)
    experts, chosen = place.size(128, 4), place.size(8, 2)
    x = _normal(place, tokens, width)
    gate_up = _normal(place, experts, 2 * hidden, width) * width**-0.5
    down = _normal(place, experts, width, hidden) * hidden**-0.5
    weights, indices = torch.randn(tokens, experts, device=place.device).softmax(-1).topk(chosen)
    weights, indices = weights.to(x.dtype), indices.to(torch.int32)

    def call() -> Outputs:
        with torch.no_grad():
            return {"y": LigerFusedMoEFunction.apply(x, gate_up, down, indices, weights)}

    def reference() -> Outputs:
        y = torch.zeros_like(x, dtype=torch.float64)
        for expert in range(experts):
            rows, slots = (indices == expert).nonzero(as_tuple=True)
            gate, up = (x[rows].double() @ gate_up[expert].double().T).chunk(2, dim=-1)
            parts = (silu(gate) * up) @ down[expert].double().T
            y.index_add_(0, rows, parts * weights[rows, slots, None].double())
        return {"y": y}

    return Checked(call, reference)


def _normal(place: Place, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=place.device, dtype=torch.bfloat16)


if __name__ == "__main__":
    main({"dyt": dyt, "mlp": mlp, "moe": moe})
