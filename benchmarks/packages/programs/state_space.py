"""Layers of Mamba-2: its scan by chunks, and its gated norm. Their backwards sum over programs."""

import sys
from importlib.util import find_spec
from types import ModuleType

import torch
from stopwatch import Call, Outputs, Place, gradients, main

_SPEC = find_spec("mamba_ssm")
assert _SPEC is not None, "install mamba-ssm"
_PACKAGE = ModuleType("mamba_ssm")
_PACKAGE.__path__ = list(_SPEC.submodule_search_locations or ())
sys.modules["mamba_ssm"] = _PACKAGE  # its __init__ imports a CUDA extension, which these never call

from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn  # noqa: E402
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined  # noqa: E402


def scan(place: Place) -> Call:
    """Run the scan of a 2.7 B Mamba-2 over 2 x 2048 tokens, forward and backward."""
    tokens, heads = place.size(2048, 64), place.size(80, 2)
    width, states, chunk = place.size(64, 16), place.size(128, 16), place.size(256, 32)
    inputs = {
        "x": place.normal(2, tokens, heads, width),
        "dt": place.normal(2, tokens, heads) * 0.1,
        "B": place.normal(2, tokens, 1, states),
        "C": place.normal(2, tokens, 1, states),
        "A": -torch.rand(heads, device=place.device),
        "D": torch.rand(heads, device=place.device),
    }
    for value in inputs.values():
        value.requires_grad_()
    upstream = place.normal(2, tokens, heads, width)

    def call() -> Outputs:
        x, dt, b, c, a, d = inputs.values()
        output = mamba_chunk_scan_combined(x, dt, a, b, c, chunk, D=d, dt_softplus=True)
        return {"y": output, **gradients(output, inputs, upstream)}

    return call


def gated_norm(place: Place) -> Call:
    """Run the gated RMS norm over 4096 tokens of width 5120, forward and backward."""
    tokens, width = place.size(4096, 16), place.size(5120, 256)
    inputs = {name: place.normal(tokens, width) for name in ("x", "z")}
    inputs["weight"] = place.normal(width)
    for value in inputs.values():
        value.requires_grad_()
    upstream = place.normal(tokens, width)

    def call() -> Outputs:
        x, z, weight = inputs.values()
        output = rmsnorm_fn(x, weight, None, z=z)
        return {"y": output, **gradients(output, inputs, upstream)}

    return call


if __name__ == "__main__":
    main({"scan": scan, "gated_norm": gated_norm})
