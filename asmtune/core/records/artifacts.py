"""Results of compiling a config: `Artifact`, `Sketch` or `Failure`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Reason why a config could not be compiled or launched: a value, never raised.

    Attributes:
        stage: where it failed: "rules", "lower", a stage of the compiler, "read", "sass" (it
            cannot be disassembled), "launch", or "check" (its output is wrong).
        kind: the cause, as one word: "kernel" (the source is at fault), "options", "registers",
            "shared_memory", "memory" (the host's or the GPU's), "disk" (it is full), "timeout",
            "override" (a hand-edited file cannot be used, or does not fit the kernel), "crash" (the
            process that compiled or launched it died), "fault" (it broke the CUDA context),
            "ptxas", "nvdisasm", "tool" (a program does not start), "compiler" (any other error),
            "parse" (its output cannot be read), "lost" (the artifact is no longer cached),
            "capture" (a launch that cannot be in a CUDA graph), "untimed" (an alternative where
            none is timed), at "check" "wrong_output",
            "inaccurate" (it breaks the accuracy bound), "unwritten", "stray_write" or "unsaved" (it
            may write what the bench does not save),
            and at "rules" the name of the rule that is broken.
        detail: the message of the program that failed, shortened.
    """

    stage: str
    kind: str
    detail: str

    def __str__(self) -> str:
        first = self.detail.strip().splitlines()[0] if self.detail.strip() else ""
        return f"{self.kind} at {self.stage}: {first}"


@dataclass(frozen=True)
class Artifact:
    """The outputs of a compile's stages, as text but for the cubin.

    Attributes:
        digest: hash of everything that the outputs depend on; the artifact's name on disk.
        entry: name of the kernel in the PTX.
        arch: the target's architecture, such as `sm_90` or `gfx942`.
        outputs: text of "ttir", "ttgir" and the assembly: "ptx", or AMD's "amdgcn"; and of "llir",
            but where a hand-edited file took the place of a stage.
        cubin: the ELF file: a cubin, or AMD's hsaco.
        metadata: Triton's metadata, as JSON values.
        seconds: compile time by stage.
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
        """Return the shared memory per program, static and dynamic, as launched."""
        return int(self.metadata["shared"])


@dataclass(frozen=True)
class Sketch:
    """The output of a compile that stops before LLVM: a tenth of the time, no machine code.

    Attributes:
        digest: digest of the artifact that the whole compile would give.
        arch: the target's architecture, such as `sm_90`.
        ttgir: Triton's GPU IR, with loops and layouts.
        metadata: Triton's metadata known so far, as JSON values: the options, `shared`, and
            `num_warps`, which includes the partitions of a warp-specialised kernel.
    """

    digest: str
    arch: str
    ttgir: str
    metadata: Mapping[str, Any]

    @property
    def shared_bytes(self) -> int:
        """Return the shared memory per program, as launched."""
        return int(self.metadata["shared"])
