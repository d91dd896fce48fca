"""Cross entropy and its gradient."""

from __future__ import annotations

import torch

from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import Case, launched_with, module_of
from tests.kernels.cases import softmax


def targets(device: str) -> dict[str, float]:
    """A target that is no class makes its row NaN; ignored ones count for nothing."""
    module, plain = module_of("cross_entropy"), torch.nn.functional.cross_entropy
    logits = torch.randn(5, 70, device=device)
    no_class = torch.tensor([3, 70, -1, -100, 69], device=device)
    ignored = torch.tensor([7, 3, 69, 7, 0], device=device)
    found = {}
    with launched_with(module.DEFAULT, "cross_entropy", "cross_entropy_backward"):
        losses = module.cross_entropy(logits, no_class, reduction="none")
        known = plain(logits.double(), no_class.clamp(0, 69), reduction="none")
        known[1:3], known[3] = float("nan"), 0.0
        found["no class"] = excess(losses, known)
        for reduction in module.REDUCTIONS:
            mine = logits.clone().requires_grad_()
            exact = logits.double().requires_grad_()
            got = module.cross_entropy(mine, ignored, 7, reduction)
            want = plain(exact, ignored, ignore_index=7, reduction=reduction)
            got.sum().backward()
            want.sum().backward()
            assert mine.grad is not None
            assert exact.grad is not None
            found[f"ignored, {reduction}"] = excess(got.detach(), want.detach())
            found[f"gradient, {reduction}"] = excess(mine.grad, exact.grad)
    return found


CASE = Case(
    shapes=softmax.CASE.shapes[:5],
    configs=softmax.CASE.configs,
    varied=("logits",),
    gradients=("logits",),
    keywords=({"reduction": "none"}, {"reduction": "sum"}, {"ignore_index": 7}),
    also=("cross_entropy_backward",),
    extras=(targets,),
)
