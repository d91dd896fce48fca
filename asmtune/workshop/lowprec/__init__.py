"""Low precision: scales for FP8, and errors through a model.

casting     blocks that share a scale (`Granularity`), `quantize` and `dequantize`
scaler      `Scaler`: scales from the running amax, whose state can be saved
fp8_linear  linear layers in FP8, and models that have some
layers      `trace`: errors of each layer alone and cumulative

All of it is plain PyTorch on any device, so that it works with any kernel.
"""

from __future__ import annotations

from asmtune.workshop.lowprec.casting import E4M3 as E4M3
from asmtune.workshop.lowprec.casting import E5M2 as E5M2
from asmtune.workshop.lowprec.casting import Granularity as Granularity
from asmtune.workshop.lowprec.casting import count_clipped as count_clipped
from asmtune.workshop.lowprec.casting import dequantize as dequantize
from asmtune.workshop.lowprec.casting import quantize as quantize
from asmtune.workshop.lowprec.fp8_linear import Fp8Linear as Fp8Linear
from asmtune.workshop.lowprec.fp8_linear import with_fp8 as with_fp8
from asmtune.workshop.lowprec.layers import trace as trace
from asmtune.workshop.lowprec.scaler import Scaler as Scaler
from asmtune.workshop.lowprec.scaler import ScaleWarning as ScaleWarning
