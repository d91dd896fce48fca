"""Layers of linear attention, with the operations of flash-linear-attention.

4096 tokens, 16 heads of 128. Training steps are left out: `triton.autotune` alone then tries 300
configs for one layer, minutes of a GPU.
"""

import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gla import chunk_gla
from stopwatch import Call, Outputs, Place, main
from torch.nn.functional import logsigmoid, normalize

Heads = dict[str, torch.Tensor]


def gla(place: Place) -> Call:
    """Run a gated linear attention layer, forward: `chunk_gla`."""
    inputs = _heads(place, heads=16)
    inputs["g"] = logsigmoid(torch.randn_like(inputs["q"])) / 16
    return _forward(chunk_gla, inputs)


def gated_delta_rule(place: Place) -> Call:
    """Run a gated delta rule layer as in Qwen3-Next, forward: `chunk_gated_delta_rule`.

    The package refuses its backward on Hopper under Triton 3.6.
    """
    inputs = _heads(place, heads=16)
    inputs["k"] = normalize(inputs["k"].float(), dim=-1).to(inputs["k"].dtype)
    gates = inputs["q"][..., 0]
    inputs["g"] = logsigmoid(torch.randn_like(gates, dtype=torch.float32))
    inputs["beta"] = torch.randn_like(gates).sigmoid()
    return _forward(chunk_gated_delta_rule, inputs)


def _heads(place: Place, heads: int) -> Heads:
    shape = (1, place.size(4096, 64), place.size(heads, 1), place.size(128, 32))
    return {name: torch.randn(shape, device=place.device, dtype=torch.bfloat16) for name in "qkv"}


def _forward(operation, inputs: Heads) -> Call:
    def call() -> Outputs:
        with torch.no_grad():
            return {"o": operation(**inputs)[0]}

    return call


if __name__ == "__main__":
    main({"gla": gla, "gated_delta_rule": gated_delta_rule})
