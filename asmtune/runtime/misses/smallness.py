"""Which problems are too small to be worth timing."""

from __future__ import annotations

from typing import Final

from asmtune.runtime.misses.answers import Miss
from asmtune.runtime.options import DecoratorOptions
from asmtune.store.fast_lookup import Seen

HOST_LAUNCH_US: Final = 6.8
"""What a launch costs the host: `@triton.jit` without arguments on an H200 machine, where
`triton.autotune` takes 20.8 us and a compiled kernel's own `run` 3.3. A kernel that runs for
less time waits for the host, whatever its config, unless a CUDA graph launches it."""


def is_small(options: DecoratorOptions, miss: Miss, seen: Seen) -> bool:
    """Whether a launch is small, by what was predicted for its key."""
    if options.small == "auto":
        return seen.predicted_us is not None and seen.predicted_us < HOST_LAUNCH_US
    return called_small(options, miss)


def called_small(options: DecoratorOptions, miss: Miss) -> bool:
    """Whether the user calls a launch small, by its size or by a function of the user's."""
    small, arguments = options.small, miss.problem.arguments
    if small is None or isinstance(small, str):
        return False
    if callable(small):
        return bool(small(arguments))
    sizes = (value.numel() for value in arguments.values() if hasattr(value, "numel"))
    return max(sizes, default=0) <= small
