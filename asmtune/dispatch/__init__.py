"""`@asm_autotune`: a decorator over `@triton.jit` that finds a config once per key.

    arguments -> plan                             every launch (`asmtune.launch`)
    arguments -> key -> memory                    what has no plan
              -> store -> shipped -> small? -> on_miss    the first launch of a key

A launch is checked before its key is looked up: bad use is told before anything runs.
Ranks of a job agree on what is found; while a CUDA graph is captured nothing is tuned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asmtune.lazy import loader

if TYPE_CHECKING:
    from asmtune.dispatch.autotuner import AsmAutotuner as AsmAutotuner
    from asmtune.dispatch.decorator import asm_autotune as asm_autotune
    from asmtune.dispatch.patching import patch as patch
    from asmtune.dispatch.reconfiguring import autotuners as autotuners
    from asmtune.dispatch.reconfiguring import reconfigure as reconfigure

__all__ = ["AsmAutotuner", "asm_autotune", "autotuners", "patch", "reconfigure"]

_HOMES: Final = {
    "AsmAutotuner": "autotuner",
    "asm_autotune": "decorator",
    "autotuners": "reconfiguring",
    "patch": "patching",
    "reconfigure": "reconfiguring",
}

__getattr__ = loader(__name__, _HOMES)
