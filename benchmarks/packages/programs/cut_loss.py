"""A loss without logits of Cut Cross-Entropy, whose programs add up under locks."""

import os

os.environ["CCE_AUTOTUNE"] = "1"  # the package's own switch, read at its import

import torch
from cut_cross_entropy import linear_cross_entropy
from stopwatch import Call, Outputs, Place, gradients, main


def cut_cross_entropy(place: Place) -> Call:
    """Run the loss of 4096 tokens of width 2048 over 32,768 words, forward and backward."""
    tokens, width, words = place.size(4096, 128), place.size(2048, 64), place.size(32768, 256)
    inputs = {
        "e": place.normal(tokens, width),
        "c": place.normal(words, width) * width**-0.5,
    }
    for name, value in inputs.items():
        inputs[name] = value.detach().requires_grad_()
    target = torch.randint(words, (tokens,), device=place.device)
    upstream = torch.ones((), device=place.device)

    def call() -> Outputs:
        # Every block counts: what small gradients leave out depends on the block sizes.
        loss = linear_cross_entropy(inputs["e"], inputs["c"], target, filter_eps=None)
        return {"loss": loss, **gradients(loss, inputs, upstream.to(loss.dtype))}

    return call


if __name__ == "__main__":
    main({"cut_cross_entropy": cut_cross_entropy})
