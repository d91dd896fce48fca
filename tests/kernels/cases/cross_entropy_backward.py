"""The gradient of cross entropy from what forward keeps."""

from __future__ import annotations

import torch

from asmtune.core.config import Config
from tests.kernels.accuracy import Case, Inputs


def with_sums(inputs: Inputs) -> Inputs:
    """Give varied logits their own sums: exponentials over another row's overflow fp32."""
    return inputs | {"lse": torch.logsumexp(inputs["logits"].float(), 1)}


CASE = Case(
    shapes=(
        {"rows": 5, "cols": 70},
        {"rows": 3, "cols": 781},
        {"rows": 1, "cols": 1},
        {"rows": 9, "cols": 512},
        {"rows": 2, "cols": 1003},
    ),
    configs=(Config({"ROWS": 2, "BLOCK": 128}), Config({"ROWS": 8, "BLOCK": 512})),
    varied=("logits", "grad"),
    completed=with_sums,
    keywords=({"ignore_index": 7},),
)
