"""A file of hand-edited IR in the place of a stage's output, as Triton's `ir_override` has it.

Triton runs every stage up to the file's as well, and keeps what they tell of the launch. So
does this, and has the kernel's own PTX then to hold the file's to: an entry of another name,
or with other parameters, would be launched on whatever lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from asmtune.compile.stages import StageRun
from asmtune.core.ir_overrides import STAGES, Override
from asmtune.core.records.artifacts import Failure
from asmtune.ir.asm.entry import entries

MLIR: Final = ("ttir", "ttgir")
"""Stages whose output is a module of Triton's own IR."""

_FROM_TTGIR: Final = ("llir", "ptx")


def edited(
    override: Override, own: Mapping[str, str], metadata: Mapping[str, Any], run: StageRun
) -> dict[str, str] | Failure:
    """TTGIR and PTX with a file in the place of one of them, or why it cannot be there.

    Args:
        override: the file.
        own: the compiler's TTGIR and PTX.
        metadata: as it was after the compiler's TTGIR.
        run: of the config; its metadata is then that of the launch.
    """
    made: Any = override.text
    ttgir, left = own["ttgir"], STAGES[STAGES.index(override.stage) + 1 :]
    if override.stage in MLIR:
        # What the stages from here on told of the launch, they will tell of the file.
        run.metadata.clear()
        run.metadata.update(metadata)
        made, left = ttgir_of(override, run), _FROM_TTGIR
        ttgir = str(made)
    for stage in left:
        if isinstance(made, Failure):
            return made
        made = run.stage(stage, made)
    if isinstance(made, Failure):
        return made
    refused = misfit(made, own["ptx"])
    return refused or {"ttgir": ttgir, "ptx": made}


def ttgir_of(override: Override, run: StageRun) -> Any:
    """The TTGIR module of a file of Triton's IR, or the failure."""
    module = run.parse(override.stage, override.text)
    if override.stage == "ttgir" or isinstance(module, Failure):
        return module
    return run.stage("ttgir", module)


def misfit(ptx: str, own: str) -> Failure | None:
    """Why PTX cannot be launched as the kernel's own; None where it can."""
    (kernel,) = entries(own)
    found = {entry.name: entry for entry in entries(ptx)}
    if kernel.name not in found:
        names = ", ".join(found) or "none"
        return _refused(f"it has no entry {kernel.name}, the kernel's; its entries: {names}")
    reason = found[kernel.name].misfit(kernel)
    return None if reason is None else _refused(f"its entry {kernel.name} {reason}")


def _refused(text: str) -> Failure:
    return Failure("ptx", "override", text)
