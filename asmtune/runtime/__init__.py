"""`@asm_autotune`: a decorator over `@triton.jit` that finds a config once per key.

    arguments -> launch key -> plan            every launch (`launch`)
    arguments -> key -> memory                 a launch without a plan (`choosing`)
              -> store -> shipped -> small? -> on_miss    the first launch of a key (`misses`)

`decorator` checks options and makes an `AsmAutotuner` (`autotuner`), one of Triton's autotuners.
Its launcher passes a planned launch to the driver. Otherwise its `Chooser` looks the key up in
memory; for a new key it checks the launch (`checks`) and makes a `TuningRequest`, which
`misses.resolver` resolves. The ranks of a `torch.distributed` job agree on each config
(`rank_agreement`), and nothing is tuned while a CUDA graph is captured. `events` reports keys
that were resolved, `key_recorder` writes those that a program meets to a file, `patching` puts all
this behind `triton.autotune` of unchanged programs, and `torch_compile` gives PyTorch's compiler
the config of a launch that it traces.
"""
