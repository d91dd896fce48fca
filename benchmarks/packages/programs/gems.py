"""Operations of PyTorch in FlagGems: a norm, a loss, a batched product."""

import flag_gems
import torch
from stopwatch import Checked, Outputs, Place, exact, gradients, main
from torch.nn import functional


def layer_norm(place: Place) -> Checked:
    """Run layer norm over 4096 tokens of width 8192, forward and backward."""
    tokens, width = place.size(4096, 16), place.size(8192, 4160)
    x, upstream = (_normal(place, tokens, width) for _ in range(2))
    weight, bias = (_normal(place, width) for _ in range(2))

    def call() -> Outputs:
        y, mean, rstd = flag_gems.layer_norm(x, (width,), weight, bias)
        mask = [True, True, True]
        grads = flag_gems.layer_norm_backward(upstream, x, (width,), mean, rstd, weight, bias, mask)
        return {"y": y, **dict(zip(("dx", "dweight", "dbias"), grads, strict=True))}

    def reference() -> Outputs:
        inputs = exact({"x": x, "weight": weight, "bias": bias})
        y = functional.layer_norm(inputs["x"], (width,), inputs["weight"], inputs["bias"])
        return {"y": y, **gradients(y, inputs, upstream.double())}

    return Checked(call, reference)


def cross_entropy(place: Place) -> Checked:
    """Run the loss over a vocabulary of 128,256 for 512 tokens, forward and backward."""
    tokens, words = place.size(512, 16), place.size(128256, 512)
    logits = _normal(place, tokens, words).requires_grad_()
    target = torch.randint(words, (tokens,), device=place.device)
    upstream = torch.ones((), device=place.device, dtype=logits.dtype)

    def call() -> Outputs:
        loss = flag_gems.cross_entropy_loss(logits, target)
        return {"loss": loss, **gradients(loss, {"logits": logits}, upstream)}

    def reference() -> Outputs:
        inputs = exact({"logits": logits})
        loss = functional.cross_entropy(inputs["logits"], target)
        return {"loss": loss, **gradients(loss, inputs, upstream.double())}

    return Checked(call, reference)


def bmm(place: Place) -> Checked:
    """Run 32 products of 2048 x 2048 x 128, as queries and keys of one attention layer."""
    heads, rows, depth = place.size(32, 2), place.size(2048, 64), place.size(128, 32)
    left, right = _normal(place, heads, rows, depth), _normal(place, heads, depth, rows)
    return Checked(
        lambda: {"y": flag_gems.bmm(left, right)},
        lambda: {"y": torch.bmm(left.double(), right.double())},
    )


def _normal(place: Place, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=place.device, dtype=torch.bfloat16)


if __name__ == "__main__":
    main({"layer_norm": layer_norm, "cross_entropy": cross_entropy, "bmm": bmm})
