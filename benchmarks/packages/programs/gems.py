"""Operations of PyTorch in FlagGems: a norm, a loss, a batched product."""

import flag_gems
import torch
from stopwatch import Call, Outputs, Place, gradients, main


def layer_norm(place: Place) -> Call:
    """Run layer norm over 4096 tokens of width 8192, forward and backward."""
    tokens, width = place.size(4096, 16), place.size(8192, 4160)
    x, upstream = (place.normal(tokens, width) for _ in range(2))
    weight, bias = (place.normal(width) for _ in range(2))

    def call() -> Outputs:
        y, mean, rstd = flag_gems.layer_norm(x, (width,), weight, bias)
        mask = [True, True, True]
        grads = flag_gems.layer_norm_backward(upstream, x, (width,), mean, rstd, weight, bias, mask)
        return {"y": y, **dict(zip(("dx", "dweight", "dbias"), grads, strict=True))}

    return call


def cross_entropy(place: Place) -> Call:
    """Run the loss over a vocabulary of 128,256 for 512 tokens, forward and backward."""
    tokens, words = place.size(512, 16), place.size(128256, 512)
    logits = place.normal(tokens, words).requires_grad_()
    target = torch.randint(words, (tokens,), device=place.device)
    upstream = torch.ones((), device=place.device, dtype=logits.dtype)

    def call() -> Outputs:
        loss = flag_gems.cross_entropy_loss(logits, target)
        return {"loss": loss, **gradients(loss, {"logits": logits}, upstream)}

    return call


def bmm(place: Place) -> Call:
    """Run 32 products of 2048 x 2048 x 128, as queries and keys of one attention layer."""
    heads, rows, depth = place.size(32, 2), place.size(2048, 64), place.size(128, 32)
    left, right = place.normal(heads, rows, depth), place.normal(heads, depth, rows)
    return lambda: {"y": flag_gems.bmm(left, right)}


if __name__ == "__main__":
    main({"layer_norm": layer_norm, "cross_entropy": cross_entropy, "bmm": bmm})
