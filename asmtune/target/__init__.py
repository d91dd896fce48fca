"""What a device can do: limits and rates, each with the source of its figure.

A descriptor is a JSON file. The shipped ones lie in `asmtune/targets/`; a user's own
file has the same fields. A field holds `{"value": ..., "source": ..., "kind": ...}` or
the bare value, whose source is then "user". Units stand in the field names; a flop is
one multiplication or one addition, so that a fused multiply-add counts as two.
"""

from asmtune.target.descriptor import KINDS, parse_target
from asmtune.target.model import Figure, Target
from asmtune.target.rates import L2_BYTES_PER_CYCLE, tensor_rate
from asmtune.target.shipped import load_target, match_device, target_names

__all__ = [
    "KINDS",
    "L2_BYTES_PER_CYCLE",
    "Figure",
    "Target",
    "load_target",
    "match_device",
    "parse_target",
    "target_names",
    "tensor_rate",
]
