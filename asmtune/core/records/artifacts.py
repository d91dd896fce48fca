"""What a compile gives, whole or as far as its sketch, or why it gives nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Why a config could not be compiled or launched; a value, never raised.

    Attributes:
        stage: where it failed: "rules", "lower", a stage of the compiler, "read", "sass" (it
            cannot be disassembled), "launch", or "check" (its output is not what it should be).
        kind: what it was, as one word: "kernel" (the source is at fault), "options",
            "registers", "shared_memory", "memory" (the host's or the GPU's), "timeout",
            "override" (a hand-edited file cannot be used, or does not fit the kernel),
            "crash" (the process that compiled or launched it died), "fault" (it broke the CUDA
            context), "ptxas", "nvdisasm", "tool" (a program that does not start), "compiler" (any
            other error),
            "parse" (its output cannot be read), "lost" (the artifact is no longer
            cached), "capture" (a launch that cannot stand in a CUDA graph), at "check"
            "wrong_output", "unwritten" or "stray_write", and at "rules" the name of the rule
            that is broken.
        detail: the message of whoever refused it, shortened.
    """

    stage: str
    kind: str
    detail: str

    def __str__(self) -> str:
        first = self.detail.strip().splitlines()[0] if self.detail.strip() else ""
        return f"{self.kind} at {self.stage}: {first}"


@dataclass(frozen=True)
class Artifact:
    """What a compile gives: the stages' outputs, as text but for the cubin.

    Attributes:
        digest: of all that the outputs depend on; the artifact's name on disk.
        entry: name of the kernel in the PTX.
        arch: `sm_90`, as the target has it.
        outputs: text of "ttir", "ttgir" and "ptx".
        cubin: the ELF file.
        metadata: Triton's own, as JSON values.
        seconds: time spent by stage.
    """

    digest: str
    entry: str
    arch: str
    outputs: Mapping[str, str]
    cubin: bytes
    metadata: Mapping[str, Any]
    seconds: Mapping[str, float]

    @property
    def shared_bytes(self) -> int:
        """Shared memory a program, static and dynamic, as launched."""
        return int(self.metadata["shared"])


@dataclass(frozen=True)
class Sketch:
    """What a compile gives before LLVM: a tenth of its time, and no machine code.

    Attributes:
        digest: of the artifact that the whole compile would give.
        arch: `sm_90`, as the target has it.
        ttgir: Triton's second IR, loops and layouts in it.
        metadata: Triton's own as far as it is known, as JSON values: the options,
            `num_warps` with those of a warp-specialised kernel's partitions, `shared`.
    """

    digest: str
    arch: str
    ttgir: str
    metadata: Mapping[str, Any]

    @property
    def shared_bytes(self) -> int:
        """Shared memory a program, as launched."""
        return int(self.metadata["shared"])
