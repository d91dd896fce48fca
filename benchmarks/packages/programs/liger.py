"""Layers of a language model with Liger Kernel: a dynamic tanh, an MLP, a mixture of experts."""

import torch
from liger_kernel.ops import LigerDyTFunction, LigerFusedMoEFunction, LigerMLPFunction
from stopwatch import Call, Outputs, Place, gradients, main


def dyt(place: Place) -> Call:
    """Run dynamic tanh over 4096 tokens of width 4096, forward and backward."""
    tokens, width = place.size(4096, 16), place.size(4096, 256)
    inputs = {
        "x": place.normal(tokens, width),
        "alpha": torch.full((1,), 0.5, device=place.device, dtype=torch.bfloat16),
        "gamma": place.normal(width),
        "beta": place.normal(width),
    }
    for value in inputs.values():
        value.requires_grad_()
    upstream = place.normal(tokens, width)

    def call() -> Outputs:
        output = LigerDyTFunction.apply(*inputs.values())
        return {"y": output, **gradients(output, inputs, upstream)}

    return call


def mlp(place: Place) -> Call:
    """Run the fused SwiGLU MLP of an 8 B Llama over 4096 tokens, inference, by TMA descriptors."""
    width, hidden = place.size(4096, 128), place.size(14336, 256)
    x = place.normal(1, place.size(4096, 64), width)
    gate, up, down = (
        place.normal(*shape) * width**-0.5
        for shape in ((hidden, width), (hidden, width), (width, hidden))
    )

    def call() -> Outputs:
        with torch.no_grad():
            return {"y": LigerMLPFunction.apply(x, gate, up, down)}

    return call


def moe(place: Place) -> Call:
    """Run the experts of a 30 B Qwen3 (128, 8 a token) over 4096 tokens, forward."""
    tokens, width, hidden = place.size(4096, 16), place.size(2048, 64), place.size(768, 64)
    experts, chosen = place.size(128, 4), place.size(8, 2)
    x = place.normal(tokens, width)
    gate_up = place.normal(experts, 2 * hidden, width) * width**-0.5
    down = place.normal(experts, width, hidden) * hidden**-0.5
    weights, indices = torch.randn(tokens, experts, device=place.device).softmax(-1).topk(chosen)
    weights, indices = weights.to(x.dtype), indices.to(torch.int32)

    def call() -> Outputs:
        with torch.no_grad():
            return {"y": LigerFusedMoEFunction.apply(x, gate_up, down, indices, weights)}

    return call


if __name__ == "__main__":
    main({"dyt": dyt, "mlp": mlp, "moe": moe})
