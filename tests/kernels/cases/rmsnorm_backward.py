"""RMSNorm's gradients from what forward keeps: the cases of LayerNorm's, whose sums are checked."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.cases import layernorm_backward

CASE = replace(layernorm_backward.CASE, extras=())
