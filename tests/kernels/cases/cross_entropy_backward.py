"""The gradient of cross entropy from what forward keeps."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from tests.kernels.accuracy import Case, Inputs
from tests.kernels.cases import softmax


def with_sums(inputs: Inputs) -> Inputs:
    """Give varied logits their own sums: exponentials over another row's overflow fp32."""
    return inputs | {"lse": torch.logsumexp(inputs["logits"].float(), 1)}


CASE = Case(
    shapes=softmax.CASE.shapes[:5],
    configs=(Config({"ROWS": 2, "BLOCK": 128}), Config({"ROWS": 8, "BLOCK": 512})),
    varied=("logits", "grad"),
    completed=with_sums,
    keywords=({"ignore_index": 7},),
)
