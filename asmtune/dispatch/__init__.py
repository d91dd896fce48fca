"""`@asm_autotune`: a decorator over `@triton.jit` that finds a config once per key.

    arguments -> key -> memory -> store -> shipped -> tune
                         every launch    first launch of a key only

What decides on a miss, in this order: capture of a CUDA graph (never tunes),
`small` (never tunes), the store, the configs that ship, then tuning.
"""

from asmtune.dispatch.autotuner import AsmAutotuner
from asmtune.dispatch.decorator import asm_autotune

__all__ = ["AsmAutotuner", "asm_autotune"]
