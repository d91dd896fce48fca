"""RMSNorm and its gradients: the cases of LayerNorm, without a bias."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.cases import layernorm

CASE = replace(layernorm.CASE, gradients=("x", "weight"), also=("rmsnorm_backward",))
