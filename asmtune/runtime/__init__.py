"""`@asm_autotune`: a decorator over `@triton.jit` that finds a config once per key.

    arguments -> plan                             every launch (`asmtune.runtime.launch`)
    arguments -> key -> memory                    what has no plan
              -> store -> shipped -> small? -> on_miss    the first launch of a key

A launch is checked before its key is looked up: bad use is told before anything runs.
Ranks of a job agree on what is found; while a CUDA graph is captured nothing is tuned.
"""
