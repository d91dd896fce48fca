"""Runs the compiler's stages in the child, with hand-edited IR in the place of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from asmtune.compile.toolchain import Toolchain
from asmtune.core.failures import guarded
from asmtune.core.ir_overrides import STAGES, Override
from asmtune.core.records.artifacts import Failure
from asmtune.ir.asm.nvptx import entries


class StageRun:
    """Runs the stages of one request; announces each before it begins, and times it.

    Attributes:
        metadata: Triton's own, filled by the stages.
        seconds: time of each stage.
    """

    def __init__(
        self, request: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._request = request
        self._say = say
        self._toolchain = toolchain_of(*request["machine"])
        self._options = self._toolchain.options(request["options"])
        self._stages = dict(self._toolchain.stages(self._options))
        self.metadata: dict[str, Any] = dict(self._options.__dict__)
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, module: Any) -> Any:
        """Runs one of the compiler's stages; returns its output or the failure."""
        return self._timed(name, lambda: self._stages[name](module, self.metadata))

    def parse(self, stage: str, text: str) -> Any:
        """Parses a text of Triton's IR; returns the module or the failure."""
        return guarded(stage, lambda: self._toolchain.parse(text))

    def ttgir(self) -> Any:
        """Runs the request's module up to the stage "ttgir", or returns the failure."""
        module: Any = self.parse("ttir", self._request["ttir"])
        for name in ("ttir", "ttgir"):
            if isinstance(module, Failure):
                return module
            module = self.stage(name, module)
        return module

    def allocate(self, module: Any) -> dict[str, int] | Failure:
        """Returns what a TTGIR module takes of the SM, or the failure; changes the module."""
        allocated: dict[str, int] | Failure = self._timed(
            "allocate", lambda: self._toolchain.allocate(module, self._options)
        )
        return allocated

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        self._say({"stage": name})
        start = time.perf_counter()
        result = guarded(name, work)
        self.seconds[name] = round(time.perf_counter() - start, 6)
        return result


@cache
def toolchain_of(backend: str, arch: int, warp_size: int) -> Toolchain:
    """Returns the compiler for a machine, made once."""
    return Toolchain(backend, arch, warp_size)


MLIR: Final = ("ttir", "ttgir")
"""Stages whose output is a module of Triton's own IR."""

_FROM_TTGIR: Final = ("llir", "ptx")


def apply_override(
    override: Override, compiled: Mapping[str, str], metadata: Mapping[str, Any], run: StageRun
) -> dict[str, str] | Failure:
    """Compiles a hand-edited file in the place of a stage's output, to TTGIR and PTX.

    Args:
        override: the file.
        compiled: the compiler's TTGIR and PTX.
        metadata: the metadata after the compiler's TTGIR.
        run: the config's stages; its metadata becomes that of the launch.
    """
    module: Any = override.text
    ttgir, left = compiled["ttgir"], STAGES[STAGES.index(override.stage) + 1 :]
    if override.stage in MLIR:
        # The stages from here on write their metadata again, for the file.
        run.metadata.clear()
        run.metadata.update(metadata)
        module, left = ttgir_of(override, run), _FROM_TTGIR
        ttgir = str(module)
    for stage in left:
        if isinstance(module, Failure):
            return module
        module = run.stage(stage, module)
    if isinstance(module, Failure):
        return module
    misfit = ptx_misfit(module, compiled["ptx"])
    return misfit or {"ttgir": ttgir, "ptx": module}


def ttgir_of(override: Override, run: StageRun) -> Any:
    """Returns the TTGIR module of a file of Triton's IR, or the failure."""
    module = run.parse(override.stage, override.text)
    if override.stage == "ttgir" or isinstance(module, Failure):
        return module
    return run.stage("ttgir", module)


def ptx_misfit(ptx: str, compiled_ptx: str) -> Failure | None:
    """Returns why edited PTX cannot be launched as the kernel's; None if it can."""
    (kernel,) = entries(compiled_ptx)
    by_name = {entry.name: entry for entry in entries(ptx)}
    if kernel.name not in by_name:
        names = ", ".join(by_name) or "none"
        return _refused(f"it has no entry {kernel.name}, the kernel's; its entries: {names}")
    reason = by_name[kernel.name].misfit(kernel)
    return None if reason is None else _refused(f"its entry {kernel.name} {reason}")


def _refused(text: str) -> Failure:
    return Failure("ptx", "override", text)
