"""What Triton itself compiles for a launch, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from asmtune.core.config import Config
from asmtune.core.problem import Problem


class _NoGpu:
    """A driver that names a target and can do nothing else."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        # Triton keeps what it compiled by device: one number a target.
        return self._target.arch

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 - Triton's signature
        return 0


@contextmanager
def launching_on(capability: int) -> Iterator[None]:
    """Make Triton take this machine for one with a GPU of a capability."""
    before = driver._active
    driver.set_active(_NoGpu(capability))
    try:
        yield
    finally:
        driver._active = before


def compiled_by_triton(problem: Problem, config: Config, capability: int) -> Any:
    """The `CompiledKernel` of `kernel.warmup(...)`: arguments specialised by Triton's launcher."""
    values: Mapping[str, Any] = {**problem.arguments, **config.all_kwargs()}
    if config.pre_hook is not None:
        config.pre_hook(values)
    with launching_on(capability):
        return problem.kernel.warmup(**values, grid=(1,))
